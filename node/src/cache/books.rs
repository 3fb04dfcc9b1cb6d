//! The state behind the cache's one lock.

use std::sync::Arc;
use std::time::Instant;

use larder_dataset::ShardId;
use larder_extent::{PageSize, Sealed};
use larder_store::{Budget, CannotEvict, Evicted, KeepWhatYouHave, Store};
use larder_wire::{Error, limits};

use super::Group;
use super::kept::{Fit, Kept};
use crate::fill::{Failures, Queue};
use crate::flight::Flight;

pub(super) type ShardStore = Store<ShardId, Group, Arc<Flight>, Kept>;
pub(super) type EvictedShard = Evicted<ShardId, Kept>;

#[derive(Debug)]
pub(super) struct Books {
    pub(super) store: ShardStore,
    pub(super) queue: Queue,
    pub(super) failures: Failures,
    /// Set when the cache closes: the reason why fills end.
    pub(super) closed: Option<Arc<Error>>,
    /// The page size of the latest extent.
    pub(super) page_size: Option<PageSize>,
}

/// The outcome of a look for a shard.
pub(super) enum Look {
    Absent,
    Here(Arc<Sealed>),
    /// It is resident with bytes other than the caller pins, and they equal the origin's.
    Wrong,
    /// It is resident with bytes other than the caller pins. A fill for that pin failed lately.
    Held(Arc<Error>),
    /// It was resident with bytes other than the caller pins. It was evicted, to be read again.
    Doubted(EvictedShard),
    /// It was resident and must not be handed out.
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

impl Books {
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

    /// Looks for a shard for a caller that pins `pinned`. Evicts it if it may be wrong.
    pub(super) fn look(
        &mut self,
        id: ShardId,
        group: Group,
        pinned: Option<u64>,
        now: Instant,
    ) -> Look {
        let Some(kept) = self.store.get(id, group, now) else { return Look::Absent };
        if kept.condemned {
            return Look::Discarded(self.discard(id, now));
        }
        match kept.fit(pinned, now) {
            Fit::Right => {
                self.prove(id, pinned);
                Look::Here(kept.sealed)
            }
            Fit::Wrong => Look::Wrong,
            // Clients that map it pin nothing, or these bytes. Another pin must not take it from
            // them.
            Fit::Doubtful => self.store.evict(id, now).map_or(Look::Wrong, Look::Doubted),
            Fit::Unknown => match self.failures.held(id, pinned, now) {
                Some(why) => Look::Held(why),
                None => Look::Discarded(self.discard(id, now)),
            },
        }
    }

    /// Notes that a shard has the checksum that a caller pins.
    fn prove(&mut self, id: ShardId, pinned: Option<u64>) {
        if pinned.is_some()
            && let Some(kept) = self.store.handle_mut(id)
        {
            kept.prove();
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
