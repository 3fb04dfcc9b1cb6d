//! The state behind the cache's one lock.

use std::sync::Arc;
use std::time::Instant;

use larder_base::{Error, ShardId, limits};
use larder_extent::{PageSize, Sealed};
use larder_store::{Budget, CannotEvict, Evicted, KeepWhatYouHave, Store};

use super::Group;
use crate::cache::InFlightFill;
use crate::cache::{Failures, Queue};

pub(super) type ShardStore = Store<ShardId, Group, Arc<InFlightFill>, ResidentShard>;
pub(super) type EvictedShard = Evicted<ShardId, ResidentShard>;

#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) store: ShardStore,
    pub(super) queue: Queue,
    pub(super) failures: Failures,
    /// Set when the cache closes: the reason why fills end.
    pub(super) closed: Option<Arc<Error>>,
    /// The page size of the latest extent.
    pub(super) page_size: Option<PageSize>,
}

/// A shard that is here.
#[derive(Debug, Clone)]
pub(super) struct ResidentShard {
    pub(super) sealed: Arc<Sealed>,
    /// It is no longer handed out, and leaves with its last lease.
    pub(super) condemned: bool,
}

impl ResidentShard {
    pub(super) fn new(sealed: Arc<Sealed>) -> Self {
        Self { sealed, condemned: false }
    }
}

/// The result of a look for a shard.
pub(super) enum Look {
    Absent,
    Here(Arc<Sealed>),
    /// It was here, and was not to be handed out.
    Discarded(Discarded),
}

/// The outcome of discarding a shard.
#[must_use]
#[derive(Debug)]
pub(super) enum Discarded {
    /// It was evicted and must be buried.
    Evicted(EvictedShard),
    /// A client holds it: it is evicted with the last lease. `news` if it was not condemned before.
    Condemned { news: bool },
    /// It is not resident.
    Absent,
}

impl CacheState {
    pub(super) fn new(budget: Budget, policy: KeepWhatYouHave) -> Self {
        let quota_bytes = budget.limit_bytes() / 100 * u64::from(limits::LEASE_QUOTA_PERCENT);
        Self {
            store: Store::new(budget, policy, quota_bytes),
            queue: Queue::new(limits::FILL_QUEUE_MAX),
            failures: Failures::default(),
            closed: None,
            page_size: None,
        }
    }

    /// Looks for a shard. One that is condemned leaves if it can.
    pub(super) fn look(&mut self, id: ShardId, group: Group, now: Instant) -> Look {
        match self.store.get(id, group, now) {
            None => Look::Absent,
            Some(kept) if kept.condemned => Look::Discarded(self.discard(id, now)),
            Some(kept) => Look::Here(kept.sealed),
        }
    }

    /// Evicts a shard, or condemns it to be evicted with its last lease.
    pub(super) fn discard(&mut self, id: ShardId, now: Instant) -> Discarded {
        match self.store.evict(id, now) {
            Ok(evicted) => Discarded::Evicted(evicted),
            Err(CannotEvict::NotResident) => Discarded::Absent,
            Err(CannotEvict::Leased { .. }) => {
                let kept = self.store.handle_mut(id).expect("what is leased is here");
                Discarded::Condemned { news: !std::mem::replace(&mut kept.condemned, true) }
            }
        }
    }

    /// Evicts those of `ids` that are condemned and no longer leased.
    pub(super) fn evict_condemned(&mut self, ids: &[ShardId], now: Instant) -> Vec<EvictedShard> {
        let evict = |id: &ShardId| {
            let condemned = self.store.handle_mut(*id).is_some_and(|kept| kept.condemned);
            condemned.then(|| self.store.evict(*id, now).ok()).flatten()
        };
        ids.iter().filter_map(evict).collect()
    }
}
