//! Attacks through a mapping that a reader already has.

#![expect(unsafe_code, reason = "attacks are raw system calls")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use nix::errno::Errno;
use nix::unistd::pipe;

use super::{READ_WRITE, Target, raw, tempfile_with};

#[test]
fn a_mapping_cannot_be_made_writable() {
    let target = Target::new();
    let page = target.page();
    let protected = raw!(libc::mprotect(page, 4096, READ_WRITE));
    target.refuses("mprotect", protected, &[Errno::EACCES]);

    // The same through a description opened for writing, where the kernel maps it at all.
    let bytes = target.bytes();
    let fd = target.writable.as_raw_fd();
    // SAFETY: a new read-only mapping at an address the kernel chooses.
    let at = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    if at != libc::MAP_FAILED {
        let protected = raw!(libc::mprotect(at, bytes, READ_WRITE));
        target.refuses("mprotect of a map through it", protected, &[Errno::EACCES]);
        // SAFETY: the mapping made above, grown, wherever it then lies.
        let grown = unsafe { libc::mremap(at, bytes, bytes * 2, libc::MREMAP_MAYMOVE) };
        assert_ne!(grown, libc::MAP_FAILED, "a mapping may be longer than its file");
        let protected = raw!(libc::mprotect(grown, bytes * 2, READ_WRITE));
        target.refuses("mprotect after mremap", protected, &[Errno::EACCES]);
        let remapped = raw!(libc::syscall(libc::SYS_remap_file_pages, grown, 4096, 0, 1, 0));
        target.survives("remap_file_pages", remapped);
        let protected = raw!(libc::mprotect(grown, bytes, READ_WRITE));
        target.refuses("mprotect after remap_file_pages", protected, &[Errno::EACCES]);
        raw!(libc::munmap(grown, bytes * 2)).unwrap();
    }
}

#[test]
fn memory_advice_removes_no_bytes() {
    let target = Target::new();
    let page = target.page();
    let removed = raw!(libc::madvise(page, 4096, libc::MADV_REMOVE));
    target.refuses("MADV_REMOVE", removed, &[Errno::EACCES, Errno::EPERM]);
    let populated = raw!(libc::madvise(page, 4096, libc::MADV_POPULATE_WRITE));
    target.refuses("MADV_POPULATE_WRITE", populated, &[Errno::EINVAL, Errno::EFAULT]);
    let freed = raw!(libc::madvise(page, 4096, libc::MADV_FREE));
    target.refuses("MADV_FREE", freed, &[Errno::EINVAL]);
    for (name, advice) in [
        ("MADV_DONTNEED", libc::MADV_DONTNEED),
        ("MADV_PAGEOUT", libc::MADV_PAGEOUT),
        ("MADV_COLD", libc::MADV_COLD),
        ("MADV_COLLAPSE", libc::MADV_COLLAPSE),
        ("MADV_WIPEONFORK", libc::MADV_WIPEONFORK),
    ] {
        target.survives(name, raw!(libc::madvise(page, 2 << 20, advice)));
    }
}

#[test]
fn system_calls_cannot_write_into_a_mapping() {
    let target = Target::new();
    let page = target.page();
    let source = tempfile_with(&[0xee; 4096]);
    let read = raw!(libc::pread(source.as_raw_fd(), page, 4096, 0));
    target.refuses("pread into it", read, &[Errno::EFAULT]);
    let (read_end, write_end) = pipe().unwrap();
    nix::unistd::write(&write_end, &[0xee; 64]).unwrap();
    let vector = libc::iovec { iov_base: page, iov_len: 64 };
    let moved = raw!(libc::vmsplice(read_end.as_raw_fd(), &raw const vector, 1, 0));
    target.refuses("vmsplice into it", moved, &[Errno::EFAULT]);
    let random = raw!(libc::getrandom(page, 64, 0));
    target.refuses("getrandom into it", random, &[Errno::EFAULT]);
    let operation = raw!(libc::syscall(
        libc::SYS_futex,
        page,
        libc::FUTEX_WAKE_OP,
        0,
        0,
        page,
        (libc::FUTEX_OP_SET << 28) | (0xee << 12)
    ));
    target.refuses("FUTEX_WAKE_OP on it", operation, &[Errno::EFAULT]);
    let gifted = libc::iovec { iov_base: page, iov_len: 4096 };
    let (gift_read, gift_write) = pipe().unwrap();
    let given =
        raw!(libc::vmsplice(gift_write.as_raw_fd(), &raw const gifted, 1, libc::SPLICE_F_GIFT));
    target.survives("gifting its pages to a pipe", given);
    drop((gift_read, gift_write));
    target.check("and closing the pipe");
    let memory = OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    let written = memory.write_at(b"evil", u64::try_from(page.addr()).unwrap());
    target.refuses("/proc/self/mem", written, &[Errno::EIO, Errno::EFAULT]);
}

#[test]
fn userfaultfd_refuses_a_mapping() {
    /// `struct uffdio_api`.
    #[repr(C)]
    struct Api([u64; 3]);
    /// `struct uffdio_register`.
    #[repr(C)]
    struct Register([u64; 4]);
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;

    let target = Target::new();
    let fd = match raw!(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1)) {
        Ok(fd) => i32::try_from(fd).unwrap(),
        Err(error) => {
            eprintln!("this process may not use userfaultfd at all: {error}");
            return;
        }
    };
    let mut api = Api([0xaa, 0, 0]);
    raw!(libc::ioctl(fd, UFFDIO_API, &raw mut api)).unwrap();
    for mode in [1, 2, 4] {
        let start = u64::try_from(target.page().addr()).unwrap();
        let mut register = Register([start, 4096, mode, 0]);
        let registered = raw!(libc::ioctl(fd, UFFDIO_REGISTER, &raw mut register));
        target.refuses("UFFDIO_REGISTER", registered, &[Errno::EPERM, Errno::EINVAL]);
    }
    raw!(libc::close(fd)).unwrap();
}
