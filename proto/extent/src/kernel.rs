//! The inner loops of copying rows: bring memory in early, copy past the cache, hash on the way.
//!
//! What is best was measured against plain copies of the same rows. Rows are hashed on their way
//! through the registers ([`fused`]) where the processor can; those of many pages, in batches that no
//! cache would hold, go past the cache then, by stores that do not read the target first. Where it can't,
//! such rows are hashed a page at a time where they lie, which brings the page into the first-level
//! cache, and go from there to the target past the cache; shorter ones are hashed in the target after
//! they were copied. While a row is copied, memory that comes later is asked for in step with it
//! ([`Ahead`]).
//!
//! Thread rule: plain functions. Non-goals: which rows (see `rows`), which checksum (see `crc`).

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

/// Bytes that are hashed and then copied: a page, at whose end the memory's own prefetching stops,
/// small enough to be in the first-level cache still.
const PIECE_BYTES: usize = 4096;

/// Bytes that are copied, and asked for, at a time.
const STEP_BYTES: usize = 256;

/// A copy that stays in the cache is hashed in pieces of this size.
const CACHED_PIECE_BYTES: usize = 16 * 1024;

/// How far before its copy memory is asked for: as long as copying so much takes, a line is on its way. The memory's
/// own prefetching stops at the end of each page, and begins only some lines into the next.
pub(crate) const AHEAD_BYTES: usize = PIECE_BYTES;

/// What is asked for while a row is copied, as many bytes in each step as are copied in it: asked for at once, the
/// lines would wait for each other, and the copy for all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<'a> {
    /// The rest of the row that is copied,
    own: &'a [u8],
    /// and after it what a later row begins with.
    later: &'a [u8],
}

impl<'a> Ahead<'a> {
    /// Of a row, all of a later one, if it is short; else what comes far enough after the bytes that are copied, and
    /// in the end what the later one begins with.
    #[inline]
    pub(crate) fn of(row: &'a [u8], later: &'a [u8]) -> Self {
        let own = row.get(AHEAD_BYTES..).unwrap_or_default();
        Self { own, later: &later[..later.len().min(AHEAD_BYTES)] }
    }

    /// Nothing.
    pub(crate) fn none() -> Self {
        Self { own: &[], later: &[] }
    }

    /// What belongs to the `bytes` that are copied from `at` on.
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

    /// What belongs to the bytes that are copied after the first `bytes`.
    fn skip(self, bytes: usize) -> Self {
        let after = bytes.saturating_sub(self.own.len());
        Self {
            own: self.own.get(bytes..).unwrap_or_default(),
            later: self.later.get(after..).unwrap_or_default(),
        }
    }
}

/// What memory moves at once.
const LINE_BYTES: usize = 64;

/// Has the memory begin to bring in all of `bytes`.
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
    // SAFETY: a prefetch reads nothing that the program could see and faults at no address; SSE, which
    // it is part of, is there on every x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line(_: &u8) {}

/// Whether rows of this length are hashed while they are copied, and not after.
#[inline]
pub(crate) fn hashes_on_the_way(bytes: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let on_the_way = fused::is_for(bytes);
    #[cfg(not(target_arch = "x86_64"))]
    let on_the_way = false;
    on_the_way
}

/// Copies.
#[inline]
pub(crate) fn copy(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) {
    let starts = (0..).step_by(STEP_BYTES);
    for ((at, from), to) in starts.zip(source.chunks(STEP_BYTES)).zip(target.chunks_mut(STEP_BYTES))
    {
        ahead.ask(at, from.len());
        to.copy_from_slice(from);
    }
}

/// Copies, and returns the checksum of what was copied: of the registers it went through, or read
/// from the target.
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

/// Copies past the cache, and returns the checksum of what was copied: of the registers it went through,
/// or read from the source.
#[inline]
pub(crate) fn stream_hashed(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if fused::streams(source.len()) {
        return fused::stream_hashed(source, target, ahead);
    }
    hash_then_stream(source, target, ahead)
}

/// Copies past the cache, a page at a time, and returns the checksum of what was copied, read from the
/// source.
///
/// The target can't be read back without undoing what this is for. The checksum is that of the copy
/// because the source is the same at both readings: the file is sealed, so nobody can write to it,
/// and the second reading finds the page in the first-level cache, where the first one left it.
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
            // multiples of 64; loads may lie anywhere; SSE2 is there on every x86-64. `streamed`
            // comes before anybody looks at the target.
            unsafe { _mm_stream_si128(to.add(quarter), _mm_loadu_si128(from.add(quarter))) }
        }
    }
    target_tail.copy_from_slice(source_tail);
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

/// Orders all that was streamed before whatever this thread reads or writes next.
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
    fn all_ways_copy_every_byte_and_no_more_and_give_its_checksum() {
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
