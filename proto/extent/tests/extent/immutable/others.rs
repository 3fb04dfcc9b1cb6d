//! Attacks from another process, and as another user.

#![expect(unsafe_code, reason = "attacks are raw system calls")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, getpid, setgroups, setresgid, setresuid};

use super::{READ_WRITE, Target, map, raw};
use crate::support::{child, handed_out, in_child, no_other_forks, sealed};

#[test]
fn another_process_cannot_write_to_it_either() {
    let _alone = no_other_forks();
    let target = Target::new();
    let at = target.mapped.addresses().start + (1 << 20);
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

/// Gives up root for good, in a child.
fn become_nobody() {
    let nobody = (Uid::from_raw(65534), Gid::from_raw(65534));
    setgroups(&[]).unwrap();
    setresgid(nobody.1, nobody.1, nobody.1).unwrap();
    setresuid(nobody.0, nobody.0, nobody.0).unwrap();
    // By default a process that changed its user may not look at its own descriptors.
    assert_eq!(raw!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)).unwrap(), 0);
}

#[test]
fn other_user_cannot_open_for_writing_and_root_cannot_write() {
    let _alone = no_other_forks();
    let target = Target::new();
    let untouched = sealed();
    let fd = handed_out(&untouched);
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    in_child(|| {
        if Uid::effective().is_root() {
            become_nobody();
            let opened = OpenOptions::new().write(true).open(&path);
            assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EACCES));
            let changed = fchmod(&fd, Mode::from_bits_retain(0o666));
            assert_eq!(changed.unwrap_err(), Errno::EPERM);
        }
        let shared = map(&target, READ_WRITE, libc::MAP_SHARED, &fd);
        assert_eq!(shared.unwrap_err().raw_os_error(), Some(libc::EACCES));
    });
    untouched.verify().unwrap();

    // If the owner made the mode world-writable, the seals still hold.
    let path = format!("/proc/self/fd/{}", target.fd.as_raw_fd());
    in_child(|| {
        if Uid::effective().is_root() {
            become_nobody();
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let shared = map(&target, READ_WRITE, libc::MAP_SHARED, &file);
        target.refuses("a writable map after fchmod", shared, &[Errno::EPERM]);
        target.refuses("a write after fchmod", file.write_at(b"evil", 0), &[Errno::EPERM]);
        target.refuses("a truncation after fchmod", file.set_len(0), &[Errno::EPERM]);
    });
    target.check("a world-writable file mode");
}
