//! The state behind the cache's one lock: the store, the queue, and the fills that gave up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::{Error, ShardId, SnapshotId, limits};
use larder_dataset::{Leaf, OriginUri};
use larder_extent::{PageSize, Sealed};
use larder_store::{Budget, CannotEvict, Evicted, KeepWhatYouHave, Store};

use super::EvictionGroup;
use crate::cache::{InFlightFill, Queue};

/// Time before a shard is tried again after its fill gave up. A job that asks for it in a loop gets
/// the reason at once, and the origin is spared.
const FAILURE_HOLD: Duration = Duration::from_secs(5);

/// Part of the budget that one client may hold in leases, in percent.
const LEASE_QUOTA_PERCENT: u32 = 90;

pub(super) type ShardStore = Store<ShardId, EvictionGroup, Arc<InFlightFill>, ResidentShard>;
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
    /// It was fetched before a reader asked.
    pub(super) came_ahead: bool,
    /// The leaf in it, if it is one.
    pub(super) leaf: Option<Leaf>,
}

impl ResidentShard {
    pub(super) fn new(sealed: Arc<Sealed>) -> Self {
        Self { sealed, condemned: false, came_ahead: false, leaf: None }
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
        let quota_bytes = budget.limit_bytes() / 100 * u64::from(LEASE_QUOTA_PERCENT);
        Self {
            store: Store::new(budget, policy, quota_bytes),
            queue: Queue::new(super::FILL_QUEUE_MAX),
            failures: Failures::default(),
            closed: None,
            page_size: None,
        }
    }

    /// Looks for a shard. One that is condemned leaves if it can.
    pub(super) fn look(&mut self, id: ShardId, group: EvictionGroup, now: Instant) -> Look {
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

/// A fill that gave up.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The shard.
    pub(crate) id: ShardId,
    /// The snapshot that it was requested for.
    pub(crate) snapshot: SnapshotId,
    /// Its index in that snapshot.
    pub(crate) shard: u32,
    /// The read that failed, if it was a single read.
    pub(crate) place: Option<FailedRead>,
    /// Why.
    pub(crate) why: Arc<Error>,
    /// Number of tries.
    pub(crate) attempts: u32,
    /// When it gave up.
    pub(crate) at: Instant,
}

/// A read of the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedRead {
    /// The object.
    pub(crate) object: OriginUri,
    /// The byte of the object at which the read begins.
    pub(crate) offset: u64,
    /// Length of the read in bytes.
    pub(crate) bytes: u64,
}

/// The latest failures, oldest first. They are listed for operators, and hold off repeated requests
/// for a moment.
#[derive(Debug, Default)]
pub(crate) struct Failures(VecDeque<Failure>);

impl Failures {
    pub(crate) fn add(&mut self, failure: Failure) {
        if self.0.len() == limits::FAILURES_KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(failure);
    }

    /// Why a shard is not tried again yet.
    pub(crate) fn held(&self, id: ShardId, now: Instant) -> Option<Arc<Error>> {
        let age = |failure: &&Failure| now.saturating_duration_since(failure.at);
        let mut recent = self.0.iter().rev().take_while(|one| age(one) < FAILURE_HOLD);
        recent.find(|failure| failure.id == id).map(|failure| Arc::clone(&failure.why))
    }

    pub(crate) fn list(&self) -> Vec<Failure> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use larder_base::ErrorKind;

    use crate::clock;

    #[test]
    fn failure_applies_to_its_shard_for_a_short_time() {
        let (mut failures, now) = (Failures::default(), clock::now());
        let [failed, other] = [1, 2].map(|shard| ShardId::from_bytes([shard; 16]));
        failures.add(Failure {
            id: failed,
            snapshot: SnapshotId::from_bytes([9; 32]),
            shard: 0,
            place: None,
            why: Arc::new(Error::new(ErrorKind::DataLoss, "as the test says")),
            attempts: 2,
            at: now,
        });
        assert!(failures.held(failed, now).is_some());
        assert!(failures.held(other, now).is_none());
        assert!(failures.held(failed, now + FAILURE_HOLD).is_none());
    }
}
