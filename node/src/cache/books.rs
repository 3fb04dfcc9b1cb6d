//! Everything that stands behind the cache's one lock.

use std::collections::HashSet;
use std::sync::Arc;

use larder_dataset::ShardId;
use larder_extent::{PageSize, Sealed};
use larder_store::{Budget, Evicted, KeepWhatYouHave, Store};
use larder_wire::{Error, limits};

use super::Group;
use crate::fill::{Failures, Queue};
use crate::flight::Flight;

pub(super) type ShardStore = Store<ShardId, Group, Arc<Flight>, Arc<Sealed>>;
pub(super) type EvictedShard = Evicted<ShardId, Arc<Sealed>>;

#[derive(Debug)]
pub(super) struct Books {
    pub(super) store: ShardStore,
    pub(super) queue: Queue,
    pub(super) failures: Failures,
    /// Corrupt shards that somebody maps: not handed out any more, evicted with their last lease.
    pub(super) condemned: HashSet<ShardId>,
    /// Why nothing is filled any more.
    pub(super) closed: Option<Arc<Error>>,
    /// What the latest extent came in.
    pub(super) page_size: Option<PageSize>,
}

impl Books {
    pub(super) fn new(budget: Budget, policy: KeepWhatYouHave) -> Self {
        let quota_bytes = budget.limit_bytes() / 100 * u64::from(limits::LEASE_QUOTA_PERCENT);
        Self {
            store: Store::new(budget, policy, quota_bytes),
            queue: Queue::new(limits::FILL_QUEUE_MAX),
            failures: Failures::default(),
            condemned: HashSet::new(),
            closed: None,
            page_size: None,
        }
    }
}
