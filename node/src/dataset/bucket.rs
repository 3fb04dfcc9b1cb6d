//! What the datasets of one bucket share on this node: the health of the bucket, its retries, and
//! its share of workers and requests.
//!
//! Nothing here is shared among buckets. So the fills and reads of a bucket that hangs, drips or
//! refuses keep its own readers waiting. All buckets still share the turns to index a prefix, and
//! the memory of rows that are read by range.
//!
//! Thread rule: cheap to share; all threads use it at once.

mod gate;
mod retry;
mod urgency;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use larder_base::limits;
use larder_dataset::Origin;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock;

pub(crate) use gate::{Gate, Turn};
pub(crate) use retry::{RetryBudget, wait_after};
pub(crate) use urgency::{Need, Urgency};

/// Reads by range (of rows that will not be kept) in flight at once for a bucket, and of one
/// request.
pub(crate) const RANGE_READS_MAX: usize = 64;

/// Shards of a bucket that a node fetches ahead at once. Fewer than its fills, so that readers that
/// wait find a worker.
const PREFETCHES_MAX: usize = limits::FILLS_IN_FLIGHT_MAX / 2;

/// Blocks that are read while all cores make rows of others.
const BLOCKS_AHEAD: usize = 2;

/// A bucket, as a node uses it.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bounds the GETs of parts at once, over all fills.
    pub(crate) gets: Gate,
    /// Bounds the reads by range at once.
    pub(crate) ranges: Gate,
    /// All retries of reads.
    pub(crate) retries: RetryBudget,
    /// Blocks whose rows are made, and some that are read meanwhile.
    pub(crate) blocks: Arc<Semaphore>,
    prefetches: Arc<Semaphore>,
    fills: AtomicUsize,
    answers: AtomicU64,
    away: AtomicBool,
}

impl Default for Bucket {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            gets: Gate::new(limits::FILL_GETS_MAX),
            ranges: Gate::new(RANGE_READS_MAX),
            retries: RetryBudget::new(clock::now()),
            blocks: Arc::new(Semaphore::new(cores + BLOCKS_AHEAD)),
            prefetches: Arc::new(Semaphore::new(PREFETCHES_MAX)),
            fills: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
            away: AtomicBool::new(false),
        }
    }
}

impl Bucket {
    /// Begins a fill, unless the bucket has its share of fills. One whose requests fail has few.
    pub(crate) fn begin_fill(self: &Arc<Self>) -> Option<FillShare> {
        let most = limits::FILLS_IN_FLIGHT_MAX.min(self.gets.limit());
        let more = |fills| (fills < most).then_some(fills + 1);
        let begun = self.fills.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.ok().map(|_| FillShare(Arc::clone(self)))
    }

    /// Begins to fetch a shard ahead, unless enough are being fetched.
    pub(crate) fn begin_prefetch(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.prefetches).try_acquire_owned().ok()
    }

    /// Returns the number of successful reads so far, for [`gave_up`](Self::gave_up).
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Notes a successful read.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.away.store(false, Ordering::Relaxed);
    }

    /// Notes a failed read. `answers` is the number of successful reads when it began.
    pub(crate) fn gave_up(&self, answers: u64) {
        if self.answers() == answers {
            self.away.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true while no read gets an answer: try only once.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }
}

/// One of the fills that a bucket may have. Drop gives it back.
#[derive(Debug)]
pub(crate) struct FillShare(Arc<Bucket>);

impl Drop for FillShare {
    fn drop(&mut self) {
        self.0.fills.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The buckets of the open datasets.
#[derive(Debug, Default)]
pub(crate) struct Buckets(Mutex<Vec<(Origin, Weak<Bucket>)>>);

impl Buckets {
    /// Returns the bucket of an origin.
    pub(crate) fn of(&self, origin: &Origin) -> Arc<Bucket> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, bucket)| bucket.strong_count() > 0);
        let mut same = known.iter().filter(|(other, _)| other.is_same_bucket(origin));
        if let Some(bucket) = same.find_map(|(_, bucket)| bucket.upgrade()) {
            return bucket;
        }
        let bucket = Arc::default();
        known.push((origin.clone(), Arc::downgrade(&bucket)));
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_is_away_when_a_read_gives_up_without_any_answer() {
        let bucket = Bucket::default();
        let begun = bucket.answers();
        bucket.answered();
        bucket.gave_up(begun);
        assert!(!bucket.is_away(), "another read succeeded meanwhile");
        bucket.gave_up(bucket.answers());
        assert!(bucket.is_away());
        bucket.answered();
        assert!(!bucket.is_away());
    }

    #[test]
    fn bucket_has_a_share_of_fills_that_falls_with_its_requests() {
        let bucket = Arc::new(Bucket::default());
        let begin = || std::iter::from_fn(|| bucket.begin_fill()).collect::<Vec<_>>();
        let first = begin();
        assert_eq!(first.len(), bucket.gets.limit());
        drop(first);
        for _ in 0..20 {
            bucket.gets.cut();
        }
        assert_eq!(begin().len(), 1);
    }
}
