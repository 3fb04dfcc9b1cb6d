//! Copying many rows: each region is looked up once, and memory is asked for before it is needed.
//!
//! A row of a batch is a few dozen to a few hundred nanoseconds of copying behind one wait for memory
//! that nobody could foresee but the list of rows. So rows are copied in the list's order, with the
//! first lines of a row, and its checksum, asked for some rows ahead.
//!
//! Thread rule: plain values over a mapped extent. Non-goals: which extents (the caller finds them,
//! each once); telling where a damaged row can be had instead.

use std::ops::Range;

use crate::CorruptRow;
use crate::crc::crc32c;
use crate::kernel::{copy_hashed, prefetch, stream_hashed};
use crate::layout::{Placed, index, indices};

/// How many rows ahead of the copy a row's memory is asked for.
const ROWS_AHEAD: usize = 8;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCopy {
    /// Index into the sources of the call.
    pub source: usize,
    /// The row (of [`Region::Blocks`](crate::Region::Blocks): the block).
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
        self.copy_verified_by(row, target, copy_hashed)
    }

    /// As [`RowSource::copy_verified`], with a way to copy and hash.
    fn copy_verified_by(
        &self,
        row: u64,
        target: &mut [u8],
        copy: impl Fn(&[u8], &mut [u8]) -> u32,
    ) -> Result<(), CorruptRow> {
        let source = self.bytes(row);
        assert_eq!(source.len(), target.len(), "the target is as long as the row");
        let intact = if self.crcs.is_empty() {
            // Rows without bytes have no units, and nothing that could be wrong.
            true
        } else if self.rows_per_unit > 1 {
            // The check leaves the unit in the cache, and the copy comes from there.
            target.copy_from_slice(source);
            self.unit_is_intact(self.unit_of(row)) && *target == *source
        } else {
            copy(source, target) == self.stored(row)
        };
        if intact { Ok(()) } else { Err(CorruptRow { region: self.region, row }) }
    }

    /// Has the memory begin to bring in a row and its checksum.
    fn prefetch(&self, row: u64) {
        prefetch(self.bytes(row));
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
/// `damaged` is in place and as it was filled. `damaged` is told in the order of `rows`, and the bytes
/// at those places are not to be used.
///
/// A short row is checked in `out` after it was copied. A long one of a large batch may be checked
/// where it lies while it is copied; the file is sealed, so both are the same bytes.
///
/// # Panics
/// If a source, a row or a place does not exist.
pub fn copy_rows_verified(
    sources: &[RowSource<'_>],
    rows: impl Iterator<Item = RowCopy> + Clone,
    out: &mut [u8],
    mut damaged: impl FnMut(RowCopy),
) {
    let batch_is_large = out.len() >= STREAMED_BATCH_BYTES_MIN;
    for_each_ahead(sources, rows, out, |source, wanted, target| {
        let copied = if batch_is_large && target.len() >= STREAMED_ROW_BYTES_MIN {
            source.copy_verified_by(wanted.row, target, stream_hashed)
        } else {
            source.copy_verified(wanted.row, target)
        };
        if copied.is_err() {
            damaged(wanted);
        }
    });
}

/// Copies rows to their places in `out`, unchecked: for whoever sends the checksums along.
///
/// # Panics
/// As [`copy_rows_verified`].
pub fn copy_rows(
    sources: &[RowSource<'_>],
    rows: impl Iterator<Item = RowCopy> + Clone,
    out: &mut [u8],
) {
    for_each_ahead(sources, rows, out, |source, wanted, target| {
        target.copy_from_slice(source.bytes(wanted.row));
    });
}

/// Calls `copy` for each row with the place it goes to, and asks for the memory of later ones.
fn for_each_ahead<'a>(
    sources: &[RowSource<'a>],
    rows: impl Iterator<Item = RowCopy> + Clone,
    out: &mut [u8],
    mut copy: impl FnMut(&RowSource<'a>, RowCopy, &mut [u8]),
) {
    let mut ahead = rows.clone();
    let ask_for = |wanted: RowCopy| sources[wanted.source].prefetch(wanted.row);
    ahead.by_ref().take(ROWS_AHEAD).for_each(ask_for);
    for wanted in rows {
        ahead.next().map(ask_for);
        let source = &sources[wanted.source];
        let bytes = source.bytes(wanted.row).len();
        copy(source, wanted, &mut out[wanted.at..][..bytes]);
    }
}
