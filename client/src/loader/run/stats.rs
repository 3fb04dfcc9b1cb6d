//! The statistics of a loader: sums over its batches, also as metrics, and its slowest batches,
//! each with the reasons for its wait. They answer the question "why is my device idle?".
//!
//! Only a few slow batches are kept. A batch that is faster than all of them costs one comparison.
//!
//! Thread rule: a loader and its epochs share them without a lock, so they work on both sides of a
//! fork.

use std::{cmp::Reverse, time::Duration};

use arc_swap::ArcSwap;

use crate::{Hop, LongestWait, Sources, loader::batch::Batch};

/// Slow batches that a loader keeps in detail: enough to see a common cause.
const SLOW_BATCHES_KEPT_MAX: usize = 32;

/// Metrics of the loader: names, units and labels. All count from the start of the process.
mod names {
    /// Batches handed out.
    pub(super) const BATCHES: &str = "larder_client_batches_total";
    /// Rows handed out, including padding. Label `source`: `local`, `remote` or `origin`.
    pub(super) const ROWS: &str = "larder_client_rows_total";
    /// Samples that can't be decoded and were skipped.
    pub(super) const SKIPPED: &str = "larder_client_skipped_samples_total";
    /// Bytes of those rows.
    pub(super) const BYTES: &str = "larder_client_bytes_total";
    /// Bytes copied for these rows. A byte that was moved twice counts twice.
    pub(super) const COPIED: &str = "larder_client_copied_bytes_total";
    /// Seconds that the consumer waited for a batch: 0 if it was ready.
    pub(super) const BATCH_WAIT: &str = "larder_client_batch_wait_seconds";
    /// Seconds of fetching a batch's rows, on a thread of the loader.
    pub(super) const BATCH_FETCH: &str = "larder_client_batch_fetch_seconds";
}

/// Sums over the batches that a loader handed out, in all its epochs. Excludes batches that were
/// only fetched ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoaderStats {
    /// Batches handed out.
    pub batches: u64,
    /// Samples in them, without padding.
    pub samples: u64,
    /// Rows of padding in them.
    pub padding: u64,
    /// Samples that can't be decoded and were skipped. Another of the batch stood for each.
    pub skipped: u64,
    /// Sources and bytes of the rows, the number of copies, and the waits of fetching.
    pub sources: Sources,
    /// Time of fetching rows, summed over the threads.
    pub fetching: Duration,
    /// Time that the consumer waited: near 0 if the loader keeps up.
    pub waiting: Duration,
}

impl LoaderStats {
    /// Counts a batch that is handed out, here and in the metrics.
    pub(in crate::loader) fn record<P>(&mut self, batch: &Batch<P>, waiting: Duration) {
        let (padding, sources, fetching) = (batch.padding(), batch.sources(), batch.fetching());
        self.batches += 1;
        self.samples += (batch.len() - padding) as u64;
        self.padding += padding as u64;
        self.skipped += batch.skipped();
        self.sources += sources;
        self.fetching += fetching;
        self.waiting += waiting;
        let Sources { rows_local, rows_remote, rows_origin, bytes, copies, .. } = sources;
        metrics::counter!(names::BATCHES).increment(1);
        metrics::counter!(names::ROWS, "source" => "local").increment(rows_local);
        metrics::counter!(names::ROWS, "source" => "remote").increment(rows_remote);
        metrics::counter!(names::ROWS, "source" => "origin").increment(rows_origin);
        metrics::counter!(names::SKIPPED).increment(batch.skipped());
        metrics::counter!(names::BYTES).increment(bytes);
        metrics::counter!(names::COPIED).increment(copies.copied_bytes);
        metrics::histogram!(names::BATCH_WAIT).record(waiting);
        metrics::histogram!(names::BATCH_FETCH).record(fetching);
    }
}

