//! The places of one batch's ragged rows in its buffer, summed up from the lengths in the
//! manifest's leaves before memory is taken.
//!
//! Tensors of fixed row length have the same place in every batch of a loader. Ragged tensors
//! follow them, each at a page boundary, with rows back to back. Their places differ from batch to
//! batch.
//!
//! Thread rule: immutable values. Non-goals: tensors of fixed row length.

use std::sync::Arc;

use larder_base::limits;
use larder_dataset::RowPlaces;

use super::{BatchLayout, Column};
use crate::{Error, RowRef, fetch, memory::ALIGNMENT};

/// The ragged rows of a batch, by column of its layout. Empty if no column is ragged.
#[derive(Debug, Default)]
pub(in crate::loader) struct Ragged {
    columns: Box<[Option<RaggedRows>]>,
    /// The end of the last one in the buffer.
    end: usize,
}

/// The rows of one ragged tensor.
#[derive(Debug)]
pub(in crate::loader) struct RaggedRows {
    /// The offset of the first in the buffer.
    pub(in crate::loader) at: usize,
    /// From there, the offset of each, and the end of the last.
    pub(in crate::loader) begins: Box<[usize]>,
    /// The same offsets in elements.
    pub(in crate::loader) offsets: Arc<[i64]>,
}

impl RaggedRows {
    pub(in crate::loader) fn bytes(&self) -> usize {
        self.begins.last().copied().unwrap_or(0)
    }

    pub(in crate::loader) fn elements(&self) -> u64 {
        self.offsets.last().map_or(0, |end| end.unsigned_abs())
    }
}

impl Ragged {
    /// Computes the places of `rows` rows. `row_at` returns the places of its snapshot, the tensor
    /// of each column there, and the row.
    ///
    /// # Errors
    /// `ResourceExhausted` for more bytes than a batch may have.
    pub(in crate::loader) fn new<'a>(
        layout: &BatchLayout,
        rows: usize,
        row_at: impl Fn(usize) -> (&'a RowPlaces, &'a [usize], RowRef),
    ) -> Result<Self, Error> {
        if !layout.is_ragged() {
            return Ok(Self::default());
        }
        let (mut columns, mut end, mut total) = (Vec::new(), layout.buffer_bytes(), 0);
        for (index, column) in layout.columns().iter().enumerate() {
            if !column.is_ragged {
                columns.push(None);
                continue;
            }
            let lengths = (0..rows).map(|row| {
                let (places, tensors, row) = row_at(row);
                places.row(row, tensors[index]).1
            });
            let begins = fetch::begins(&column.name, lengths, total)?;
            let element = element_bytes(column);
            let count = |&begin: &usize| i64::try_from(begin / element).expect("below the limit");
            let offsets = begins.iter().map(count).collect();
            let of = RaggedRows { at: end, begins, offsets };
            total += of.bytes() as u64;
            end += of.bytes().next_multiple_of(ALIGNMENT);
            columns.push(Some(of));
        }
        Ok(Self { columns: columns.into(), end })
    }

    /// The rows of a column, if it is ragged.
    pub(in crate::loader) fn of(&self, column: usize) -> Option<&RaggedRows> {
        self.columns.get(column)?.as_ref()
    }

    /// The offsets of the rows of a column, in the form that a gather takes.
    pub(in crate::loader) fn begins(&self, column: usize) -> Option<&[usize]> {
        self.of(column).map(|of| &*of.begins)
    }

    /// Bytes of a buffer for all tensors.
    pub(in crate::loader) fn buffer_bytes(&self, layout: &BatchLayout) -> usize {
        if self.columns.is_empty() { layout.buffer_bytes() } else { with_slack(self.end) }
    }

    /// The end of the last ragged row in a buffer. Without ragged rows, of the other tensors.
    pub(in crate::loader) fn end(&self, layout: &BatchLayout) -> usize {
        if self.columns.is_empty() { layout.buffer_bytes() } else { self.end }
    }
}

/// Bytes of a buffer for a batch of ragged rows. Slack lets the buffer serve other batches too, as
/// their sizes differ.
pub(in crate::loader) fn with_slack(bytes: usize) -> usize {
    let slack = (bytes / 8).next_power_of_two();
    bytes.next_multiple_of(slack.max(ALIGNMENT))
}

/// Bytes of one element of a ragged row, at least 1. Manifests have no element of 0 bytes.
fn element_bytes(column: &Column) -> usize {
    let bytes = column.shape.iter().product::<u64>() * column.dtype.size_bytes();
    usize::try_from(bytes).expect("of a parsed manifest").max(1)
}

const _: () = assert!(limits::RAGGED_BATCH_BYTES_MAX < isize::MAX as u64 / 4);
