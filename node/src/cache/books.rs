//! Everything that stands behind the cache's one lock.

use std::sync::Arc;
use std::time::Instant;

use larder_base::{Error, ShardId, limits};
use larder_extent::{PageSize, Sealed};
use larder_store::{Budget, CannotEvict, Evicted, KeepWhatYouHave, Store};

use super::Group;
use super::kept::{Fit, Kept};
use crate::cache::{Failures, Queue};
use crate::flight::Flight;

pub(super) type ShardStore = Store<ShardId, Group, Arc<Flight>, Kept>;
pub(super) type EvictedShard = Evicted<ShardId, Kept>;

#[derive(Debug)]
pub(super) struct Books {
    pub(super) store: ShardStore,
    pub(super) queue: Queue,
    pub(super) failures: Failures,
    /// Why nothing is filled any more.
    pub(super) closed: Option<Arc<Error>>,
    /// What the latest extent came in.
    pub(super) page_size: Option<PageSize>,
}

/// What a look for a shard came to.
pub(super) enum Look {
    Absent,
    Here(Arc<Sealed>),
    /// It is here, and not what the asker pins: that is not what the origin has.
    Wrong,
    /// It is here, and not what the asker pins, whose own fill gave up lately.
    Held(Arc<Error>),
    /// It was here, and was not what the asker pins: it is gone, to be read again.
    Doubted(EvictedShard),
    /// It was here, and was not to be handed out.
    Discarded(Discarded),
}

/// What became of a shard that is not to be handed out any more.
#[must_use]
#[derive(Debug)]
pub(super) enum Discarded {
    /// It is gone, and to be buried.
    Evicted(EvictedShard),
    /// Somebody maps it: it goes with the last lease. `news` if it was not condemned before.
    Condemned { news: bool },
    /// It is not here.
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

    /// Looks for a shard for somebody who pins `pinned`. One that may be wrong leaves because of it.
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
            // Who maps it pins nothing, or this: it is not taken from them over another's checksum.
            Fit::Doubtful => self.store.evict(id, now).map_or(Look::Wrong, Look::Doubted),
            Fit::Unknown => match self.failures.held(id, pinned, now) {
                Some(why) => Look::Held(why),
                None => Look::Discarded(self.discard(id, now)),
            },
        }
    }

    /// Notes that a shard is what somebody pins, if anything is pinned.
    fn prove(&mut self, id: ShardId, pinned: Option<u64>) {
        if pinned.is_some()
            && let Some(kept) = self.store.handle_mut(id)
        {
            kept.prove();
        }
    }

    /// Lets go of a shard, or sees to it that it goes with its last lease.
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

    /// Lets go of those among `ids` that are condemned and that nobody leases any more.
    pub(super) fn evict_condemned(&mut self, ids: &[ShardId], now: Instant) -> Vec<EvictedShard> {
        let evict = |id: &ShardId| {
            let condemned = self.store.handle_mut(*id).is_some_and(|kept| kept.condemned);
            condemned.then(|| self.store.evict(*id, now).ok()).flatten()
        };
        ids.iter().filter_map(evict).collect()
    }
}
