//! From the number of a batch to the batch: which rows, into which buffer.

use std::sync::Arc;

use larder_dataset::Manifest;

use super::{
    batch::Batch,
    layout::{Layout, check_rows},
    pass::Pass,
};
use crate::{
    Error, HostTensor, Memory, RowRef,
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

/// Everything that fetching a batch takes, shared by the threads that do.
pub(super) struct BatchFetcher {
    pub(super) manifest: Manifest,
    pub(super) layout: Arc<Layout>,
    pub(super) buffers: Arc<BufferPool>,
    pub(super) gather: Arc<Gather>,
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
        let (buffer, gathered) = self.read(&samples, cancel)?;
        Ok(Batch {
            layout: Arc::clone(&self.layout),
            buffer,
            padding: usize::try_from(padding).expect("no more than rows in memory"),
            samples,
            state: pass.state_after(batch),
            sources: gathered.sources,
            longest: gathered.longest,
            fetching: process::now().saturating_duration_since(begun),
        })
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
    let fetcher = BatchFetcher { manifest, layout, buffers, gather };
    let (buffer, _) = fetcher.read(samples, &CancelToken::new())?;
    Ok(fetcher.layout.lift(&Memory::pooled(buffer), samples.len()))
}
