//! The contents of the cache and the counts of its fills, for `node show`, the metrics and
//! `Describe`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_base::{ShardId, SnapshotId};
use larder_extent::PageSize;
use larder_store::{HeldShard, ShardView, Tally};

use super::{Cache, EvictionGroup};
use crate::cache::{Failure, InFlightFill};
use crate::clock;

/// The memory of a node and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryUsage {
    /// The budget in bytes.
    pub(crate) limit_bytes: u64,
    /// The most shards there may be, in any state.
    pub(crate) shards_max: usize,
    /// Resident shards.
    pub(crate) resident: Tally,
    /// Shards that are being filled, counted with all their bytes.
    pub(crate) filling: Tally,
    /// Evicted shards that a process may still map.
    pub(crate) orphaned: Tally,
    /// Shards evicted so far because they were given up.
    pub(crate) given_up_count: u64,
    /// Fills that no worker has begun.
    pub(crate) queued: usize,
    /// The page size of the latest extent.
    pub(crate) page_size: Option<PageSize>,
}

/// The memory of a node, and the shards in it.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// The budget.
    pub(crate) limit_bytes: u64,
    /// The most shards there may be.
    pub(crate) shards_max: usize,
    /// Evicted shards that a process still maps.
    pub(crate) mapped_orphan_bytes: u64,
    /// Shards, manifests and leaves, in no order.
    pub(crate) held: Vec<HeldShard<ShardId>>,
}

impl Cache {
    /// Returns the memory and the shards in it.
    pub(crate) fn inventory(&self) -> Inventory {
        let (now, state) = (clock::now(), self.lock());
        let store = &state.store;
        Inventory {
            limit_bytes: store.budget().limit_bytes(),
            shards_max: store.budget().shards_max(),
            mapped_orphan_bytes: store.mapped_orphan_bytes(now),
            held: store.held(now).collect(),
        }
    }

    /// Returns the memory in use, by state.
    pub(crate) fn usage(&self) -> MemoryUsage {
        let state = self.lock();
        let budget = state.store.budget();
        MemoryUsage {
            limit_bytes: budget.limit_bytes(),
            shards_max: budget.shards_max(),
            resident: budget.resident(),
            filling: budget.filling(),
            orphaned: budget.orphaned(),
            given_up_count: state.store.given_up_count(),
            queued: state.queue.len(),
            page_size: state.page_size,
        }
    }

    /// Returns every shard that takes memory, by id, manifests included.
    pub(crate) fn shards(&self) -> Vec<ShardView<ShardId, EvictionGroup>> {
        self.lock().store.shards()
    }

    /// Returns the resident shards with the time since their last use, in no order. A mapped shard
    /// is read without notice, so it counts as used now.
    pub(crate) fn idle_times(&self) -> Vec<(ShardId, Duration)> {
        let (now, state) = (clock::now(), self.lock());
        let idle = |(id, holders, last_used)| match holders {
            0 => (id, now.saturating_duration_since(last_used)),
            _ => (id, Duration::ZERO),
        };
        state.store.residents().map(idle).collect()
    }

    /// Returns the fills that have not ended.
    pub(crate) fn flights(&self) -> HashMap<ShardId, Arc<InFlightFill>> {
        self.lock().store.fills().map(|(id, flight)| (id, Arc::clone(flight))).collect()
    }

    /// Returns how many connections use each snapshot.
    pub(crate) fn connections(&self) -> HashMap<SnapshotId, usize> {
        let groups = self.lock().store.groups();
        let connections = groups.into_iter().filter_map(|view| match view.group {
            EvictionGroup::Shards(snapshot) => Some((snapshot, view.sessions)),
            EvictionGroup::Leaves(_) | EvictionGroup::Manifest(_) => None,
        });
        connections.collect()
    }

    /// Returns the latest fills that gave up, oldest first.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.lock().failures.list()
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current count.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one node since it started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Shards that became resident.
    pub(crate) fills_completed: Counter,
    /// Shards that were given up, or that differ from the checksum that a waiting snapshot pins.
    pub(crate) fills_failed: Counter,
    /// Fills that another worker continued because the first one died.
    pub(crate) fills_handed_over: Counter,
    /// Requests to the origin for shards or rows, retries included.
    pub(crate) origin_requests: Counter,
    /// Bytes that the origin sent, those of failed tries included.
    pub(crate) origin_bytes: Counter,
    /// Requests that were tried again.
    pub(crate) origin_retries: Counter,
    /// Bytes of shards that came from other nodes.
    pub(crate) peer_bytes: Counter,
    /// Rows read by range because their shard is not kept.
    pub(crate) rows_by_range: Counter,
    /// Bytes of shards that were fetched before a reader asked.
    pub(crate) prefetched_bytes: Counter,
    /// Those of them that were evicted before any read.
    pub(crate) prefetched_unread_bytes: Counter,
    /// Shards evicted to make room, or because they were found corrupt.
    pub(crate) evictions: Counter,
    /// The bytes of those shards.
    pub(crate) evicted_bytes: Counter,
    /// Shards found corrupt in memory.
    pub(crate) corrupt_shards: Counter,
}
