//! Plain counts of a node's fills since it started. The metrics and `Describe` show them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current count.
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
    /// Shards that were given up, or that differ from the checksum that a waiting snapshot pins.
    pub fills_failed: Counter,
    /// Fills that another worker continued because the first one died.
    pub fills_handed_over: Counter,
    /// Requests to the origin for shards or rows, retries included.
    pub origin_requests: Counter,
    /// Bytes that the origin sent, those of failed tries included.
    pub origin_bytes: Counter,
    /// Requests that were tried again.
    pub origin_retries: Counter,
    /// Bytes of shards that came from other nodes.
    pub peer_bytes: Counter,
    /// Rows read by range because their shard is not kept.
    pub rows_by_range: Counter,
    /// Shards evicted to make room, or because they were found corrupt.
    pub evictions: Counter,
    /// The bytes of those shards.
    pub evicted_bytes: Counter,
    /// Shards found corrupt in memory.
    pub corrupt_shards: Counter,
}
