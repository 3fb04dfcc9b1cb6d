//! The inner loops of copying rows: prefetch memory, copy past the cache, hash during the copy.
//!
//! The choices below were measured against plain copies of the same rows.
//!
//! * Where the processor can, rows are hashed in the registers they are copied through ([`fused`]).
//!   Long rows of batches that no cache would hold then go past the cache, by stores that do not
//!   read the target first.
//! * Elsewhere, long rows of such batches are hashed a page at a time in the source. That loads the
//!   page into the first-level cache, and the copy from there goes past the cache. Shorter rows are
//!   hashed in the target after the copy.
//! * While a row is copied, memory needed later is prefetched in step with the copy ([`Ahead`]).
//!
//! Thread rule: plain functions. Non-goals: choosing rows (see `rows`) and checksums (see `crc`).

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "prefetch, vectors and non-temporal stores; each block says what holds it up"
    )
)]

#[cfg(target_arch = "x86_64")]
mod fused;

use crate::crc::Crc32c;

/// Bytes that are hashed and then copied: a page, where hardware prefetching stops, and small
/// enough to stay in the first-level cache.
const PIECE_BYTES: usize = 4096;

/// Bytes copied, and prefetched, at a time.
const STEP_BYTES: usize = 256;

/// A copy that stays in the cache is hashed in pieces of this size.
const CACHED_PIECE_BYTES: usize = 16 * 1024;

/// How far ahead of its copy memory is prefetched. A line arrives in about the time that copying
/// this much takes. Hardware prefetching stops at each page's end and resumes some lines into the
/// next.
pub(crate) const AHEAD_BYTES: usize = PIECE_BYTES;

/// The memory to prefetch while a row is copied, in each step as many bytes as the step copies.
/// Prefetched all at once, the lines would wait for each other, and the copy for all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<'a> {
    /// The rest of the copied row.
    own: &'a [u8],
    /// The beginning of a later row, prefetched after `own`.
    later: &'a [u8],
}

impl<'a> Ahead<'a> {
    /// Prefetches for the copy of `row`: first the bytes of `row` that lie [`AHEAD_BYTES`] or more
    /// after its start, then up to as many bytes of `later`.
    #[inline]
    pub(crate) fn of(row: &'a [u8], later: &'a [u8]) -> Self {
        let own = row.get(AHEAD_BYTES..).unwrap_or_default();
        Self { own, later: &later[..later.len().min(AHEAD_BYTES)] }
    }

    pub(crate) fn none() -> Self {
        Self { own: &[], later: &[] }
    }

    /// Prefetches the bytes that belong to the `bytes` copied from `at` on.
    #[inline]
    fn ask(&self, at: usize, bytes: usize) {
        let (from, at) = match at.checked_sub(self.own.len()) {
            Some(after) => (self.later, after),
            None => (self.own, at),
        };
        if let Some(wanted) = from.get(at..) {
            prefetch(&wanted[..bytes.min(wanted.len())]);
        }
    }

    /// Returns the prefetches that belong to the copy after the first `bytes`.
    fn skip(self, bytes: usize) -> Self {
        let after = bytes.saturating_sub(self.own.len());
        Self {
            own: self.own.get(bytes..).unwrap_or_default(),
            later: self.later.get(after..).unwrap_or_default(),
        }
    }
}

/// Bytes that memory moves at once.
const LINE_BYTES: usize = 64;

