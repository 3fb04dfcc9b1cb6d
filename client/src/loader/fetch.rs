//! From the number of a batch to the batch: which rows of which dataset, into which buffer.

use std::{ops::Range, sync::Arc};

use larder_dataset::Manifest;

use super::{
    batch::{Batch, Body},
    content::Samples,
    layout::{Layout, check_rows},
    pass::Pass,
};
use crate::{
    Copies, Error, HostTensor, Memory, RowRef, RowsView, Sources,
    buffer::{Buffer, BufferPool},
    fetch::{Gathered, Placed},
    patience::CancelToken,
    process,
};

/// Reads rows: `out[k]` gets tensor `tensors[k]` of all rows, at their places, unless the token is
/// used first. A dataset hands its [`Fetcher::gather`](crate::Fetcher::gather).
pub(crate) type Gather = dyn Fn(Placed<'_>, &[usize], &mut [&mut [u8]], &CancelToken) -> Result<Gathered, Error>
    + Send
    + Sync;

/// Sees consecutive rows of a shard where they lie, one tensor, if nobody need be asked for that.
pub(crate) type Look = dyn Fn(u32, &Range<u32>, usize) -> Option<RowsView> + Send + Sync;

/// A snapshot that rows are read from.
pub(super) struct Shelf {
    manifest: Manifest,
    /// The tensors of a batch, as this snapshot numbers them.
    tensors: Box<[usize]>,
    gather: Arc<Gather>,
    /// Absent when rows are to be gathered always.
    look: Option<Arc<Look>>,
}

/// Everything that fetching a batch takes, shared by the threads that do.
pub(super) struct BatchFetcher {
    /// One for each dataset.
    pub(super) shelves: Box<[Shelf]>,
    pub(super) layout: Arc<Layout>,
    pub(super) buffers: Arc<BufferPool>,
}

impl Shelf {
    /// The tensors of `layout` in this snapshot.
    ///
    /// # Errors
    /// As [`Layout::tensors_in`].
    pub(super) fn new(
        manifest: Manifest,
        gather: Arc<Gather>,
        look: Option<Arc<Look>>,
        layout: &Layout,
    ) -> Result<Self, Error> {
        Ok(Self { tensors: layout.tensors_in(&manifest)?, manifest, gather, look })
    }

    fn locate(&self, sample: u64) -> RowRef {
        let (shard, row) = self.manifest.locate(sample).expect("a sample of this snapshot");
        RowRef { shard, row }
    }

    /// These samples where they lie, if they are consecutive rows of a shard that is mapped.
    fn see(&self, samples: &[u64]) -> Option<Vec<RowsView>> {
        let (look, (&first, &last)) = (self.look.as_ref()?, samples.first().zip(samples.last())?);
        if !samples.is_sorted_by(|before, after| before + 1 == *after) {
            return None;
        }
        let (begin, end) = (self.locate(first), self.locate(last));
        if begin.shard != end.shard {
            return None;
        }
        let rows = begin.row..end.row + 1;
        self.tensors.iter().map(|&tensor| look(begin.shard, &rows, tensor)).collect()
    }
}

impl BatchFetcher {
    /// Fetches a batch of a pass, unless `cancel` is used first.
    pub(super) fn fetch(
        &self,
        pass: &Pass,
        batch: u64,
        cancel: &CancelToken,
    ) -> Result<Batch, Error> {
        let begun = process::now();
        let (samples, padding) = pass.samples(batch);
        let (body, gathered) = match self.see(&samples) {
            Some(views) => (Body::Viewed(views.into()), self.seen(samples.len())),
            None => {
                let (buffer, gathered) = self.read(&samples, cancel)?;
                (Body::Gathered(buffer), gathered)
            }
        };
        Ok(Batch {
            layout: Arc::clone(&self.layout),
            body,
            padding: usize::try_from(padding).expect("no more than rows in memory"),
            samples,
            state: pass.state_after(batch),
            sources: gathered.sources,
            longest: gathered.longest,
            fetching: process::now().saturating_duration_since(begun),
        })
    }

    /// These samples where they lie, if that can be.
    fn see(&self, samples: &Samples) -> Option<Vec<RowsView>> {
        match &*self.shelves {
            [shelf] => shelf.see(&samples.samples),
            _ => None,
        }
    }

    /// What seeing rows where they lie comes to.
    fn seen(&self, rows: usize) -> Gathered {
        let bytes = (rows * self.layout.row_bytes()) as u64;
        let copies = Copies::viewed(bytes);
        copies.count();
        let sources = Sources { rows_local: rows as u64, bytes, copies, ..Sources::default() };
        Gathered { sources, longest: None }
    }

    /// The rows of these samples, no more than a buffer has room for, in their order.
    fn read(&self, samples: &Samples, cancel: &CancelToken) -> Result<(Buffer, Gathered), Error> {
        let mut buffer = self.buffers.take();
        let mut parts = self.layout.split(&mut buffer, samples.len());
        let gathered = match &*self.shelves {
            [shelf] => {
                let rows: Vec<RowRef> =
                    samples.samples.iter().map(|&at| shelf.locate(at)).collect();
                (shelf.gather)(Placed::all(&rows), &shelf.tensors, &mut parts, cancel)?
            }
            _ => self.read_mixed(samples, &mut parts, cancel)?,
        };
        Ok((buffer, gathered))
    }

    /// The same from several snapshots, one after the other: each row to its own place.
    fn read_mixed(
        &self,
        Samples { samples, datasets, .. }: &Samples,
        parts: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let mut gathered = Gathered::default();
        for (dataset, shelf) in (0..).zip(&self.shelves) {
            let places: Vec<u32> = (0..)
                .zip(datasets)
                .filter(|(_, of)| **of == dataset)
                .map(|(place, _)| place)
                .collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<RowRef> =
                places.iter().map(|&place| shelf.locate(samples[place as usize])).collect();
            let placed = Placed::at(&rows, &places);
            gathered += (shelf.gather)(placed, &shelf.tensors, parts, cancel)?;
        }
        Ok(gathered)
    }
}

/// Reads chosen samples of `tensors`, or of all, into memory of their own, unless `cancel` is used
/// first.
///
/// # Errors
/// As [`Layout::new`], and as the gather.
///
/// # Panics
/// For a sample that the snapshot has not.
pub(crate) fn take(
    manifest: &Manifest,
    gather: &Arc<Gather>,
    samples: &[u64],
    tensors: Option<&[String]>,
    cancel: &CancelToken,
) -> Result<Vec<HostTensor>, Error> {
    let rows = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    check_rows(rows)?;
    let layout = Layout::new(manifest, tensors, rows)?;
    let buffers = BufferPool::new(layout.buffer_bytes(), 0);
    let shelf = Shelf::new(manifest.clone(), Arc::clone(gather), None, &layout)?;
    let fetcher = BatchFetcher { shelves: [shelf].into(), layout, buffers };
    let samples = Samples { samples: samples.to_vec(), ..Samples::default() };
    let (buffer, _) = fetcher.read(&samples, cancel)?;
    Ok(fetcher.layout.lift(&Memory::pooled(buffer), samples.len()))
}

/// Consecutive rows of a shard of `tensors`, or of all, where they lie: `None` if one can't be seen so.
///
/// # Errors
/// As [`Layout::new`].
pub(crate) fn lend(
    manifest: &Manifest,
    look: impl Fn(usize) -> Option<RowsView>,
    rows: usize,
    tensors: Option<&[String]>,
) -> Result<Option<Vec<HostTensor>>, Error> {
    let layout = Layout::new(manifest, tensors, 1)?;
    let views: Option<Vec<RowsView>> =
        layout.tensors_in(manifest)?.iter().map(|&tensor| look(tensor)).collect();
    Ok(views.map(|views| {
        Copies::viewed((rows * layout.row_bytes()) as u64).count();
        layout.lift_views(&views, rows)
    }))
}
