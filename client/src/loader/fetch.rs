//! From the number of a batch to the batch: which rows, into which buffer.

use std::sync::Arc;

use larder_dataset::Manifest;

use super::{batch::Batch, layout::Layout, pass::Pass};
use crate::{Error, RowRef, buffer::BufferPool, fetch::Gathered, patience::CancelToken, process};

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
        let locate = |&sample: &u64| {
            let (shard, row) = self.manifest.locate(sample).expect("a sample of this snapshot");
            RowRef { shard, row }
        };
        let rows: Vec<RowRef> = samples.iter().map(locate).collect();
        let mut buffer = self.buffers.take();
        let mut parts = self.layout.split(&mut buffer, rows.len());
        let gathered = (self.gather)(&rows, self.layout.tensors(), &mut parts, cancel)?;
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
}