/// Prefetches all of `bytes`.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    for line in bytes.iter().step_by(LINE_BYTES) {
        prefetch_line(line);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(byte: &u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program could see and faults at no address. It is
    // part of SSE, which every x86-64 has.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line(_: &u8) {}

/// Returns whether rows of this length are hashed during the copy rather than after it.
#[inline]
pub(crate) fn hashes_on_the_way(bytes: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let on_the_way = fused::is_for(bytes);
    #[cfg(not(target_arch = "x86_64"))]
    let on_the_way = false;
    on_the_way
}

#[inline]
pub(crate) fn copy(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) {
    let starts = (0..).step_by(STEP_BYTES);
    for ((at, from), to) in starts.zip(source.chunks(STEP_BYTES)).zip(target.chunks_mut(STEP_BYTES))
    {
        ahead.ask(at, from.len());
        to.copy_from_slice(from);
    }
}

/// Copies, and returns the checksum of the copied bytes, taken in the registers or read from the
/// target.
#[inline]
pub(crate) fn copy_hashed(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if fused::is_for(source.len()) {
        return fused::copy_hashed(source, target, ahead);
    }
    copy_then_hash(source, target, ahead)
}

fn copy_then_hash(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    let mut crc = Crc32c::new();
    let (starts, targets) =
        ((0..).step_by(CACHED_PIECE_BYTES), target.chunks_mut(CACHED_PIECE_BYTES));
    for ((at, from), to) in starts.zip(source.chunks(CACHED_PIECE_BYTES)).zip(targets) {
        copy(from, to, ahead.skip(at));
        crc.update(to);
    }
    crc.finish()
}

/// Copies past the cache, and returns the checksum of the copied bytes, taken in the registers or
/// read from the source.
#[inline]
pub(crate) fn stream_hashed(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if fused::streams(source.len()) {
        return fused::stream_hashed(source, target, ahead);
    }
    hash_then_stream(source, target, ahead)
}

/// Copies past the cache, a page at a time, and returns the checksum of the bytes, read from the
/// source.
///
/// The target cannot be read back: that would load it into the cache. The checksum holds for the
/// copy because both readings see the same bytes: the file is sealed, so no process can write to
/// it. The second reading finds the page in the first-level cache.
fn hash_then_stream(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    let mut crc = Crc32c::new();
    let starts = (0..).step_by(PIECE_BYTES);
    for ((at, from), to) in
        starts.zip(source.chunks(PIECE_BYTES)).zip(target.chunks_mut(PIECE_BYTES))
    {
        ahead.ask(at, from.len());
        crc.update(from);
        stream(from, to);
    }
    streamed();
    crc.finish()
}

#[cfg(target_arch = "x86_64")]
fn stream(source: &[u8], target: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let unaligned = target.as_ptr().align_offset(64).min(target.len());
    let (source_head, source) = source.split_at(unaligned);
    let (target_head, target) = target.split_at_mut(unaligned);
    target_head.copy_from_slice(source_head);
    let (from, source_tail) = source.as_chunks::<64>();
    let (to, target_tail) = target.as_chunks_mut::<64>();
    for (from, to) in from.iter().zip(to) {
        let (from, to) = (from.as_ptr().cast::<__m128i>(), to.as_mut_ptr().cast::<__m128i>());
        for quarter in 0..4 {
            // SAFETY: both are 64 bytes, four times 16; the head was cut so that targets lie on
            // multiples of 64; loads may lie anywhere; every x86-64 has SSE2. `streamed` runs
            // before any code reads the target.
            unsafe { _mm_stream_si128(to.add(quarter), _mm_loadu_si128(from.add(quarter))) }
        }
    }
    target_tail.copy_from_slice(source_tail);
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

/// Orders all streamed stores before anything this thread reads or writes next.
fn streamed() {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: a fence of SSE, which every x86-64 has.
        unsafe { std::arch::x86_64::_mm_sfence() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::crc32c;

    #[test]
    fn every_copy_routine_copies_exactly_and_returns_the_checksum() {
        let source: Vec<u8> = (0..70_000_u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
        let lengths = (0..1100).chain([4095, 4096, 4097, 8192, 16_384, 16_385, 65_000]);
        for bytes in lengths {
            for shift in [0, 1, 16, 63] {
                let from = &source[shift / 2..][..bytes];
                for copy in [copy_hashed, copy_then_hash, stream_hashed, hash_then_stream] {
                    let mut out = vec![0xee; shift + bytes + 64];
                    let crc = copy(from, &mut out[shift..][..bytes], Ahead::of(from, &source));
                    assert_eq!(crc, crc32c(from), "{bytes} bytes");
                    assert_eq!(&out[shift..][..bytes], from, "{bytes} bytes at {shift}");
                    let around = out[..shift].iter().chain(&out[shift + bytes..]);
                    assert!(around.into_iter().all(|&byte| byte == 0xee), "{bytes} at {shift}");
                }
            }
        }
    }
}
