//! Every way we know to write to a published extent or to cut it short, each refused by the kernel,
//! and the bytes compared after each.
//!
//! The attacker has what a reader is given, the read-only descriptor, and all it can make of it; it
//! is the owner of the file, and root where the tests are.

#![expect(unsafe_code, reason = "attacks are raw system calls")]

mod files;
mod mappings;
mod others;

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use larder_extent::{Attached, Sealed};
use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod};

use crate::support::{ID, handed_out, sealed};

/// What an attack is made with and what must not change by it.
struct Target {
    sealed: Sealed,
    before: Vec<u8>,
    /// The descriptor a reader is handed.
    fd: OwnedFd,
    /// What root can make of it: a writable description.
    writable: File,
    mapped: Attached,
}

impl Target {
    fn new() -> Self {
        let sealed = sealed();
        let fd = handed_out(&sealed);
        let mapped = Attached::shared(handed_out(&sealed), ID).unwrap();
        let mut target = Self { before: Vec::new(), writable: reopened(&fd), sealed, fd, mapped };
        target.before = target.now();
        target
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.sealed.total_bytes()).unwrap()
    }

    /// All bytes as another reader would see them.
    fn now(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes()];
        File::from(handed_out(&self.sealed)).read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn check(&self, attack: &str) {
        assert!(self.now() == self.before, "{attack} changed the file");
        let size = File::from(handed_out(&self.sealed)).metadata().unwrap().len();
        assert_eq!(size, self.sealed.total_bytes(), "{attack} changed its size");
        self.mapped.verify().unwrap_or_else(|row| panic!("{attack} changed a mapping: {row}"));
        self.sealed.verify().unwrap_or_else(|row| panic!("{attack} changed the node: {row}"));
    }

    /// The attack must fail in one of the ways given.
    fn refuses<T>(&self, attack: &str, outcome: io::Result<T>, with: &[Errno]) {
        let Err(error) = outcome else { panic!("{attack} was not refused") };
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        assert!(with.contains(&errno), "{attack} was refused with {errno}");
        self.check(attack);
    }

    /// The attack may succeed, but must change nothing.
    fn survives<T>(&self, attack: &str, _: io::Result<T>) {
        self.check(attack);
    }

    /// The middle of the reader's mapping.
    fn page(&self) -> *mut c_void {
        // SAFETY: the middle page of a mapping of 3 MiB.
        unsafe { self.mapped.base().as_ptr().add(1 << 20).cast() }
    }
}

