//! Shards that a ring change moves here, and old copies that it leaves behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use larder_base::{ErrorKind, ShardId, limits};
use larder_membership::agent::{Pulled, Shard};
use larder_membership::record::DatasetRecord as Described;

use super::planning::open;
use crate::background::replication::give_way;
use crate::cache::Priority;
use crate::clock;
use crate::cluster::Cluster;
use crate::fill::Brought;
use crate::shared::Shared;

/// The part of the cache that concerns the agent.
pub(super) struct Holdings {
    shared: Arc<Shared>,
    own_id: String,
    state: Mutex<State>,
    /// No replicas are evicted before this. Held during the eviction.
    vain_until: tokio::sync::Mutex<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// Pulled shards that are still here, as far as is known.
    pulled: HashMap<ShardId, Shard>,
    /// Pulled shards that were evicted and not yet reported.
    lost: Vec<Shard>,
    /// Shards that other nodes own now and hold.
    to_drop: BTreeMap<Shard, Old>,
}

/// An old copy.
#[derive(Debug, Clone, Copy)]
struct Old {
    /// When it became one.
    since: Instant,
    /// When it was dropped here.
    gone: Option<Instant>,
}

/// How long an old copy is kept, unless its memory is needed. By then every client has refreshed
/// the ring. An earlier drop would make clients with the old ring cause a fill from the new owner,
/// for nothing.
const KEPT_FOR: Duration = limits::RING_REFRESH_INTERVAL;

/// How long a dropped copy that comes back is dropped again. Clients with the old ring still
/// request the shard here, and get it.
const WATCHED_FOR: Duration = limits::RING_REFRESH_INTERVAL.saturating_mul(3);

/// Room is made for at least one part in this many of the budget at once.
const ROOM_SHARE: u64 = 16;

/// How long no room is searched for after none was found.
const VAIN_FOR: Duration = Duration::from_secs(15);

impl Holdings {
    pub(super) fn new(shared: &Arc<Shared>, own_id: &str) -> Arc<Self> {
        let (shared, own_id) = (Arc::clone(shared), own_id.to_owned());
        let vain_until = tokio::sync::Mutex::new(clock::now());
        let holdings = Arc::new(Self { shared, own_id, state: Mutex::default(), vain_until });
        let told: Weak<Self> = Arc::downgrade(&holdings);
        holdings.shared.cache.on_evicted(Box::new(move |shard| {
            if let Some(holdings) = told.upgrade() {
                holdings.evicted(shard);
            }
        }));
        holdings
    }

    /// Pulls a shard of a dataset here, from a node that holds it, else from the origin.
    pub(super) async fn pull(
        &self,
        shard: Shard,
        known: Option<&Described>,
        priority: Priority,
    ) -> Pulled {
        let dataset = match open(&self.shared.catalog, shard.snapshot, known).await {
            Ok(dataset) => dataset,
            Err(why) => {
                tracing::warn!("snapshot {} can't be opened to pull from: {why}", shard.snapshot);
                return not_open(why.kind());
            }
        };
        let Some(index) = dataset.find_shard(shard.shard) else {
            tracing::warn!("snapshot {} has no shard {}", shard.snapshot, shard.shard);
            return Pulled::Gone;
        };
        {
            let mut state = self.lock();
            // Noted before the fill, so that its eviction is not missed.
            state.pulled.insert(shard.shard, shard);
            // It is wanted here again, so it is no old copy any more.
            state.to_drop.remove(&shard);
        }
        let mut brought = self.shared.bring(&dataset, index, priority).await;
        if brought == Brought::NoRoom {
            self.find_room(dataset.manifest().shard(index).bytes).await;
            brought = self.shared.bring(&dataset, index, priority).await;
        }
        if brought != Brought::Here {
            self.lock().pulled.remove(&shard.shard);
        }
        pulled(brought)
    }

