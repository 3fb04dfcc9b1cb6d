//! A tensor, the place of its rows, and copying rows out of an extent.

use std::ops::Range;

use larder_base::{Error, ErrorKind, RowRef, limits};
use larder_dataset::{Manifest, RowLocator, RowPlaces};
use larder_extent::crc::crc32c;
use larder_extent::{ExtentView, Region, RegionRows};

/// The place of a row in its tensor's region of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Span {
    pub(super) fn range(self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// A row with bytes other than those that were filled.
#[derive(Debug)]
pub(super) struct Corrupt;

/// Size of the blocks in which regions without a stride are checked.
const BLOCK_BYTES: u64 = 4096;

/// A tensor of a dataset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) tensor: usize,
    locator: RowLocator,
}

impl Column {
    pub(super) fn new(manifest: &Manifest, tensor: u16) -> Result<Self, Error> {
        let tensor = usize::from(tensor);
        let Some(found) = manifest.tensors().get(tensor) else {
            let count = manifest.tensors().len();
            let message = format!("tensor {tensor} of a snapshot of {count} tensors");
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        if found.row_bytes() > limits::ROW_BYTES_MAX {
            let (bytes, max) = (found.row_bytes(), limits::ROW_BYTES_MAX);
            let message = format!("rows of {bytes} bytes; at most {max} can be sent");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Self { tensor, locator: found.locator() })
    }

    /// Returns true if rows have lengths of their own.
    pub(super) fn is_ragged(self) -> bool {
        matches!(self.locator, RowLocator::Ragged)
    }

    /// Returns the place of a row.
    ///
    /// # Panics
    /// There is no such row, or the leaf of a ragged row is missing in `places`.
    pub(super) fn span(self, places: &RowPlaces, row: RowRef) -> Span {
        match self.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                Span { offset: u64::from(row.row) * stride_bytes, bytes: row_bytes }
            }
            RowLocator::Ragged => {
                let (offset, bytes) = places.row(row, self.tensor);
                Span { offset, bytes }
            }
        }
    }

    /// Returns the bytes of a row in the extent, unchecked.
    pub(super) fn bytes(self, extent: &ExtentView, span: Span) -> &[u8] {
        let start = len(span.offset);
        &extent.region(self.tensor)[start..start + len(span.bytes)]
    }

    /// Returns the checksum to send with a row that is sent from the extent.
    pub(super) fn crc(
        self,
        extent: &ExtentView,
        row: RowRef,
        span: Span,
        verify: bool,
    ) -> Result<u32, Corrupt> {
        let row = u64::from(row.row);
        match extent.layout().region(self.tensor) {
            Region::Rows { .. } if verify && !extent.verify_row(self.tensor, row) => Err(Corrupt),
            Region::Rows { .. } => Ok(extent.row_crc(self.tensor, row)),
            Region::Blocks { .. } => {
                self.check_blocks(extent, span)?;
                Ok(crc32c(self.bytes(extent, span)))
            }
        }
    }

    /// Copies a row and checks it. Returns its checksum.
    pub(super) fn copy(
        self,
        extent: &ExtentView,
        row: RowRef,
        span: Span,
        target: &mut [u8],
    ) -> Result<u32, Corrupt> {
        match extent.layout().region(self.tensor) {
            Region::Rows { .. } => {
                let row = u64::from(row.row);
                extent.copy_row_verified(self.tensor, row, target).map_err(|_| Corrupt)?;
                Ok(sent_crc(&extent.rows(self.tensor), row, target))
            }
            Region::Blocks { .. } => {
                self.check_blocks(extent, span)?;
                target.copy_from_slice(self.bytes(extent, span));
                Ok(crc32c(target))
            }
        }
    }

    fn check_blocks(self, extent: &ExtentView, span: Span) -> Result<(), Corrupt> {
        let blocks = span.offset / BLOCK_BYTES..(span.offset + span.bytes).div_ceil(BLOCK_BYTES);
        let sound = span.bytes == 0
            || blocks.into_iter().all(|block| extent.verify_row(self.tensor, block));
        if sound { Ok(()) } else { Err(Corrupt) }
    }
}

/// Returns the checksum to send with a row copied to `copy`. Short rows may share a checksum.
/// Hashing the copy is then cheaper than checking all of them again.
pub(super) fn sent_crc(source: &RegionRows<'_>, row: u64, copy: &[u8]) -> u32 {
    if source.has_own_crcs() { source.crc(row) } else { crc32c(copy) }
}

/// Converts a number of bytes of an extent to the length of a slice.
pub(super) fn len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a usize has 64 bits here")
}

/// Converts a row's length to the type of a frame's table.
pub(super) fn table_len(bytes: u64) -> Result<u32, Error> {
    u32::try_from(bytes).map_err(|_| {
        let max = limits::ROW_BYTES_MAX;
        let message = format!("a row of {bytes} bytes; at most {max} can be sent");
        Error::new(ErrorKind::InvalidArgument, message)
    })
}
