//! Where the ragged rows of one batch lie in its buffer: what the manifest says of their lengths,
//! added up before memory is taken.
//!
//! Tensors whose rows have one length have their place in every batch of a loader. Those of the
//! others follow behind them, each at a page border, back to back, and so differ from batch to
//! batch.
//!
//! Thread rule: immutable values. Non-goals: tensors whose rows have one length.

use std::sync::Arc;

use larder_base::limits;
use larder_dataset::Manifest;

use super::{Column, Layout};
use crate::{Error, RowRef, fetch, memory::ALIGNMENT};

/// The ragged rows of a batch, by column of its layout; empty if none are.
#[derive(Debug, Default)]
pub(in crate::loader) struct Ragged {
    columns: Box<[Option<RaggedRows>]>,
    /// Where in the buffer the last of them ends.
    end: usize,
}

/// The rows of one ragged tensor.
#[derive(Debug)]
pub(in crate::loader) struct RaggedRows {
    /// Where in the buffer the first begins.
    pub(in crate::loader) at: usize,
    /// From there on, where each begins and the last ends.
    pub(in crate::loader) begins: Box<[usize]>,
    /// The same in elements.
    pub(in crate::loader) offsets: Arc<[i64]>,
}

impl RaggedRows {
    /// Bytes of all of them.
    pub(in crate::loader) fn bytes(&self) -> usize {
        self.begins.last().copied().unwrap_or(0)
    }

    /// Elements of all of them.
    pub(in crate::loader) fn elements(&self) -> u64 {
        self.offsets.last().map_or(0, |end| end.unsigned_abs())
    }
}

impl Ragged {
    /// For `rows` rows, of which `row_at` says for each which it is, and of which snapshot; and
    /// `tensor_of` which tensor of that snapshot a column is.
    ///
    /// # Errors
    /// `ResourceExhausted` for more bytes than a batch may have.
    pub(in crate::loader) fn new<'a>(
        layout: &Layout,
        rows: usize,
        row_at: impl Fn(usize) -> (&'a Manifest, &'a [usize], RowRef),
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
                let (manifest, tensors, at) = row_at(row);
                manifest.row_in_region(at.shard, at.row, tensors[index]).1
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

    /// The rows of a column, if it is a ragged one.
    pub(in crate::loader) fn of(&self, column: usize) -> Option<&RaggedRows> {
        self.columns.get(column)?.as_ref()
    }

    /// Where the rows of a column begin, as a gather wants it said.
    pub(in crate::loader) fn begins(&self, column: usize) -> Option<&[usize]> {
        self.of(column).map(|of| &*of.begins)
    }

    /// Bytes of a buffer for them and for the other tensors.
    pub(in crate::loader) fn buffer_bytes(&self, layout: &Layout) -> usize {
        if self.columns.is_empty() { layout.buffer_bytes() } else { with_slack(self.end) }
    }

    /// Where the last of them ends in a buffer; without any, the other tensors.
    pub(in crate::loader) fn end(&self, layout: &Layout) -> usize {
        if self.columns.is_empty() { layout.buffer_bytes() } else { self.end }
    }
}

/// Bytes of a buffer for a batch of ragged rows. Batches differ, so that a buffer which is a little
/// larger serves the next one too.
pub(in crate::loader) fn with_slack(bytes: usize) -> usize {
    let slack = (bytes / 8).next_power_of_two();
    bytes.next_multiple_of(slack.max(ALIGNMENT))
}

/// Bytes of one element of a ragged row: at least 1, as manifests have none of 0.
fn element_bytes(column: &Column) -> usize {
    let bytes = column.shape.iter().product::<u64>() * column.dtype.size_bytes();
    usize::try_from(bytes).expect("of a parsed manifest").max(1)
}

const _: () = assert!(limits::RAGGED_BATCH_BYTES_MAX < isize::MAX as u64 / 4);