/// The file behind `fd`, opened for writing, as its owner can by changing its mode (which stays
/// changed).
fn reopened(fd: &OwnedFd) -> File {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A raw system call's answer as a result.
macro_rules! raw {
    ($call:expr) => {{
        // SAFETY: the kernel checks what it is given; that is what is tested. Memory named is
        // either a local of the caller or the extent's mapping, which the call must not change.
        let answer = unsafe { $call };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    }};
}

use raw;

/// Maps all of a file; unmapped again on success, since success is a failure here.
fn map(target: &Target, protection: i32, flags: i32, file: &impl AsRawFd) -> io::Result<()> {
    let bytes = target.bytes();
    // SAFETY: a new mapping wherever the kernel likes it, taken down again.
    unsafe {
        let at = libc::mmap(null_mut(), bytes, protection, flags, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(at, bytes);
    }
    Ok(())
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

#[test]
fn no_descriptor_can_be_mapped_for_writing() {
    let target = Target::new();
    let (fd, writable) = (&target.fd, &target.writable);
    let shared = map(&target, READ_WRITE, libc::MAP_SHARED, fd);
    target.refuses("a writable map of the read-only descriptor", shared, &[Errno::EACCES]);
    let shared = map(&target, READ_WRITE, libc::MAP_SHARED, writable);
    target.refuses("a writable map of a reopened descriptor", shared, &[Errno::EPERM]);
    let validated = map(&target, READ_WRITE, libc::MAP_SHARED_VALIDATE, writable);
    target.refuses("MAP_SHARED_VALIDATE", validated, &[Errno::EPERM]);
    let write_only = map(&target, libc::PROT_WRITE, libc::MAP_SHARED, writable);
    target.refuses("a write-only map", write_only, &[Errno::EPERM]);
    let locked = map(&target, READ_WRITE, libc::MAP_SHARED | libc::MAP_LOCKED, writable);
    target.refuses("a locked writable map", locked, &[Errno::EPERM]);
    let stack = map(&target, READ_WRITE, libc::MAP_SHARED | libc::MAP_GROWSDOWN, writable);
    target.refuses("a writable map that grows", stack, &[Errno::EPERM, Errno::EINVAL]);
}

#[test]
fn no_writing_call_gets_through_a_descriptor() {
    let target = Target::new();
    let mut writable = &target.writable;
    target.refuses(
        "write by the read-only descriptor",
        File::from(target.fd.try_clone().unwrap()).write(b"evil"),
        &[Errno::EBADF],
    );
    target.refuses("write", writable.write(b"evil"), &[Errno::EPERM]);
    target.refuses("pwrite", writable.write_at(b"evil", 5000), &[Errno::EPERM]);
    let evil = [IoSlice::new(b"e"), IoSlice::new(b"vil")];
    target.refuses("writev", writable.write_vectored(&evil), &[Errno::EPERM]);
    let pwritev = nix::sys::uio::pwritev(writable, &evil, 5000);
    target.refuses("pwritev", pwritev.map_err(Into::into), &[Errno::EPERM]);
    let vector = libc::iovec { iov_base: b"evil".as_ptr().cast_mut().cast(), iov_len: 4 };
    let fd = writable.as_raw_fd();
    let pwritev2 = raw!(libc::pwritev2(fd, &raw const vector, 1, 5000, libc::RWF_HIPRI));
    target.refuses("pwritev2", pwritev2, &[Errno::EPERM, Errno::EOPNOTSUPP]);
    let path = format!("/proc/self/fd/{fd}");
    let mut appending = OpenOptions::new().append(true).open(&path).unwrap();
    target.refuses("write with O_APPEND", appending.write(b"evil"), &[Errno::EPERM]);
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path);
    let direct = direct.and_then(|file| file.write_at(&[0; 4096], 0));
    target.refuses("write with O_DIRECT", direct, &[Errno::EPERM, Errno::EINVAL]);
}

#[test]
fn nothing_is_moved_into_the_file_from_another() {
    let target = Target::new();
    let writable = &target.writable;
    let (read_end, mut write_end) = {
        let (read_end, write_end) = pipe().unwrap();
        (read_end, File::from(write_end))
    };
    write_end.write_all(&[0xee; 4096]).unwrap();
    let (from, into) = (read_end.as_raw_fd(), writable.as_raw_fd());
    let mut offset = 4096;
    let spliced = raw!(libc::splice(from, null_mut(), into, &raw mut offset, 4096, 0));
    target.refuses("splice", spliced, &[Errno::EPERM]);

    let source = tempfile_with(&[0xee; 4096]);
    let sent = sendfile(writable, &source, Some(&mut 0), 4096);
    target.refuses("sendfile", sent.map_err(Into::into), &[Errno::EPERM]);
    let copied = copy_file_range(&source, Some(&mut 0), writable, Some(&mut 4096), 4096);
    let expected = [Errno::EPERM, Errno::EXDEV, Errno::EINVAL, Errno::EOPNOTSUPP];
    target.refuses("copy_file_range", copied.map_err(Into::into), &expected);
    let within = copy_file_range(&target.fd, Some(&mut 0), writable, Some(&mut 65536), 4096);
    target.refuses("copy_file_range within it", within.map_err(Into::into), &expected);
    const FICLONE: libc::c_ulong = 0x4004_9409;
    let cloned = raw!(libc::ioctl(into, FICLONE, source.as_raw_fd()));
    let expected = [Errno::EPERM, Errno::EXDEV, Errno::EOPNOTSUPP, Errno::ENOTTY, Errno::EINVAL];
    target.refuses("FICLONE", cloned, &expected);
}

/// A writable memory file with these bytes, to copy from.
fn tempfile_with(bytes: &[u8]) -> File {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut file = File::from(nix::sys::memfd::memfd_create("source", flags).unwrap());
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn the_file_keeps_its_size_and_its_pages() {
    let target = Target::new();
    let writable = &target.writable;
    let bytes = target.sealed.total_bytes();
    target.refuses("ftruncate to less", writable.set_len(4096), &[Errno::EPERM]);
    target.refuses("ftruncate to nothing", writable.set_len(0), &[Errno::EPERM]);
    target.refuses("ftruncate to more", writable.set_len(bytes + 4096), &[Errno::EPERM]);
    let path = format!("/proc/self/fd/{}", target.fd.as_raw_fd());
    let by_path = nix::unistd::truncate(path.as_str(), 4096);
    target.refuses("truncate by path", by_path.map_err(Into::into), &[Errno::EPERM]);
    let emptied = OpenOptions::new().write(true).truncate(true).open(&path);
    target.refuses("opening with O_TRUNC", emptied, &[Errno::EPERM]);

    let allocate = |flags| fallocate(writable, flags, 4096, 8192).map_err(io::Error::from);
    let unsupported = [Errno::EPERM, Errno::EOPNOTSUPP];
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let punched = allocate(FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep);
    target.refuses("punching a hole", punched, &[Errno::EPERM]);
    let zeroed = allocate(FallocateFlags::FALLOC_FL_ZERO_RANGE);
    target.refuses("zeroing a range", zeroed, &unsupported);
    let collapsed = allocate(FallocateFlags::FALLOC_FL_COLLAPSE_RANGE);
    target.refuses("collapsing a range", collapsed, &unsupported);
    let inserted = allocate(FallocateFlags::FALLOC_FL_INSERT_RANGE);
    target.refuses("inserting a range", inserted, &unsupported);
    let end = i64::try_from(bytes).unwrap();
    let grown = fallocate(writable, FallocateFlags::empty(), end, 4096).map_err(io::Error::from);
    target.refuses("allocating beyond the end", grown, &[Errno::EPERM]);
}

#[test]
fn no_seal_comes_off_or_on() {
    let target = Target::new();
    for file in [target.fd.as_fd(), target.writable.as_fd()] {
        for seals in [SealFlag::empty(), SealFlag::F_SEAL_WRITE, SealFlag::F_SEAL_FUTURE_WRITE] {
            let sealed = fcntl(file, FcntlArg::F_ADD_SEALS(seals)).map_err(io::Error::from);
            target.refuses("changing the seals", sealed, &[Errno::EPERM]);
        }
        let seals = fcntl(file, FcntlArg::F_GET_SEALS).unwrap();
        let all = SealFlag::F_SEAL_SEAL
            | SealFlag::F_SEAL_SHRINK
            | SealFlag::F_SEAL_GROW
            | SealFlag::F_SEAL_WRITE;
        assert!(SealFlag::from_bits_retain(seals).contains(all));
    }
}

#[test]
fn a_mapping_cannot_be_made_writable() {
    let target = Target::new();
    let page = target.page();
    let protected = raw!(libc::mprotect(page, 4096, READ_WRITE));
    target.refuses("mprotect", protected, &[Errno::EACCES]);

    // The same through a description that was opened for writing, where the kernel maps it at all.
    let bytes = target.bytes();
    let fd = target.writable.as_raw_fd();
    // SAFETY: a new read-only mapping wherever the kernel likes it.
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
fn advice_about_a_mapping_takes_no_bytes_away() {
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
fn the_kernel_writes_nothing_into_a_mapping_on_our_behalf() {
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
fn userfaultfd_does_not_take_a_mapping() {
    /// `struct uffdio_api`.
    #[repr(C)]
    struct Api([u64; 3]);
    /// `struct uffdio_register`.
    #[repr(C)]
    struct Register([u64; 4]);
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;

    let target = Target::new();
    let fd = raw!(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1)).unwrap();
    let fd = i32::try_from(fd).unwrap();
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

#[test]
fn asynchronous_writes_are_refused_too() {
    let target = Target::new();
    let mut context: libc::c_ulong = 0;
    raw!(libc::syscall(libc::SYS_io_setup, 1, &raw mut context)).unwrap();
    let evil = *b"evil";
    // `struct iocb`: data, key, opcode 1 (pwrite) and priority, descriptor, buffer, count, offset.
    let fd = u64::try_from(target.writable.as_raw_fd()).unwrap();
    let block: [u64; 8] =
        [0, 0, (fd << 32) | 1, u64::try_from(evil.as_ptr().addr()).unwrap(), 4, 4096, 0, 0];
    let mut blocks = [&raw const block];
    let submitted = raw!(libc::syscall(libc::SYS_io_submit, context, 1, blocks.as_mut_ptr()));
    assert_eq!(submitted.unwrap(), 1);
    // `struct io_event`: data, object, result, second result.
    let mut event = [0_i64; 4];
    let done = raw!(libc::syscall(
        libc::SYS_io_getevents,
        context,
        1,
        1,
        &raw mut event,
        null_mut::<libc::timespec>()
    ));
    assert_eq!(done.unwrap(), 1);
    assert_eq!(event[2], -i64::from(libc::EPERM));
    target.check("an asynchronous write");
    raw!(libc::syscall(libc::SYS_io_destroy, context)).unwrap();
}

#[test]
fn another_process_cannot_write_to_it_either() {
    let _alone = no_other_forks();
    let target = Target::new();
    let at = addresses(&target.mapped).start + (1 << 20);
    let (node, fd) = (getpid(), target.fd.as_raw_fd());
    in_child(|| {
        let mut evil = *b"evil";
        let near = libc::iovec { iov_base: evil.as_mut_ptr().cast(), iov_len: 4 };
        let far = libc::iovec { iov_base: std::ptr::without_provenance_mut(at), iov_len: 4 };
        let pid = node.as_raw();
        let written = raw!(libc::process_vm_writev(pid, &raw const near, 1, &raw const far, 1, 0));
        let expected = [Errno::EFAULT, Errno::EPERM];
        target.refuses("process_vm_writev", written, &expected);
        let memory = OpenOptions::new().write(true).open(format!("/proc/{node}/mem"));
        let written = memory.and_then(|memory| memory.write_at(b"evil", at.try_into().unwrap()));
        let expected = [Errno::EIO, Errno::EFAULT, Errno::EACCES, Errno::EPERM];
        target.refuses("/proc/PID/mem", written, &expected);
        let path = format!("/proc/{node}/fd/{fd}");
        let file = OpenOptions::new().write(true).open(&path);
        let written = file.and_then(|file| file.write_at(b"evil", 4096));
        target.refuses("/proc/PID/fd", written, &[Errno::EPERM, Errno::EACCES]);
        let emptied = OpenOptions::new().write(true).truncate(true).open(&path);
        target.refuses("/proc/PID/fd with O_TRUNC", emptied, &[Errno::EPERM, Errno::EACCES]);
    });
    target.check("another process");
}

#[test]
fn a_debugger_cannot_write_to_it_through_a_reader() {
    let _alone = no_other_forks();
    let target = Target::new();
    let reader = child(|| {
        // SAFETY: stops this process for its tracer.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
    });
    waitpid(reader, None).unwrap();
    let pid = reader.as_raw();
    let poked = raw!(libc::ptrace(libc::PTRACE_POKEDATA, pid, target.page(), 0x6c69_7665_u64));
    target.refuses("PTRACE_POKEDATA", poked, &[Errno::EIO, Errno::EFAULT]);
    raw!(libc::ptrace(libc::PTRACE_CONT, pid, 0, 0)).unwrap();
    waitpid(reader, None).unwrap();
}

#[test]
fn another_user_cannot_open_it_for_writing_and_root_gains_nothing_by_it() {
    let _alone = no_other_forks();
    let target = Target::new();
    let path = format!("/proc/self/fd/{}", target.fd.as_raw_fd());
    in_child(|| {
        if Uid::effective().is_root() {
            let nobody = (Uid::from_raw(65534), Gid::from_raw(65534));
            setgroups(&[]).unwrap();
            setresgid(nobody.1, nobody.1, nobody.1).unwrap();
            setresuid(nobody.0, nobody.0, nobody.0).unwrap();
            // A process that changed its user may not look at its own descriptors by default.
            assert_eq!(raw!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)).unwrap(), 0);
            let opened = OpenOptions::new().write(true).open(&path);
            assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EACCES));
            let changed = fchmod(&target.fd, Mode::from_bits_retain(0o666));
            assert_eq!(changed.unwrap_err(), Errno::EPERM);
        }
        let shared = map(&target, READ_WRITE, libc::MAP_SHARED, &target.fd);
        assert_eq!(shared.unwrap_err().raw_os_error(), Some(libc::EACCES));
    });
    target.check("another user");

    // Even with the mode opened wide by its owner, the seals hold.
    fchmod(&target.fd, Mode::from_bits_retain(0o666)).unwrap();
    in_child(|| {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let shared = map(&target, READ_WRITE, libc::MAP_SHARED, &file);
        target.refuses("a writable map after fchmod", shared, &[Errno::EPERM]);
        target.refuses("a write after fchmod", file.write_at(b"evil", 0), &[Errno::EPERM]);
        target.refuses("a truncation after fchmod", file.set_len(0), &[Errno::EPERM]);
    });
    target.check("a file mode that lets everybody write");
}
