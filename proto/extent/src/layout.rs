//! Computes where everything lies in an extent's file. Pure arithmetic, no memory.
//!
//! ```text
//! 0                header           see `header`; 64 bytes and 64 more per region
//! tables_offset    checksum tables  one u32 CRC32C per unit, all regions' tables back to back
//! region 0         page-aligned
//! region 1         page-aligned
//! ...              total_bytes is a multiple of the page, and the size of the file
//! ```
//!
//! The layout is a pure function of the list of regions. The header repeats it only for comparison:
//! the reader uses the offsets it computes, whatever a hostile file claims.

mod header;

pub(crate) use header::{FIXED_BYTES, FixedHeader, decode, encode};

use std::ops::Range;

use crate::ExtentError;

/// The most regions of one extent: bounds the header at 256 KiB.
pub const REGIONS_MAX: usize = 4096;

/// The most bytes of one extent, header and checksums included.
pub const EXTENT_BYTES_MAX: u64 = 64 << 30;

/// The most bytes hashed for one extent. Overlapping windows are hashed once per row, so a short
/// stride under a long row costs time rather than memory. This limit is about ten seconds.
const HASHED_BYTES_MAX: u64 = 1 << 40;

/// Every mapped area begins on a page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Bytes of a checksum unit in a region without rows, and the most that short rows share.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Rows shorter than this share a checksum: 4 bytes for each row would be too much.
const ROW_BYTES_OWN_CRC: u64 = 64;

/// The contents of one region of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// `rows` rows of `row_bytes` each, row r at byte r * `stride_bytes`. A stride below the row's
    /// bytes makes windows that overlap; a stride above it leaves gaps.
    Rows {
        /// Number of rows.
        rows: u64,
        /// Bytes of each row.
        row_bytes: u64,
        /// Bytes from the start of one row to the start of the next.
        stride_bytes: u64,
    },
    /// Bytes without rows. Functions that take rows treat each block of 4096 bytes as a row.
    Blocks {
        /// Number of bytes.
        bytes: u64,
    },
}

impl Region {
    /// Returns the number of rows (of [`Region::Blocks`]: blocks, the last may be short).
    pub fn rows(&self) -> u64 {
        match *self {
            Self::Rows { rows, .. } => rows,
            Self::Blocks { bytes } => bytes.div_ceil(BLOCK_BYTES),
        }
    }

    /// Returns the bytes from the first row's start to the last row's end. The error says why the
    /// region is impossible.
    fn bytes_checked(&self) -> Result<u64, &'static str> {
        match *self {
            Self::Blocks { bytes } => Ok(bytes),
            Self::Rows { rows: 0, .. } | Self::Rows { row_bytes: 0, .. } => Ok(0),
            Self::Rows { rows, row_bytes, stride_bytes } => {
                if stride_bytes == 0 && rows > 1 {
                    return Err("a stride of 0 puts every row on the first");
                }
                (rows - 1)
                    .checked_mul(stride_bytes)
                    .and_then(|last| last.checked_add(row_bytes))
                    .ok_or("its size overflows 64 bits")
            }
        }
    }
}

/// One region with everything computed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedRegion {
    pub(crate) region: Region,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Offset of the checksum table in the file.
    pub(crate) crc_offset: u64,
    /// Number of checksum units, and so of entries in the table.
    pub(crate) units: u64,
}

impl PlacedRegion {
    /// Returns how many rows share a checksum unit.
    pub(crate) fn rows_per_unit(&self) -> u64 {
        match self.region {
            Region::Rows { row_bytes, .. } if row_bytes < ROW_BYTES_OWN_CRC => {
                BLOCK_BYTES / row_bytes.max(1)
            }
            Region::Rows { .. } | Region::Blocks { .. } => 1,
        }
    }

    /// Returns the bytes of row `row`, relative to the region.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn row_range(&self, row: u64) -> Range<u64> {
        let rows = self.region.rows();
        assert!(row < rows, "row {row} of a region of {rows} rows");
        match self.region {
            Region::Rows { row_bytes: 0, .. } => 0..0,
            Region::Rows { row_bytes, stride_bytes, .. } => {
                row * stride_bytes..row * stride_bytes + row_bytes
            }
            Region::Blocks { bytes } => row * BLOCK_BYTES..bytes.min((row + 1) * BLOCK_BYTES),
        }
    }

    /// Returns the bytes of checksum unit `unit`, relative to the region.
    pub(crate) fn unit_range(&self, unit: u64) -> Range<u64> {
        let per_unit = self.rows_per_unit();
        let first = unit * per_unit;
        let last = (first + per_unit).min(self.region.rows()) - 1;
        self.row_range(first).start..self.row_range(last).end
    }

    pub(crate) fn units_overlap(&self) -> bool {
        matches!(self.region, Region::Rows { row_bytes, stride_bytes, .. } if stride_bytes < row_bytes)
    }

    /// Returns the units that lie wholly in `range`. They are consecutive, because both the starts
    /// and the ends of units rise.
    pub(crate) fn units_within(&self, range: &Range<u64>) -> Range<u64> {
        let first = partition(self.units, |unit| self.unit_range(unit).start < range.start);
        let end = partition(self.units, |unit| self.unit_range(unit).end <= range.end);
        first..end.max(first)
    }
}