    /// Evicts replicas for a shard that is to be pulled, unless that found no room a moment ago.
    async fn find_room(&self, bytes: u64) {
        let mut vain_until = self.vain_until.lock().await;
        if clock::now() < *vain_until {
            return;
        }
        let standing = self.shared.cluster.as_ref().map(Cluster::standing);
        let Some(standing) = standing else { return };
        let Some(record) = &standing.record else { return };
        if standing.installed != record.version {
            // Other nodes use another ring. They may count on copies that this ring calls spare.
            return;
        }
        let change = record.change.as_ref();
        // Make room for concurrent and later pulls as well: a survey costs more than an eviction.
        let with_it = bytes.saturating_mul(limits::PULLS_IN_FLIGHT_MAX as u64 + 1);
        let wanted = with_it.max(self.shared.cache.usage().limit_bytes / ROOM_SHARE);
        // If the primary owner leaves, this may be the copy that the plan counts on.
        let leaves = |first: &str| change.is_some_and(|change| change.takes_out(first));
        let stays =
            |id: &ShardId, first: &str| leaves(first) || self.lock().pulled.contains_key(id);
        if !give_way(&self.shared, wanted, stays).await {
            *vain_until = clock::now() + VAIN_FOR;
        }
    }

    /// Returns the pulled shards that were evicted, each reported once.
    pub(super) fn take_lost(&self) -> Vec<Shard> {
        std::mem::take(&mut self.lock().lost)
    }

    /// Drops a copy that another node owns by now: once no client should request it here, and its
    /// holders have released it.
    pub(super) fn drop_old(&self, shard: Shard) {
        // Not reported as lost: it is not wanted any more.
        let mut state = self.lock();
        state.pulled.remove(&shard.shard);
        state.to_drop.insert(shard, Old { since: clock::now(), gone: None });
    }

    /// Drops the copies that are due, also those that came back. `lives` tells whether a node is
    /// announced. If the owner is not, this node may stand in for it, and keeps the copy.
    pub(super) fn drop_due(&self, lives: impl Fn(&str) -> bool) {
        let now = clock::now();
        let due = |old: &Old| now.saturating_duration_since(old.since) >= KEPT_FOR;
        let old: Vec<_> = self.lock().to_drop.iter().map(|(shard, old)| (*shard, *old)).collect();
        let placements = self.shared.placements.load();
        for (shard, old) in old.into_iter().filter(|(_, old)| due(old)) {
            if lives(&placements.of(shard.snapshot).owner(shard.shard).id) {
                self.drop_one(shard, old, now);
            }
        }
    }

    fn drop_one(&self, shard: Shard, old: Old, now: Instant) {
        let over = old.gone.is_some_and(|gone| now.saturating_duration_since(gone) > WATCHED_FOR);
        if over || self.is_owned(shard) {
            self.lock().to_drop.remove(&shard);
        } else if self.shared.cache.let_go(shard.shard) && old.gone.is_none() {
            self.lock().to_drop.insert(shard, Old { gone: Some(now), ..old });
        }
    }

    /// Returns true if this node owns the shard, in this snapshot or in another open one that
    /// shares it.
    fn is_owned(&self, shard: Shard) -> bool {
        let placements = self.shared.placements.load();
        let gives = |snapshot| placements.gives(snapshot, shard.shard, &self.own_id);
        let open = self.shared.catalog.list();
        let sharing = open.iter().filter(|dataset| dataset.find_shard(shard.shard).is_some());
        gives(shard.snapshot) || sharing.into_iter().any(|dataset| gives(dataset.snapshot()))
    }

    fn evicted(&self, shard: ShardId) {
        let mut state = self.lock();
        if let Some(shard) = state.pulled.remove(&shard) {
            state.lost.push(shard);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maps the error of opening a dataset to the outcome of a pull. Lasting errors end the pull at
/// once. A node that may not open the dataset, or has no room for its manifest, must not delay the
/// ring change.
fn not_open(kind: ErrorKind) -> Pulled {
    match kind {
        ErrorKind::PermissionDenied | ErrorKind::InvalidArgument => Pulled::Gone,
        ErrorKind::ResourceExhausted => Pulled::NoRoom,
        _ => pulled(Brought::by_error(kind)),
    }
}

/// Tells the agent how an attempt to bring a shard ended.
fn pulled(brought: Brought) -> Pulled {
    match brought {
        Brought::Here => Pulled::Verified,
        Brought::NoRoom => Pulled::NoRoom,
        Brought::Gone => Pulled::Gone,
        Brought::Failed => Pulled::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_dataset_is_not_requested_for_ever() {
        assert_eq!(not_open(ErrorKind::PermissionDenied), Pulled::Gone);
        assert_eq!(not_open(ErrorKind::InvalidArgument), Pulled::Gone);
        assert_eq!(not_open(ErrorKind::NotFound), Pulled::Gone);
        assert_eq!(not_open(ErrorKind::ResourceExhausted), Pulled::NoRoom);
        assert_eq!(not_open(ErrorKind::Unavailable), Pulled::Failed);
    }
}
