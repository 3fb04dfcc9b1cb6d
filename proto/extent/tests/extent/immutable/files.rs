//! Attacks through a descriptor: mapping it, writing to it, changing its size, pages or seals.

#![expect(unsafe_code, reason = "attacks are raw system calls")]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::null_mut;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, copy_file_range, fallocate, fcntl};
use nix::sys::sendfile::sendfile;
use nix::unistd::pipe;

use super::{READ_WRITE, Target, map, raw, tempfile_with};

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
    target.refuses("a locked writable map", locked, &[Errno::EPERM, Errno::EAGAIN]);
    let stack = map(&target, READ_WRITE, libc::MAP_SHARED | libc::MAP_GROWSDOWN, writable);
    target.refuses("a writable map that grows", stack, &[Errno::EPERM, Errno::EINVAL]);
}

#[test]
fn write_calls_on_a_descriptor_are_refused() {
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
fn splice_and_sendfile_into_the_file_are_refused() {
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
fn seals_cannot_be_changed() {
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
fn asynchronous_writes_are_refused() {
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
