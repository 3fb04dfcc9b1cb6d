//! What a loader did, and what it waited for: as numbers to ask for, and as metrics.
//!
//! Non-goals: what a node did (it has metrics of its own); where each single row came from.

use std::time::Duration;

use crate::Sources;

/// Metrics of the loader: names, units and labels. All count from the start of the process.
mod names {
    /// Batches handed out.
    pub(super) const BATCHES: &str = "larder_client_batches_total";
    /// Rows handed out, padding included; label `source`: `local`, `remote` or `origin`.
    pub(super) const ROWS: &str = "larder_client_rows_total";
    /// Bytes of those rows.
    pub(super) const BYTES: &str = "larder_client_bytes_total";
    /// Bytes copied for those: each as often as this library moved it.
    pub(super) const COPIED: &str = "larder_client_copied_bytes_total";
    /// Seconds for which a batch was waited for by whoever iterates: 0 when it was ready.
    pub(super) const BATCH_WAIT: &str = "larder_client_batch_wait_seconds";
    /// Seconds that it took to fetch the rows of a batch, on a thread of the loader.
    pub(super) const BATCH_FETCH: &str = "larder_client_batch_fetch_seconds";
}

/// Sums over the batches that a loader handed out, in all its epochs. What was fetched ahead and
/// not handed out is not in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoaderStats {
    /// Batches handed out.
    pub batches: u64,
    /// Samples in them, padding aside.
    pub samples: u64,
    /// Rows of padding in them.
    pub padding: u64,
    /// Where the rows came from, their bytes, how often those were copied, and what fetching them
    /// waited for.
    pub sources: Sources,
    /// Time spent fetching rows, summed over the threads that did.
    pub fetching: Duration,
    /// Time for which whoever iterates had to wait: near 0 when the loader keeps up.
    pub waiting: Duration,
}

/// What one batch adds.
pub(crate) struct BatchCost {
    pub(crate) samples: u64,
    pub(crate) padding: u64,
    pub(crate) sources: Sources,
    pub(crate) fetching: Duration,
    pub(crate) waiting: Duration,
}

impl LoaderStats {
    /// Counts a batch that is handed out, here and in the metrics.
    pub(crate) fn record(&mut self, batch: &BatchCost) {
        self.batches += 1;
        self.samples += batch.samples;
        self.padding += batch.padding;
        self.sources += batch.sources;
        self.fetching += batch.fetching;
        self.waiting += batch.waiting;
        let Sources { rows_local, rows_remote, rows_origin, bytes, copies, .. } = batch.sources;
        metrics::counter!(names::BATCHES).increment(1);
        metrics::counter!(names::ROWS, "source" => "local").increment(rows_local);
        metrics::counter!(names::ROWS, "source" => "remote").increment(rows_remote);
        metrics::counter!(names::ROWS, "source" => "origin").increment(rows_origin);
        metrics::counter!(names::BYTES).increment(bytes);
        metrics::counter!(names::COPIED).increment(copies.copied_bytes);
        metrics::histogram!(names::BATCH_WAIT).record(batch.waiting);
        metrics::histogram!(names::BATCH_FETCH).record(batch.fetching);
    }
}
