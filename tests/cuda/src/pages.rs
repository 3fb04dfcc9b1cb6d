//! Pages: memory mapped twice, bytes of this process by system call, and page permissions.
//!
//! A [`Twin`] is an anonymous file with two mappings. The program sees the view; the view of device
//! memory has no rights. Stream threads use the inner mapping. While a copy reads page-locked
//! memory, the view of the whole allocation is read-only, so a host write dies at that instruction.
//! A program that fills one buffer while another is copied must therefore allocate them one by one.
//! A system call that writes there, such as `read`, fails with `EFAULT`.
//!
//! Memory of the program is read and written by `process_vm_readv` and `process_vm_writev` on this
//! process. An unmapped page is therefore an error and no crash.
//!
//! Thread rule: any thread may copy. A twin guards its count of readers by a mutex of its own.
//! Non-goals: deciding which copies are ordered.

#![expect(unsafe_code, reason = "maps memory and copies bytes by address")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE, c_int, c_void};

/// Bytes of a page.
const PAGE: usize = 4096;
const READ_WRITE: c_int = PROT_READ | PROT_WRITE;

/// An anonymous file that is mapped as a view for the program and once more for stream threads.
#[derive(Debug)]
pub(crate) struct Twin {
    view: usize,
    inner: usize,
    bytes: usize,
    /// Unfinished copies that read this memory.
    readers: Mutex<usize>,
}

impl Twin {
    /// Maps memory with a view without rights.
    pub(crate) fn device(bytes: usize) -> io::Result<Self> {
        Self::new(bytes, PROT_NONE)
    }

    /// Maps memory with a view that the program reads and writes.
    pub(crate) fn host(bytes: usize) -> io::Result<Self> {
        Self::new(bytes, READ_WRITE)
    }

    fn new(bytes: usize, rights: c_int) -> io::Result<Self> {
        let length = bytes.next_multiple_of(PAGE);
        // SAFETY: the name is a C string, and the flags need no other arguments.
        let file = unsafe { libc::memfd_create(c"standin".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = libc::off_t::try_from(length).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let view = map(&file, length, rights)?;
        let inner = map(&file, length, READ_WRITE).inspect_err(|_| unmap(view, length))?;
        Ok(Self { view, inner, bytes, readers: Mutex::new(0) })
    }

    /// The address that the program sees.
    pub(crate) fn address(&self) -> u64 {
        self.view as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the view read-only until [`Self::release`].
    pub(crate) fn hold(&self) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        *readers += 1;
        if *readers == 1 {
            self.protect(PROT_READ);
        }
    }

    /// Ends one [`Self::hold`].
    pub(crate) fn release(&self) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        *readers -= 1;
        if *readers == 0 {
            self.protect(READ_WRITE);
        }
    }

    fn protect(&self, rights: c_int) {
        // SAFETY: this twin's view is mapped until drop, and it has so many bytes.
        let done = unsafe { libc::mprotect(self.view as *mut c_void, self.bytes, rights) };
        assert_eq!(done, 0, "mprotect of page-locked memory: {}", io::Error::last_os_error());
    }

    /// Address of `range` in the inner mapping.
    fn inner(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "a copy leaves its allocation");
        (self.inner + offset) as *mut u8
    }

    /// Copies from `source` at `offset` to `target` at `to`.
    pub(crate) fn copy((source, offset): (&Twin, usize), (target, to): (&Twin, usize), n: usize) {
        // SAFETY: both ranges lie in mappings that live as long as their twins. The ranges may
        // overlap, which `copy` allows. Racing copies are the mistake that this crate reports.
        unsafe { std::ptr::copy(source.inner(offset, n), target.inner(to, n), n) };
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.inner(offset, bytes.len());
        // SAFETY: the target lies in a mapping that lives as long as the twin. No slice refers to
        // the mapping, so it cannot overlap `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub(crate) fn fill(&self, offset: usize, byte: u8, bytes: usize) {
        // SAFETY: the target lies in a mapping that lives as long as the twin.
        unsafe { std::ptr::write_bytes(self.inner(offset, bytes), byte, bytes) };
    }

    /// Reads memory of the program at `address` into this memory.
    pub(crate) fn read_from(&self, offset: usize, address: u64, bytes: usize) -> io::Result<()> {
        transfer(self.inner(offset, bytes), address, bytes, libc::process_vm_readv)
    }

    /// Writes this memory into memory of the program at `address`.
    pub(crate) fn write_to(&self, offset: usize, address: u64, bytes: usize) -> io::Result<()> {
        transfer(self.inner(offset, bytes), address, bytes, libc::process_vm_writev)
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        let length = self.bytes.next_multiple_of(PAGE);
        unmap(self.view, length);
        unmap(self.inner, length);
    }
}

fn map(file: &OwnedFd, length: usize, rights: c_int) -> io::Result<usize> {
    let (flags, file) = (libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice replaces no other mapping.
    let at = unsafe { libc::mmap(null_mut(), length, rights, flags, file, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
}

fn unmap(address: usize, length: usize) {
    // SAFETY: the twin that calls this owns the mapping and uses it no more.
    unsafe { libc::munmap(address as *mut c_void, length) };
}

/// The signature that `process_vm_readv` and `process_vm_writev` share.
type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// Moves `bytes` between memory of the stand-in and memory of the program.
fn transfer(inner: *mut u8, address: u64, bytes: usize, call: Transfer) -> io::Result<()> {
    let process = std::process::id().cast_signed();
    let theirs = usize::try_from(address).map_err(io::Error::other)? as *mut c_void;
    let mut done = 0;
    while done < bytes {
        let rest = bytes - done;
        let own = libc::iovec { iov_base: inner.wrapping_add(done).cast(), iov_len: rest };
        let theirs = libc::iovec { iov_base: theirs.wrapping_byte_add(done), iov_len: rest };
        // SAFETY: `own` lies in memory of the stand-in that the caller keeps alive. The kernel
        // checks `theirs` and returns an error for pages that are not mapped.
        let moved = unsafe { call(process, &raw const own, 1, &raw const theirs, 1, 0) };
        match usize::try_from(moved) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => done += moved,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// Reads memory of the program.
pub(crate) fn read(address: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut taken = vec![0; bytes];
    transfer(taken.as_mut_ptr(), address, bytes, libc::process_vm_readv)?;
    Ok(taken)
}

/// Writes memory of the program.
pub(crate) fn write(address: u64, bytes: &mut [u8]) -> io::Result<()> {
    transfer(bytes.as_mut_ptr(), address, bytes.len(), libc::process_vm_writev)
}

/// Rights of a range of the program's memory: those that all its pages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    NotMapped,
    ReadOnly,
    Writable,
}

/// Asks `/proc/self/maps` for the rights of a range.
pub(crate) fn rights(range: &Range<u64>) -> io::Result<Rights> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut rights = Rights::Writable;
    let mut at = range.start;
    for (mapped, flags) in maps.lines().filter_map(parsed) {
        if mapped.contains(&at) && at < range.end {
            if !flags.starts_with('r') {
                return Ok(Rights::NotMapped);
            }
            if !flags.starts_with("rw") {
                rights = Rights::ReadOnly;
            }
            at = mapped.end;
        }
    }
    Ok(if at < range.end { Rights::NotMapped } else { rights })
}

/// The range and the permissions of a line of `/proc/self/maps`.
fn parsed(line: &str) -> Option<(Range<u64>, &str)> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, words.next()?))
}
