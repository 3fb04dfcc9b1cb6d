//! Helpers for tests and benchmarks of other crates, behind feature `testing`, which no product
//! build enables. An idle forked child tests leases; a mapped file is a baseline.

#![expect(unsafe_code, reason = "fork and the mapping of a file, which have no safe form")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// A file mapped read-only with all of its pages present, the baseline of benchmarks. Derefs to its
/// bytes.
#[derive(Debug)]
pub struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps a file that no process changes or truncates any more.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: benchmarks map only files that they wrote themselves, in a folder of their own.
        // No process writes to them or truncates them afterwards.
        let map = unsafe { memmap2::MmapOptions::new().populate().map(&file) }?;
        Ok(Self(map))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Forks a child that idles, with every descriptor and mapping of this process, until a signal or
/// `seconds` end it. Returns its process id; the caller must reap it.
///
/// # Errors
/// If the kernel gives no process.
pub fn fork_idle_child(seconds: u32) -> io::Result<i32> {
    // SAFETY: the child calls nothing but `alarm` and `pause`, both async-signal-safe, so it
    // touches no lock or allocator that another thread may have held at the fork.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: plain system calls without pointers.
            unsafe { libc::alarm(seconds) };
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        child => Ok(child),
    }
}
