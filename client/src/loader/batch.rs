//! A batch: its samples, and the rows of each tensor, in one buffer or in place.
//!
//! `assemble` fetches it, `layout` places its tensors in the buffer, and `take` reads rows that a
//! program chooses in the same layout.
//!
//! Thread rule: a batch is a value. Non-goals: the order of samples (`order`), and devices
//! (`send`).

mod assemble;
pub(super) mod layout;
mod take;

use std::{fmt, sync::Arc, time::Duration};

use larder_dataset::Dtype;

use crate::{
    Error, HostTensor, LongestWait, Memory, RowsView, Sources,
    memory::Buffer,
    sampler::{Draws, LoaderState},
};
use layout::{BatchLayout, Column, ColumnRows, Ragged};

pub(super) use assemble::{
    BatchFetcher, BatchMemory, Choice, Decoding, Fetch, FetchedRows, SnapshotRows,
};
pub(crate) use assemble::{LoaderSource, private_views};
pub use take::Take;

/// The rows of some samples, in their order, in the memory of the host or of a device. Dropping the
/// batch returns its memory to the loader.
pub struct Batch<P = OnHost> {
    pub(super) layout: Arc<BatchLayout>,
    pub(super) ragged: Ragged,
    pub(super) place: P,
    /// One for each row.
    pub(super) draws: Draws,
    /// At most the number of rows.
    pub(super) padding: usize,
    /// Rows of samples that stand for ones that can't be decoded.
    pub(super) skipped: u64,
    pub(super) state: LoaderState,
    pub(super) sources: Sources,
    pub(super) fetching: Duration,
    pub(super) longest: Option<LongestWait>,
}

/// The rows of a batch in the memory of the host.
pub struct OnHost(pub(super) HostRows);

pub(super) enum HostRows {
    /// Back to back in one buffer, by the layout.
    Gathered(Buffer),
    /// In place: consecutive rows of a mapped shard, one view for each tensor.
    Viewed(Box<[RowsView]>),
}

impl<P> Batch<P> {
    /// Number of rows, padding included.
    pub fn len(&self) -> usize {
        self.draws.len()
    }

    /// Whether there are no rows. A loader hands out no empty batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of each row's sample in its snapshot, even if the dataset is a part of the
    /// snapshot. Includes padding. [`View::index_of`](crate::sampler::View::index_of) gives the
    /// index in a part.
    pub fn samples(&self) -> &[u64] {
        self.draws.samples()
    }

    /// In a batch of a [`Mixture`](crate::Mixture), the dataset of each row.
    pub fn datasets(&self) -> Option<&[u32]> {
        self.draws.sources()
    }

    /// In a batch of a [`Mixture`](crate::Mixture), the pass over its dataset that each row belongs
    /// to, counted from 0 through all epochs. Dataset, pass and sample together are unique in a
    /// job. For a single dataset the epoch is the pass.
    pub fn passes(&self) -> Option<&[u64]> {
        self.draws.passes()
    }

    /// The number of rows at the end that only fill up the last batch
    /// ([`Last::Pad`](crate::sampler::Last)). They repeat samples: leave them out of metrics.
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// The number of samples that can't be decoded and were skipped. Another sample of the batch
    /// stands for each.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The position of the job after this batch. Save it with a checkpoint. Later batches do not
    /// change it.
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// Sources of the rows, and times of fetching them.
    pub fn sources(&self) -> Sources {
        self.sources
    }

    /// The longest wait while the rows were fetched. `None` if all rows were mapped.
    pub fn longest_wait(&self) -> Option<&LongestWait> {
        self.longest.as_ref()
    }

    /// The time it took to fetch the rows.
    pub fn fetching(&self) -> Duration {
        self.fetching
    }
}

