//! Copies batches to a device: rows into a block, each column in one of two ways.
//!
//! ```text
//!  block   │ column 0 │ column 1 │ ... │ ragged columns │ their offsets │
//!              ▲ direct: runs of registered extents          ▲
//!              └ staged: a buffer with the same places ──────┘
//! ```
//!
//! A staged column is gathered into a page-locked buffer, at its place in the block. Adjacent
//! staged columns go in one copy, and so does a full batch that is staged as a whole. The offsets
//! of ragged columns are copied too, as 64-bit integers.
//!
//! Thread rule: several threads fetch side by side. Non-goals: the time when memory may be used
//! again (see [`Pump`]).

mod direct;

use std::{ops::Range, sync::Arc};

use larder_dataset::{Dtype, Logical};

use super::{
    batch::{
        Batch, BatchFetcher, BatchMemory, Choice, Fetch, FetchedRows,
        layout::{BatchLayout, Column, ColumnRows, Ragged, with_slack},
    },
    order::Pass,
};
use crate::{
    CopyStats, DeviceSlice, Error, Pump, ReadyBlock,
    deadline::CancelToken,
    device::{CopyRun, CopySource, DeviceBlock, Transfer},
    memory::ALIGNMENT,
    sampler::Draws,
};
use direct::Direct;

/// The rows of a batch in the memory of a device.
pub struct OnDevice {
    memory: DeviceSlice,
    places: Places,
}

impl BatchMemory for OnDevice {
    type Given = ReadyBlock;
    type By = Arc<Pump>;
}

impl Fetch for OnDevice {
    fn bytes_of(fetcher: &BatchFetcher, pass: &Pass, batch: u64) -> Result<usize, Error> {
        let end =
            |layout: &BatchLayout, rows, ragged: &Ragged| Places::new(layout, rows, ragged).end;
        fetcher.batch_bytes(pass, batch, end)
    }

    fn fetch(
        fetcher: &BatchFetcher,
        draws: &Draws,
        choice: Choice<ReadyBlock>,
        pump: &Arc<Pump>,
        cancel: &CancelToken,
    ) -> Result<FetchedRows<Self>, Error> {
        let given = match choice {
            Choice::Any => None,
            Choice::Given(given) => given,
        };
        fetcher.to_device(draws, given, pump, cancel)
    }
}

/// A tensor in the memory of a device: elements of `dtype`, little-endian, in C order.
#[derive(Debug, Clone)]
pub struct DeviceTensor {
    /// Its name in the dataset.
    pub name: Arc<str>,
    /// The type of an element.
    pub dtype: Dtype,
    /// The meaning of its values.
    pub logical: Logical,
    /// The number of rows, then the shape of one sample. For a ragged tensor: the number of
    /// elements of all rows, then the shape of an element.
    pub shape: Vec<u64>,
    /// Its elements.
    pub memory: DeviceSlice,
    /// For a ragged tensor, 64-bit integers: row `r` is elements `offsets[r]` to `offsets[r + 1]`.
    pub offsets: Option<DeviceSlice>,
}

/// The ranges of a block.
struct Places {
    /// By column.
    rows: Box<[Range<usize>]>,
    /// By column, for ragged ones.
    offsets: Box<[Option<Range<usize>>]>,
    /// Bytes of the whole block.
    end: usize,
}

impl Places {
    fn new(layout: &BatchLayout, rows: usize, ragged: &Ragged) -> Self {
        let rows = layout.ranges(rows, ragged);
        let mut end = ragged.end(layout);
        let mut after = |bytes: usize| {
            let begin = end;
            end += bytes.next_multiple_of(ALIGNMENT);
            begin..begin + bytes
        };
        let columns = 0..rows.len();
        let offsets = columns
            .map(|column| ragged.of(column).map(|of| after(size_of_val(&*of.offsets))))
            .collect();
        let end = if layout.is_ragged() { with_slack(end) } else { end };
        Self { rows, offsets, end }
    }
}

impl Batch<OnDevice> {
    /// The tensors, in the order that the loader was built with. The memory returns to the loader,
    /// or to the caller that gave it, when the last tensor is dropped.
    #[must_use]
    pub fn into_tensors(self) -> Vec<DeviceTensor> {
        let (count, OnDevice { memory, places }) = (self.len(), &self.place);
        let part = |range: &Range<usize>| memory.part(range.start, range.len());
        let columns = self.layout.columns().iter().enumerate();
        let tensor = |(index, column): (usize, &Column)| DeviceTensor {
            name: Arc::clone(&column.name),
            dtype: column.dtype,
            logical: column.logical,
            shape: column.shape_of(ColumnRows { rows: count, ragged: self.ragged.of(index) }),
            memory: part(&places.rows[index]),
            offsets: places.offsets[index].as_ref().map(part),
        };
        columns.map(tensor).collect()
    }

