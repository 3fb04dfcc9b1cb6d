//! Finds out from the kernel which pages of a private mapping were written to.
//!
//! A page that was never written to belongs to the file. A write gives the process its own copy,
//! which is anonymous memory. `/proc/self/pagemap` tells them apart with eight bytes for each page.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::fork_count;

/// Bytes of a page, as pagemap counts.
const PAGE_BYTES: usize = 4096;

/// Bits of an entry: the page is in memory; it is swapped out; it is a file's (or shared memory's).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// Entries read at a time.
const ENTRIES: usize = 512;

/// Returns whether a page of the private mapping at `addresses` was written to. A page of the file
/// that is swapped out or was never faulted in has no entry, which is no sign of a write.
///
/// # Errors
/// If the kernel does not tell.
pub(crate) fn is_written(addresses: &Range<usize>) -> io::Result<bool> {
    with_pagemap(|pagemap| {
        let mut buffer = [0; ENTRIES * 8];
        let (mut page, end) = (addresses.start / PAGE_BYTES, addresses.end.div_ceil(PAGE_BYTES));
        while page < end {
            let count = (end - page).min(ENTRIES);
            let entries = &mut buffer[..count * 8];
            pagemap.read_exact_at(entries, page as u64 * 8)?;
            let entries = entries.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            if entries.into_iter().any(is_a_copy) {
                return Ok(true);
            }
            page += count;
        }
        Ok(false)
    })
}

fn is_a_copy(entry: u64) -> bool {
    entry & SWAPPED != 0 || (entry & PRESENT != 0 && entry & OF_A_FILE == 0)
}

/// Calls `read` with this process's pagemap. An open pagemap describes the process that opened it.
/// The first process keeps its file open; forked children open theirs at each call.
fn with_pagemap<T>(read: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    static KEPT: OnceLock<Option<(u32, File)>> = OnceLock::new();
    let open = || File::open("/proc/self/pagemap");
    let kept = KEPT.get_or_init(|| open().ok().map(|file| (fork_count(), file)));
    match kept {
        Some((process, file)) if *process == fork_count() => read(file),
        _ => read(&open()?),
    }
}
