//! Copies many rows: looks up each region once and prefetches memory before it is needed.
//!
//! Copying a row of a batch takes a few dozen to a few hundred nanoseconds, after one wait for
//! memory. The processor cannot predict that access; only the list of rows tells it. So rows are
//! copied in the list's order, a few at a time, while the memory of the next few is being fetched
//! ([`blocks`]).
//!
//! Thread rule: plain values over a mapped extent. Non-goals: finding the extents (the caller looks
//! up each once), and finding another source for a damaged row.

mod blocks;
mod kernel;

use std::ops::Range;

use crate::CorruptRow;
use crate::crc::crc32c;
use crate::layout::{PlacedRegion, index, indices};
use blocks::for_each_block;
use kernel::{Ahead, copy, copy_hashed, hashes_on_the_way, prefetch, stream_hashed};

/// Rows up to this length that cannot be hashed during the copy are checked after their whole block
/// is copied. The block is in the first-level cache then, while a copy that is read back at once
/// has not reached the cache yet.
const TOGETHER_ROW_BYTES_MAX: usize = 1 << 10;

/// Rows of at least this length, in batches of at least [`STREAMED_BATCH_BYTES_MIN`], are copied
/// past the cache. Shorter rows gain nothing by it.
const STREAMED_ROW_BYTES_MIN: usize = 32 << 10;

/// A batch as large as a core's share of a large last-level cache will not be read from there.
const STREAMED_BATCH_BYTES_MIN: usize = 8 << 20;

/// The rows of one region of an extent, and their checksums.
///
/// Methods that take a row panic if the region has none of that index.
#[derive(Clone, Copy, Debug)]
pub struct RegionRows<'a> {
    region: usize,
    placed: &'a PlacedRegion,
    rows: u64,
    rows_per_unit: u64,
    bytes: &'a [u8],
    crcs: &'a [[u8; 4]],
}

/// One row of a batch: its source and its place in the batch.
#[derive(Clone, Copy, Debug)]
pub struct RowCopy<'a> {
    /// The region's rows.
    pub source: &'a RegionRows<'a>,
    /// Index of the row (of [`Region::Blocks`](crate::Region::Blocks): of the block).
    pub row: u64,
    /// Offset in the target of its first byte.
    pub at: usize,
}

impl<'a> RegionRows<'a> {
    pub(crate) fn new(
        region: usize,
        placed: &'a PlacedRegion,
        bytes: &'a [u8],
        crcs: &'a [[u8; 4]],
    ) -> Self {
        let (rows, rows_per_unit) = (placed.region.rows(), placed.rows_per_unit());
        Self { region, placed, rows, rows_per_unit, bytes, crcs }
    }