    /// All memory of the batch, for a program that lets its streams wait once per batch.
    pub fn memory(&self) -> &DeviceSlice {
        &self.place.memory
    }
}

impl BatchFetcher {
    /// Queues the copies of samples to a device, until `cancel` is cancelled. The pump holds the
    /// memory that they read until they are done.
    fn to_device(
        &self,
        draws: &Draws,
        given: Option<ReadyBlock>,
        pump: &Pump,
        cancel: &CancelToken,
    ) -> Result<FetchedRows<OnDevice>, Error> {
        pump.adopt_thread();
        let rows = self.locate(draws);
        let ragged = self.ragged(draws, &rows)?;
        let places = Places::new(&self.layout, rows.len(), &ragged);
        let mut direct = self.direct(draws, &rows, pump, cancel)?;
        let mut gathered = direct.gathered(rows.len());
        let direct_bytes = gathered.sources.bytes;
        let staged = places.staged(|column| direct.has(column));
        let mut buffer = None;
        if !staged.is_empty() {
            let staging = buffer.insert(pump.stage(places.end, cancel)?);
            let is_staged = |column: usize| !direct.has(column);
            // Skipped if only the offsets of direct columns are staged.
            if (0..places.rows.len()).any(is_staged) {
                let read = self.gather(draws, &rows, &ragged, staging, is_staged, cancel)?;
                gathered.add_columns(read);
            }
            places.write_offsets(&ragged, staging);
        }
        let mut block = pump.block(places.end, given, cancel)?;
        let mut transfer = direct.transfer(&block, &places.rows);
        if let Some(buffer) = buffer {
            stage(&mut transfer, buffer, staged, &block);
        }
        pump.send(transfer, &mut block)?;
        let bytes = places.bytes();
        let sent = CopyStats::sent(bytes, bytes - direct_bytes);
        sent.count();
        gathered.sources.copies += sent;
        let memory = DeviceSlice::whole(Arc::new(block));
        Ok(FetchedRows { place: OnDevice { memory, places }, ragged, gathered })
    }
}

/// Adds the copies of the staged ranges.
fn stage(
    transfer: &mut Transfer,
    buffer: crate::device::Staged,
    staged: Vec<Range<usize>>,
    block: &DeviceBlock,
) {
    let source = transfer.sources.len();
    transfer.sources.push(CopySource::Staged(buffer));
    transfer.runs.extend(staged.into_iter().map(|from| {
        let to = block.address() + from.start as u64;
        CopyRun { source, from, to }
    }));
}

impl Places {
    fn bytes(&self) -> u64 {
        let offsets = self.offsets.iter().flatten();
        self.rows.iter().chain(offsets).map(|range| range.len() as u64).sum()
    }

    /// The staged ranges: all columns that are not direct, and all offsets. Neighbours are merged.
    fn staged(&self, is_direct: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
        let columns = self.rows.iter().enumerate().filter(|(column, _)| !is_direct(*column));
        let ranges = columns.map(|(_, range)| range).chain(self.offsets.iter().flatten());
        let mut ranges: Vec<Range<usize>> =
            ranges.filter(|range| !range.is_empty()).cloned().collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let is_near = next.start <= before.end.next_multiple_of(ALIGNMENT);
            if is_near {
                before.end = next.end;
            }
            is_near
        });
        ranges
    }

    fn write_offsets(&self, ragged: &Ragged, buffer: &mut [u8]) {
        for (column, range) in self.offsets.iter().enumerate() {
            let (Some(range), Some(of)) = (range, ragged.of(column)) else { continue };
            let places = buffer[range.clone()].as_chunks_mut::<8>().0;
            places.iter_mut().zip(&*of.offsets).for_each(|(place, offset)| {
                *place = offset.to_le_bytes();
            });
        }
    }
}

impl Direct {
    /// The copies of the direct columns into a block.
    fn transfer(&mut self, block: &DeviceBlock, places: &[Range<usize>]) -> Transfer {
        let (sources, runs) = self.take();
        let runs = runs.into_iter().map(|(column, run)| {
            let to = block.address() + (places[column].start + run.to) as u64;
            CopyRun { source: run.source, from: run.from, to }
        });
        Transfer { sources, runs: runs.collect() }
    }
}