/// Returns the first of `0..count` for which `before` is false. `before` must be true up to some
/// point and false after it.
fn partition(count: u64, before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The places of everything in an extent: header, checksum tables and regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentLayout {
    regions: Box<[PlacedRegion]>,
    tables: Range<u64>,
    total_bytes: u64,
}

impl ExtentLayout {
    /// Lays out `regions` in their order.
    ///
    /// # Errors
    /// * A region's numbers contradict each other.
    /// * There are more than [`REGIONS_MAX`] regions.
    /// * The whole exceeds [`EXTENT_BYTES_MAX`].
    /// * The rows overlap too often to be hashed.
    pub fn new(regions: &[Region]) -> Result<Self, ExtentError> {
        if regions.len() > REGIONS_MAX {
            return Err(ExtentError::TooManyRegions { count: regions.len(), limit: REGIONS_MAX });
        }
        let mut placed = Vec::with_capacity(regions.len());
        let tables_offset = header::bytes(regions.len());
        let mut end = tables_offset;
        for (index, &region) in regions.iter().enumerate() {
            let bad = |reason| ExtentError::BadRegion { region: index, reason };
            let bytes = region.bytes_checked().map_err(bad)?;
            let mut entry = PlacedRegion { region, offset: 0, bytes, crc_offset: end, units: 0 };
            if bytes > 0 {
                entry.units = region.rows().div_ceil(entry.rows_per_unit());
            }
            end = grown(end, entry.units.checked_mul(4), index)?;
            placed.push(entry);
        }
        let tables = tables_offset..end;
        end = end.next_multiple_of(PAGE_BYTES);
        for (index, entry) in placed.iter_mut().enumerate() {
            entry.offset = end;
            end = grown(end, Some(entry.bytes), index)?.next_multiple_of(PAGE_BYTES);
        }
        let layout = Self { regions: placed.into(), tables, total_bytes: end };
        layout.check_hashing()?;
        Ok(layout)
    }

    fn check_hashing(&self) -> Result<(), ExtentError> {
        let limit = HASHED_BYTES_MAX;
        let mut hashed = 0_u64;
        for entry in self.regions.iter().filter(|entry| entry.units > 0) {
            let unit = entry.unit_range(0);
            let bytes = (unit.end - unit.start).checked_mul(entry.units);
            hashed = bytes
                .and_then(|bytes| hashed.checked_add(bytes))
                .filter(|&hashed| hashed <= limit)
                .ok_or(ExtentError::TooMuchHashing { limit })?;
        }
        Ok(())
    }

    /// Returns the bytes of the file and of its mapping, for the budget to admit. A multiple of
    /// 4096.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the number of regions.
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// Returns region `index`.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn region(&self, index: usize) -> Region {
        self.regions[index].region
    }

    /// Returns the bytes of region `index`, from its first row's start to its last row's end.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn region_bytes(&self, index: usize) -> u64 {
        self.regions[index].bytes
    }

    /// Returns the offset of region `index` in the file. A multiple of 4096.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn region_offset(&self, index: usize) -> u64 {
        self.regions[index].offset
    }

    pub(crate) fn placed(&self) -> &[PlacedRegion] {
        &self.regions
    }

    /// Returns the range of the file that holds all checksum tables.
    pub(crate) fn tables(&self) -> Range<u64> {
        self.tables.clone()
    }
}

/// Returns `end + bytes`, or an error if that exceeds the limit.
fn grown(end: u64, bytes: Option<u64>, region: usize) -> Result<u64, ExtentError> {
    bytes
        .and_then(|bytes| end.checked_add(bytes))
        .filter(|&end| end <= EXTENT_BYTES_MAX)
        .ok_or(ExtentError::TooLarge { region, limit: EXTENT_BYTES_MAX })
}

/// Converts a number to an index into a mapping. The conversion never fails on the 64-bit machines
/// this crate is for.
pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("a usize has 64 bits here")
}

/// Converts a range of an extent to a range of its mapping.
pub(crate) fn indices(range: &Range<u64>) -> Range<usize> {
    index(range.start)..index(range.end)
}

#[cfg(test)]
mod tests;