/// A slow batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowBatch {
    /// Its epoch.
    pub epoch: u64,
    /// Its number among the batches that this rank got in the epoch, from where the epoch began or
    /// resumed.
    pub batch: u64,
    /// How long the consumer waited for it: 0 if it was ready.
    pub waiting: Duration,
    /// How long it took to fetch its rows, mostly while other batches were used.
    pub fetching: Duration,
    /// The time of fetching, by cause.
    pub hops: [(Hop, Duration); 6],
    /// The longest single wait, with its shard and node. Absent if all rows were mapped.
    pub longest: Option<LongestWait>,
}

impl SlowBatch {
    /// Orders by the whole milliseconds that the consumer waited, then by the time of fetching.
    /// Among batches without a wait, the slowest to fetch came closest to one.
    fn slowness(&self) -> (u128, Duration) {
        slowness(self.waiting, self.fetching)
    }
}

fn slowness(waiting: Duration, fetching: Duration) -> (u128, Duration) {
    (waiting.as_millis(), fetching)
}

#[derive(Debug, Default)]
pub(in crate::loader) struct Slowest {
    /// At most [`SLOW_BATCHES_KEPT_MAX`], the slowest first.
    kept: ArcSwap<Vec<SlowBatch>>,
}

impl Slowest {
    /// Keeps the batch that `describe` returns if it is one of the slowest.
    pub(in crate::loader) fn offer(
        &self,
        waiting: Duration,
        fetching: Duration,
        describe: impl FnOnce() -> SlowBatch,
    ) {
        let full = |kept: &Vec<SlowBatch>| kept.len() >= SLOW_BATCHES_KEPT_MAX;
        let slow = slowness(waiting, fetching);
        let kept = self.kept.load();
        if full(&kept) && kept.last().is_some_and(|least| least.slowness() >= slow) {
            return;
        }
        let batch = describe();
        self.kept.rcu(|kept| {
            let mut kept = kept.to_vec();
            let place = kept.partition_point(|other| other.slowness() >= slow);
            kept.insert(place, batch.clone());
            kept.truncate(SLOW_BATCHES_KEPT_MAX);
            kept
        });
    }

    /// The slowest first.
    pub(in crate::loader) fn list(&self) -> Vec<SlowBatch> {
        let kept = self.kept.load().to_vec();
        debug_assert!(kept.is_sorted_by_key(|batch| Reverse(batch.slowness())));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(slowest: &Slowest, batch: u64, waiting_ms: u64, fetching_ms: u64) {
        let [waiting, fetching] = [waiting_ms, fetching_ms].map(Duration::from_millis);
        slowest.offer(waiting, fetching, || SlowBatch {
            epoch: 0,
            batch,
            waiting,
            fetching,
            hops: Sources::default().hops(),
            longest: None,
        });
    }

    fn batches(slowest: &Slowest) -> Vec<u64> {
        slowest.list().iter().map(|batch| batch.batch).collect()
    }

    #[test]
    fn sorts_batches_by_wait_and_then_by_fetch_time() {
        let slowest = Slowest::default();
        offer(&slowest, 0, 0, 5);
        offer(&slowest, 1, 30, 31);
        offer(&slowest, 2, 0, 90);
        offer(&slowest, 3, 400, 1);
        assert_eq!(batches(&slowest), [3, 1, 2, 0]);
    }

    #[test]
    fn keeps_only_the_slowest_batches_up_to_the_limit() {
        let slowest = Slowest::default();
        let kept = SLOW_BATCHES_KEPT_MAX as u64;
        for batch in 0..10 * kept {
            offer(&slowest, batch, batch * 7 % (10 * kept), 0);
        }
        let waits: Vec<u128> =
            slowest.list().iter().map(|batch| batch.waiting.as_millis()).collect();
        let wanted: Vec<u128> = (9 * kept..10 * kept).rev().map(u128::from).collect();
        assert_eq!(waits, wanted);
    }

    #[test]
    fn batch_that_is_not_slow_is_not_described() {
        let slowest = Slowest::default();
        for batch in 0..SLOW_BATCHES_KEPT_MAX as u64 {
            offer(&slowest, batch, 10, 10);
        }
        slowest.offer(Duration::from_millis(10), Duration::from_millis(9), || unreachable!());
    }
}