    /// Returns the bytes of a row.
    pub fn bytes(&self, row: u64) -> &'a [u8] {
        self.slice(&self.placed.row_range(row))
    }

    /// Returns the CRC32C to send along with a row. A row with its own checksum gives the stored
    /// value. For short rows that share a checksum, this computes the row's CRC and checks the
    /// shared one. If that check fails, it returns a value these bytes do not have, so that the
    /// receiver refuses them.
    pub fn crc(&self, row: u64) -> u32 {
        if self.rows_per_unit == 1 {
            assert!(row < self.rows, "row {row} of {} rows", self.rows);
            return self.stored(row);
        }
        let crc = crc32c(self.bytes(row));
        if self.verify(row) { crc } else { !crc }
    }

    /// Returns whether each row has its own checksum, so that [`RegionRows::crc`] reads no row
    /// bytes.
    pub fn has_own_crcs(&self) -> bool {
        self.rows_per_unit == 1
    }

    /// Returns whether a row still has the checksum it was filled with.
    pub fn verify(&self, row: u64) -> bool {
        assert!(row < self.rows, "row {row} of {} rows", self.rows);
        self.unit_is_intact(self.unit_of(row))
    }

    /// Returns the first row of the first damaged checksum unit.
    pub(crate) fn find_corrupt(&self) -> Option<u64> {
        let unit = (0..self.crcs.len() as u64).find(|&unit| !self.unit_is_intact(unit));
        unit.map(|unit| unit * self.rows_per_unit)
    }

    /// Copies a row to `target` and checks the copy while it is still in the cache.
    pub(crate) fn copy_verified(&self, row: u64, target: &mut [u8]) -> Result<(), CorruptRow> {
        let bytes = self.bytes(row);
        assert_eq!(bytes.len(), target.len(), "the target is as long as the row");
        let copy = |from: &[u8], to: &mut [u8]| copy_hashed(from, to, Ahead::none());
        let intact = self.copy_intact(row, bytes, target, copy);
        if intact { Ok(()) } else { Err(CorruptRow { region: self.region, row }) }
    }

    /// Copies the bytes of a row by a function that hashes them. Returns whether the copy is
    /// intact.
    #[inline]
    fn copy_intact(
        &self,
        row: u64,
        bytes: &[u8],
        target: &mut [u8],
        copy_hashed: impl Fn(&[u8], &mut [u8]) -> u32,
    ) -> bool {
        if self.rows_per_unit == 1 {
            return copy_hashed(bytes, target) == self.stored(row);
        }
        target.copy_from_slice(bytes);
        self.is_intact_copy(row, target)
    }

    /// Returns whether `copy`, copied from a row, has the bytes that the row was filled with.
    fn is_intact_copy(&self, row: u64, copy: &[u8]) -> bool {
        if self.rows_per_unit == 1 {
            return crc32c(copy) == self.stored(row);
        }
        // The shared checksum covers the source, so the copy must also equal the source.
        self.unit_is_intact(self.unit_of(row)) && *copy == *self.bytes(row)
    }

    #[inline]
    fn prefetch_crc(&self, row: u64) {
        if let Some(crc) = self.crcs.get(index(self.unit_of(row))) {
            prefetch(crc);
        }
    }

    /// Avoids the division where each row is a unit: it would cost as much as the rest.
    fn unit_of(&self, row: u64) -> u64 {
        if self.rows_per_unit == 1 { row } else { row / self.rows_per_unit }
    }

    fn slice(&self, range: &Range<u64>) -> &'a [u8] {
        &self.bytes[indices(range)]
    }

    fn stored(&self, unit: u64) -> u32 {
        u32::from_le_bytes(self.crcs[index(unit)])
    }

    fn unit_is_intact(&self, unit: u64) -> bool {
        self.crcs.is_empty()
            || crc32c(self.slice(&self.placed.unit_range(unit))) == self.stored(unit)
    }
}

/// Copies rows to their places in `out` and compares each with its checksum. Calls `damaged` for
/// each row that does not match; the bytes at its place must not be used.
///
/// A row is checked in `out` after it was copied, or in the registers during the copy. A long row
/// of a large batch may be checked at its source during the copy. The file is sealed, so both are
/// the same bytes.
///
/// # Panics
/// If a row or a place does not exist.
pub fn copy_rows_verified<'a>(
    rows: impl Iterator<Item = RowCopy<'a>>,
    out: &mut [u8],
    mut damaged: impl FnMut(RowCopy<'a>),
) {
    let batch_is_large = out.len() >= STREAMED_BATCH_BYTES_MIN;
    for_each_block(rows, |block| {
        for (found, ahead) in block.in_step() {
            let target = found.target(out);
            let intact = match target.len() {
                bytes if is_checked_together(bytes) => {
                    copy(found.bytes, target, ahead);
                    true
                }
                STREAMED_ROW_BYTES_MIN.. if batch_is_large => {
                    found.copy_intact(target, |from, to| stream_hashed(from, to, ahead))
                }
                _ => found.copy_intact(target, |from, to| copy_hashed(from, to, ahead)),
            };
            if !intact {
                damaged(found.wanted);
            }
        }
        for found in block.rows.iter().filter(|found| is_checked_together(found.bytes.len())) {
            let RowCopy { source, row, .. } = found.wanted;
            if !source.is_intact_copy(row, found.target(out)) {
                damaged(found.wanted);
            }
        }
    });
}

fn is_checked_together(bytes: usize) -> bool {
    bytes <= TOGETHER_ROW_BYTES_MAX && !hashes_on_the_way(bytes)
}

/// Copies rows to their places in `out`, unchecked, for a caller that sends the checksums along.
///
/// # Panics
/// As [`copy_rows_verified`].
pub fn copy_rows<'a>(rows: impl Iterator<Item = RowCopy<'a>>, out: &mut [u8]) {
    for_each_block(rows, |block| {
        for (found, ahead) in block.in_step() {
            copy(found.bytes, found.target(out), ahead);
        }
    });
}
