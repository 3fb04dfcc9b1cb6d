//! The batches of a loader that took longest, with what each waited for: the answer to "why is my
//! device idle?".
//!
//! A few are kept, the slowest there were. A batch that is faster than all of them costs one look.
//!
//! Thread rule: shared by a loader and its epochs, without a lock: it may be used on both sides of
//! a fork.

use std::{cmp::Reverse, time::Duration};

use arc_swap::ArcSwap;
use larder_base::limits;

use crate::{Hop, LongestWait};

/// A batch that took long.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowBatch {
    /// Its epoch.
    pub epoch: u64,
    /// Its number among the batches that this rank got in the epoch, from where that was begun or
    /// resumed.
    pub batch: u64,
    /// How long whoever iterates waited for it: 0 when it was ready.
    pub waiting: Duration,
    /// How long it took to fetch its rows, most of it usually while others were used.
    pub fetching: Duration,
    /// Where the time of fetching went.
    pub hops: [(Hop, Duration); 6],
    /// The longest single wait: for which shard, of which node. Absent when all rows were mapped.
    pub longest: Option<LongestWait>,
}

impl SlowBatch {
    /// By the whole milliseconds for which it was waited, then by the time of fetching: where
    /// nobody had to wait, the batch that came closest to it.
    fn slowness(&self) -> (u128, Duration) {
        slowness(self.waiting, self.fetching)
    }
}

fn slowness(waiting: Duration, fetching: Duration) -> (u128, Duration) {
    (waiting.as_millis(), fetching)
}

/// The slowest batches so far.
#[derive(Debug, Default)]
pub(super) struct Slowest {
    /// The slowest first, at most [`limits::SLOW_BATCHES_KEPT_MAX`].
    kept: ArcSwap<Vec<SlowBatch>>,
}

impl Slowest {
    /// Keeps the batch that `describe` makes if it is one of the slowest.
    pub(super) fn offer(
        &self,
        waiting: Duration,
        fetching: Duration,
        describe: impl FnOnce() -> SlowBatch,
    ) {
        let full = |kept: &Vec<SlowBatch>| kept.len() >= limits::SLOW_BATCHES_KEPT_MAX;
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
            kept.truncate(limits::SLOW_BATCHES_KEPT_MAX);
            kept
        });
    }

    /// The slowest first.
    pub(super) fn list(&self) -> Vec<SlowBatch> {
        let kept = self.kept.load().to_vec();
        debug_assert!(kept.is_sorted_by_key(|batch| Reverse(batch.slowness())));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sources;

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
        let kept = limits::SLOW_BATCHES_KEPT_MAX as u64;
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
        for batch in 0..limits::SLOW_BATCHES_KEPT_MAX as u64 {
            offer(&slowest, batch, 10, 10);
        }
        slowest.offer(Duration::from_millis(10), Duration::from_millis(9), || unreachable!());
    }
}
