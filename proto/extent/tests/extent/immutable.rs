//! Every known way to write to a published extent or to cut it short. The kernel must refuse each,
//! and the bytes are compared after each.
//!
//! The attacker has the read-only descriptor that a reader is given, and all it can make of it. It
//! owns the file, and is root where the tests run as root.

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

/// The target of an attack, and the state that must not change.
struct Target {
    sealed: Sealed,
    before: Vec<u8>,
    /// The descriptor a reader is handed.
    fd: OwnedFd,
    /// A writable description, which root can open.
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

    /// Returns all bytes as another reader would see them.
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

    /// Checks that the attack failed in one of the ways given, and changed nothing.
    fn refuses<T>(&self, attack: &str, outcome: io::Result<T>, with: &[Errno]) {
        let Err(error) = outcome else { panic!("{attack} was not refused") };
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        assert!(with.contains(&errno), "{attack} was refused with {errno}");
        self.check(attack);
    }

    /// Checks that the attack changed nothing, even if it succeeded.
    fn survives<T>(&self, attack: &str, _: io::Result<T>) {
        self.check(attack);
    }

    fn page(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.mapped.addresses().start + (1 << 20))
    }
}

/// Opens the file behind `fd` for writing. Its owner can, by changing its mode (which stays
/// changed).
fn reopened(fd: &OwnedFd) -> File {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    fchmod(fd, Mode::from_bits_retain(0o666)).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
}

/// Turns a raw system call's answer into a result.
macro_rules! raw {
    ($call:expr) => {{
        // SAFETY: the kernel checks the arguments; that is the test's subject. Memory named is
        // either a local of the caller or the extent's mapping, which the call must not change.
        let answer = unsafe { $call };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    }};
}

use raw;

/// Maps all of a file. Unmaps it again on success, because success is a failure here.
fn map(target: &Target, protection: i32, flags: i32, file: &impl AsRawFd) -> io::Result<()> {
    let bytes = target.bytes();
    // SAFETY: a new mapping at an address the kernel chooses, taken down again.
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

/// Makes a writable memory file with these bytes, to copy from.
fn tempfile_with(bytes: &[u8]) -> File {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut file = File::from(nix::sys::memfd::memfd_create("source", flags).unwrap());
    file.write_all(bytes).unwrap();
    file
}