impl Batch {
    /// The tensor with this name.
    ///
    /// # Panics
    /// The loader was built without this tensor; see [`get`](Self::get).
    pub fn tensor(&self, name: &str) -> BatchTensor<'_> {
        self.get(name).unwrap_or_else(|| panic!("the batch has no tensor '{name}'"))
    }

    /// The tensor with this name, if the batch has it.
    pub fn get(&self, name: &str) -> Option<BatchTensor<'_>> {
        self.tensors().find(|tensor| tensor.name() == name)
    }

    /// The tensors, in the order that the loader was built with.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = BatchTensor<'_>> {
        let rows = self.len();
        self.layout.columns().iter().enumerate().map(move |(index, column)| {
            let rows = ColumnRows { rows, ragged: self.ragged.of(index) };
            let bytes = match &self.place.0 {
                HostRows::Gathered(buffer) => {
                    &buffer[self.layout.range(index, self.len(), &self.ragged)]
                }
                HostRows::Viewed(views) => &views[index],
            };
            BatchTensor { column, rows, bytes }
        })
    }

    /// The tensors as memory for another language, in the order that the loader was built with.
    /// Rows are copied only if another consumer already holds the view of them. The memory returns
    /// to its source when the last tensor is dropped.
    ///
    /// # Errors
    /// `ResourceExhausted` if rows must be copied and this process has no memory left.
    pub fn into_tensors(self) -> Result<Vec<HostTensor>, Error> {
        let rows = self.len();
        match self.place.0 {
            HostRows::Gathered(buffer) => {
                Ok(self.layout.lift(&Memory::buffer(buffer), rows, &self.ragged))
            }
            HostRows::Viewed(views) => self.layout.lift_views(&views, rows, &self.ragged),
        }
    }
}

impl<P> fmt::Debug for Batch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.layout.columns().iter().map(|column| &*column.name).collect();
        f.debug_struct("Batch")
            .field("rows", &self.len())
            .field("padding", &self.padding)
            .field("tensors", &names)
            .finish_non_exhaustive()
    }
}

/// One tensor of a batch: `shape()` elements of `dtype()`, little-endian, in C order. It begins at
/// a multiple of 4096 bytes, except in place; in [given memory](crate::CallerMemory) the offset is
/// such a multiple.
#[derive(Clone, Copy)]
pub struct BatchTensor<'a> {
    column: &'a Column,
    rows: ColumnRows<'a>,
    bytes: &'a [u8],
}

impl<'a> BatchTensor<'a> {
    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.column.name
    }

    /// The type of an element.
    pub fn dtype(&self) -> Dtype {
        self.column.dtype
    }

    /// The number of rows, then the shape of one sample. For a ragged tensor: the number of
    /// elements of all rows, then the shape of an element.
    pub fn shape(&self) -> Vec<u64> {
        self.column.shape_of(self.rows)
    }

    /// For a ragged tensor, one offset more than rows: row `r` is elements `offsets[r]` to
    /// `offsets[r + 1]`.
    pub fn offsets(&self) -> Option<&'a [i64]> {
        self.rows.ragged.map(|of| &*of.offsets)
    }

    /// The shape of one sample. For a ragged tensor, the shape of an element.
    pub fn sample_shape(&self) -> &'a [u64] {
        &self.column.shape
    }

    /// All rows, back to back.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of one row. 0 for a ragged tensor.
    pub fn row_bytes(&self) -> usize {
        self.column.row_bytes
    }

    /// One row.
    ///
    /// # Panics
    /// There is no such row.
    pub fn row(&self, row: usize) -> &'a [u8] {
        let rows = self.rows.rows;
        assert!(row < rows, "row {row} of a batch of {rows} rows");
        match self.rows.ragged {
            None => &self.bytes[row * self.column.row_bytes..][..self.column.row_bytes],
            Some(of) => &self.bytes[of.begins[row]..of.begins[row + 1]],
        }
    }
}

impl fmt::Debug for BatchTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", self.name(), self.dtype(), self.shape())
    }
}
