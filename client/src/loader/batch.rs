//! A batch: rows of each tensor, side by side in one buffer or where they lie, and which samples
//! they are.

use std::{fmt, sync::Arc, time::Duration};

use larder_dataset::Dtype;

use super::{
    content::Samples,
    layout::{Column, ColumnRows, Layout, Ragged},
};
use crate::{
    CallerMemory, Error, HostTensor, LongestWait, Memory, RowsView, Sources, memory::Buffer,
    sampler::LoaderState,
};

/// The rows of some samples, in their order, in the memory of the host or of a device. Its memory
/// goes back to the loader when it is dropped.
pub struct Batch<P = OnHost> {
    pub(super) layout: Arc<Layout>,
    pub(super) ragged: Ragged,
    pub(super) place: P,
    /// One a row.
    pub(super) samples: Samples,
    /// Below or equal to the number of rows.
    pub(super) padding: usize,
    pub(super) state: LoaderState,
    pub(super) sources: Sources,
    pub(super) fetching: Duration,
    pub(super) longest: Option<LongestWait>,
}

/// The rows of a batch in the memory of the host.
pub struct OnHost(pub(super) HostRows);

/// Where in the memory of the host.
pub(super) enum HostRows {
    /// Side by side in one buffer, as the layout says.
    Gathered(Buffer),
    /// Where they lie, one view a tensor: consecutive rows of a shard that is mapped.
    Viewed(Box<[RowsView]>),
}

/// Where the rows of a batch are: see [`Batch`].
pub trait BatchMemory: Send + 'static {
    /// Memory of the caller's for such a batch.
    type Given: Send + 'static;
    /// What brings them there.
    type By: Send;
}

impl BatchMemory for OnHost {
    type Given = Box<dyn CallerMemory>;
    type By = ();
}

impl<P> Batch<P> {
    /// Number of rows, padding included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are no rows. A loader hands out no such batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of each row's sample in its snapshot, whatever part of it the dataset is; padding
    /// included. [`View::index_of`](crate::sampler::View::index_of) says which sample of a part it
    /// is.
    #[must_use]
    pub fn samples(&self) -> &[u64] {
        &self.samples.samples
    }

    /// In a batch of a [`Mixture`](crate::Mixture), which of its datasets each row is of.
    #[must_use]
    pub fn datasets(&self) -> Option<&[u32]> {
        (!self.samples.datasets.is_empty()).then_some(&self.samples.datasets)
    }

    /// In a batch of a [`Mixture`](crate::Mixture), which pass over its dataset each row belongs
    /// to, counted from 0 through all epochs: with dataset and sample it names what comes once in
    /// the life of a job. In a batch of a single dataset the epoch is that pass.
    #[must_use]
    pub fn passes(&self) -> Option<&[u64]> {
        (!self.samples.datasets.is_empty()).then_some(&self.samples.passes)
    }

    /// How many rows at the end only fill up the last batch ([`Last::Pad`](crate::sampler::Last)):
    /// they repeat samples and are to be left out of metrics.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// Where the job stands once this batch was used: what to save with a checkpoint. It belongs to
    /// this batch, whatever was fetched or handed out after it.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// Where the rows came from, and what fetching them waited for.
    #[must_use]
    pub fn sources(&self) -> Sources {
        self.sources
    }

    /// What fetching the rows waited for longest; `None` when all were mapped.
    #[must_use]
    pub fn longest_wait(&self) -> Option<&LongestWait> {
        self.longest.as_ref()
    }

    /// How long it took to fetch the rows.
    #[must_use]
    pub fn fetching(&self) -> Duration {
        self.fetching
    }
}

impl Batch {
    /// The tensor with this name.
    ///
    /// # Panics
    /// If the loader was not asked for it; see [`get`](Self::get).
    #[must_use]
    pub fn tensor(&self, name: &str) -> BatchTensor<'_> {
        self.get(name).unwrap_or_else(|| panic!("the batch has no tensor '{name}'"))
    }

    /// The tensor with this name, if the batch has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<BatchTensor<'_>> {
        self.tensors().find(|tensor| tensor.name() == name)
    }

    /// The tensors, in the order in which the loader was asked for them.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = BatchTensor<'_>> {
        let rows = self.len();
        self.layout.columns().iter().enumerate().map(move |(index, column)| {
            let rows = ColumnRows { rows, ragged: self.ragged.of(index) };
            let bytes = match &self.place.0 {
                HostRows::Gathered(buffer) => column.of(buffer, rows),
                HostRows::Viewed(views) => &views[index],
            };
            BatchTensor { column, rows, bytes }
        })
    }

    /// Its tensors as memory for another language, in the order in which the loader was asked for
    /// them. Nothing is copied, unless rows seen where they lie are lent to somebody already. The
    /// memory goes back where it came from when the last of them is dropped.
    ///
    /// # Errors
    /// `ResourceExhausted` when rows are to be copied and this process has no memory for that.
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

/// One tensor of a batch: `shape()` elements of `dtype()`, little-endian, in C order, beginning at
/// a multiple of 4096 bytes unless the batch is seen where it lies; in [given
/// memory](crate::CallerMemory), at one of that.
#[derive(Clone, Copy)]
pub struct BatchTensor<'a> {
    column: &'a Column,
    rows: ColumnRows<'a>,
    bytes: &'a [u8],
}

impl<'a> BatchTensor<'a> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.column.name
    }

    /// The type of an element.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.column.dtype
    }

    /// Number of rows, then the shape of one sample. Of a ragged tensor: number of elements of all
    /// rows, then the shape of an element.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        self.column.shape_of(self.rows)
    }

    /// Of a ragged tensor, one more than there are rows: row `r` is its elements `offsets[r]` to
    /// `offsets[r + 1]`.
    #[must_use]
    pub fn offsets(&self) -> Option<&'a [i64]> {
        self.rows.ragged.map(|of| &*of.offsets)
    }

    /// The shape of one sample; of a ragged tensor, that of an element.
    #[must_use]
    pub fn sample_shape(&self) -> &'a [u64] {
        &self.column.shape
    }

    /// All rows, back to back.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of one row; 0 of a ragged tensor, whose rows differ.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.column.row_bytes
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
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
