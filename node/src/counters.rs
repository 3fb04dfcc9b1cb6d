//! What the fills of a node have done so far, as plain counts; the metrics and `Describe` show them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one node since it started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Shards that became resident.
    pub fills_completed: Counter,
    /// Shards that were given up, or are not what somebody pins who waited for them.
    pub fills_failed: Counter,
    /// Fills that went on under another worker because the first one died.
    pub fills_handed_over: Counter,
    /// Requests to the origin for shards or rows, tries included.
    pub origin_requests: Counter,
    /// Bytes that came back, those of failed tries included.
    pub origin_bytes: Counter,
    /// Requests that were tried again.
    pub origin_retries: Counter,
    /// Bytes of shards that came from other nodes.
    pub peer_bytes: Counter,
    /// Rows read by range because their shard is not kept.
    pub rows_by_range: Counter,
    /// Shards let go of to make room, or because they were found corrupt.
    pub evictions: Counter,
    /// The bytes of those shards.
    pub evicted_bytes: Counter,
    /// Shards found corrupt in memory.
    pub corrupt_shards: Counter,
}
