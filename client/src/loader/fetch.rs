//! From the number of a batch to the batch: which rows, into which buffer.

use std::{ops::Range, sync::Arc};

use larder_dataset::Manifest;

use super::{
    batch::{Batch, Body},
    layout::{Layout, check_rows},
    pass::Pass,
};
use crate::{
    Copies, Error, HostTensor, Memory, RowRef, RowsView, Sources,
    buffer::{Buffer, BufferPool},
    fetch::Gathered,
    patience::CancelToken,
    process,
};

/// Reads rows: `out[k]` gets tensor `tensors[k]` of all `rows`, in their order, unless the token is
/// used first. A dataset hands its [`Fetcher::gather`](crate::Fetcher::gather).
pub(crate) type Gather = dyn Fn(&[RowRef], &[usize], &mut [&mut [u8]], &CancelToken) -> Result<Gathered, Error>
    + Send
    + Sync;

/// Sees consecutive rows of a shard where they lie, one tensor, if nobody need be asked for that.
pub(crate) type Look = dyn Fn(u32, &Range<u32>, usize) -> Option<RowsView> + Send + Sync;

/// Everything that fetching a batch takes, shared by the threads that do.
pub(super) struct BatchFetcher {
    pub(super) manifest: Manifest,
    pub(super) layout: Arc<Layout>,
    pub(super) buffers: Arc<BufferPool>,
    pub(super) gather: Arc<Gather>,
    /// Absent when rows are to be gathered always.
    pub(super) look: Option<Arc<Look>>,
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
        let mut samples = Vec::new();
        let padding = pass.fill(batch, &mut samples);
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

    /// These samples where they lie, if they are consecutive rows of a shard that is mapped.
    fn see(&self, samples: &[u64]) -> Option<Vec<RowsView>> {
        let (look, (&first, &last)) = (self.look.as_ref()?, samples.first().zip(samples.last())?);
        if !samples.is_sorted_by(|before, after| before + 1 == *after) {
            return None;
        }
        let ((shard, begin), (same, end)) =
            (self.manifest.locate(first)?, self.manifest.locate(last)?);
        let rows = begin..end + 1;
        let views = self.layout.tensors().iter().map(|&tensor| look(shard, &rows, tensor));
        if shard == same { views.collect() } else { None }
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
    fn read(&self, samples: &[u64], cancel: &CancelToken) -> Result<(Buffer, Gathered), Error> {
        let locate = |&sample: &u64| {
            let (shard, row) = self.manifest.locate(sample).expect("a sample of this snapshot");
            RowRef { shard, row }
        };
        let rows: Vec<RowRef> = samples.iter().map(locate).collect();
        let mut buffer = self.buffers.take();
        let mut parts = self.layout.split(&mut buffer, rows.len());
        let gathered = (self.gather)(&rows, self.layout.tensors(), &mut parts, cancel)?;
        Ok((buffer, gathered))
    }
}

/// Reads chosen samples of `tensors`, or of all, into memory of their own.
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
) -> Result<Vec<HostTensor>, Error> {
    let rows = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    check_rows(rows)?;
    let layout = Layout::new(manifest, tensors, rows)?;
    let buffers = BufferPool::new(layout.buffer_bytes(), 0);
    let (manifest, gather) = (manifest.clone(), Arc::clone(gather));
    let fetcher = BatchFetcher { manifest, layout, buffers, gather, look: None };
    let (buffer, _) = fetcher.read(samples, &CancelToken::new())?;
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
        layout.tensors().iter().map(|&tensor| look(tensor)).collect();
    Ok(views.map(|views| {
        Copies::viewed((rows * layout.row_bytes()) as u64).count();
        layout.lift_views(&views, rows)
    }))
}
