//! What the cache holds, for `node show`, the metrics and `Describe`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larder_base::{ShardId, SnapshotId};
use larder_extent::PageSize;
use larder_store::{ShardView, Tally};

use super::{Cache, Group};
use crate::cache::Failure;
use crate::clock;
use crate::flight::Flight;

/// The memory of a node and who has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// What may be used, in bytes.
    pub limit_bytes: u64,
    /// Shards that are here.
    pub resident: Tally,
    /// Shards on their way, counted whole.
    pub filling: Tally,
    /// Shards let go of that somebody may still map.
    pub orphaned: Tally,
    /// Of those on their way, the ones that no worker has begun.
    pub queued: usize,
    /// The pages that the latest extent came in.
    pub page_size: Option<PageSize>,
}

impl Cache {
    /// The memory in use, by state.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let books = self.lock();
        let budget = books.store.budget();
        Usage {
            limit_bytes: budget.limit_bytes(),
            resident: budget.resident(),
            filling: budget.filling(),
            orphaned: budget.orphaned(),
            queued: books.queue.len(),
            page_size: books.page_size,
        }
    }

    /// Every shard that takes memory, by id; manifests among them.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardView<ShardId, Group>> {
        self.lock().store.shards()
    }

    /// What is here and for how long nobody has used it, in no order. Who maps a shard reads it without a word: it counts
    /// as used now.
    #[must_use]
    pub fn idle_times(&self) -> Vec<(ShardId, Duration)> {
        let (now, books) = (clock::now(), self.lock());
        let idle = |(id, holders, last_used)| match holders {
            0 => (id, now.saturating_duration_since(last_used)),
            _ => (id, Duration::ZERO),
        };
        books.store.residents().map(idle).collect()
    }

    /// The fills that have not ended.
    #[must_use]
    pub fn flights(&self) -> HashMap<ShardId, Arc<Flight>> {
        self.lock().store.fills().map(|(id, flight)| (id, Arc::clone(flight))).collect()
    }

    /// How many connections have each snapshot in use.
    #[must_use]
    pub fn connections(&self) -> HashMap<SnapshotId, usize> {
        let groups = self.lock().store.groups();
        let connections = groups.into_iter().filter_map(|view| match view.group {
            Group::Shards(snapshot) => Some((snapshot, view.sessions)),
            Group::Manifest(_) => None,
        });
        connections.collect()
    }

    /// The latest fills that gave up, oldest first.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.lock().failures.list()
    }
}
