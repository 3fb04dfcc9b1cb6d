//! Copying many rows: each region is looked up once, and memory is asked for before it is needed.
//!
//! A row of a batch is a few dozen to a few hundred nanoseconds of copying behind one wait for memory
//! that nobody could foresee but the list of rows. So rows are copied in the list's order, a few at a
//! time, while the memory of the next few is on its way ([`blocks`]).
//!
//! Thread rule: plain values over a mapped extent. Non-goals: which extents (the caller finds them,
//! each once); telling where a damaged row can be had instead.

use std::ops::Range;

use crate::CorruptRow;
use crate::crc::crc32c;
use crate::kernel::{Ahead, copy, copy_hashed, hashes_on_the_way, prefetch, stream_hashed};
use crate::layout::{Placed, index, indices};

mod blocks;

use blocks::for_each_block;

/// Rows up to this length that can't be hashed on the way are checked when all of their block are
/// copied, which is still in the first-level cache then: a copy that is read at once has not reached
/// the cache yet.
const TOGETHER_ROW_BYTES_MAX: usize = 1 << 10;

/// Rows of this length and more, in batches of [`STREAMED_BATCH_BYTES_MIN`] and more, are copied past
/// the cache. Shorter ones gain nothing by it.
const STREAMED_ROW_BYTES_MIN: usize = 32 << 10;

/// A batch as large as a core's share of a large last-level cache will not be read from there.
const STREAMED_BATCH_BYTES_MIN: usize = 8 << 20;

/// The rows of one region of an extent, and their checksums.
///
/// Methods taking a row panic if the region has none of that index.
#[derive(Clone, Copy, Debug)]
pub struct RowSource<'a> {
    region: usize,
    placed: &'a Placed,
    rows: u64,
    rows_per_unit: u64,
    bytes: &'a [u8],
    crcs: &'a [[u8; 4]],
}

/// One row of a batch: where it is, and where it goes.
#[derive(Clone, Copy, Debug)]
pub struct RowCopy<'a> {
    /// The rows that it is one of.
    pub source: &'a RowSource<'a>,
    /// Which of them (of [`Region::Blocks`](crate::Region::Blocks): the block).
    pub row: u64,
    /// Where in the target its first byte goes.
    pub at: usize,
}

impl<'a> RowSource<'a> {
    pub(crate) fn new(
        region: usize,
        placed: &'a Placed,
        bytes: &'a [u8],
        crcs: &'a [[u8; 4]],
    ) -> Self {
        let (rows, rows_per_unit) = (placed.region.rows(), placed.rows_per_unit());
        Self { region, placed, rows, rows_per_unit, bytes, crcs }
    }

    /// The bytes of a row.
    #[must_use]
    pub fn bytes(&self, row: u64) -> &'a [u8] {
        self.slice(&self.placed.row_range(row))
    }

    /// The CRC32C to send along with a row. The stored one where the row has its own; where short
    /// rows share a checksum, it is computed after the shared one was checked, and if that check
    /// fails the answer is a value these bytes do not have, so that the receiver refuses them.
    #[must_use]
    pub fn crc(&self, row: u64) -> u32 {
        if self.rows_per_unit == 1 {
            assert!(row < self.rows, "row {row} of {} rows", self.rows);
            return self.stored(row);
        }
        let crc = crc32c(self.bytes(row));
        if self.verify(row) { crc } else { !crc }
    }

    /// Whether each row has a checksum of its own, so that [`RowSource::crc`] reads none of its bytes.
    #[must_use]
    pub fn has_own_crcs(&self) -> bool {
        self.rows_per_unit == 1
    }

    /// Whether a row still has the checksum it was filled with.
    #[must_use]
    pub fn verify(&self, row: u64) -> bool {
        assert!(row < self.rows, "row {row} of {} rows", self.rows);
        self.unit_is_intact(self.unit_of(row))
    }

    /// The first row of the first checksum unit that is not as it was filled.
    pub(crate) fn find_corrupt(&self) -> Option<u64> {
        let unit = (0..self.crcs.len() as u64).find(|&unit| !self.unit_is_intact(unit));
        unit.map(|unit| unit * self.rows_per_unit)
    }

    /// Copies a row to `target` and checks what was copied while it is still in the cache.
    pub(crate) fn copy_verified(&self, row: u64, target: &mut [u8]) -> Result<(), CorruptRow> {
        let bytes = self.bytes(row);
        assert_eq!(bytes.len(), target.len(), "the target is as long as the row");
        let copy = |from: &[u8], to: &mut [u8]| copy_hashed(from, to, Ahead::none());
        let intact = self.copy_intact(row, bytes, target, copy);
        if intact { Ok(()) } else { Err(CorruptRow { region: self.region, row }) }
    }

    /// Copies the bytes of a row by a function that hashes them, and says whether the copy is as the row was filled.
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

    /// Whether these bytes, copied from a row, are as the row was filled.
    fn is_intact_copy(&self, row: u64, copy: &[u8]) -> bool {
        if self.rows_per_unit == 1 {
            return crc32c(copy) == self.stored(row);
        }
        // The shared checksum speaks of the row where it lies, and that of the copy.
        self.unit_is_intact(self.unit_of(row)) && *copy == *self.bytes(row)
    }

    /// Has the memory begin to bring in the checksum of a row.
    #[inline]
    fn prefetch_crc(&self, row: u64) {
        if let Some(crc) = self.crcs.get(index(self.unit_of(row))) {
            prefetch(crc);
        }
    }

    /// Without a division where there is nothing to divide: it would cost as much as the rest.
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

/// Copies rows to their places in `out`, each compared with its checksum: what is not reported to
/// `damaged` is in place and as it was filled. The bytes at the places that are reported are not to be
/// used.
///
/// A row is checked in `out` after it was copied, or in the registers that it is copied through. A
/// long one of a large batch may be checked where it lies while it is copied; the file is sealed, so
/// both are the same bytes.
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

/// Copies rows to their places in `out`, unchecked: for whoever sends the checksums along.
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
