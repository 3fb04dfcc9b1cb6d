//! Shards that a change of the ring brings here, and old copies that it leaves behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use larder_base::{ErrorKind, ShardId, limits};
use larder_membership::{
    agent::{Pulled, Shard},
    record::Dataset as Described,
};

use super::planning::open;
use crate::bring::{bring, failed};
use crate::cache::Priority;
use crate::clock;
use crate::copies::give_way;
use crate::shared::Shared;

/// What of the cache the agent is concerned with.
pub(super) struct Holdings {
    shared: Arc<Shared>,
    own_id: String,
    state: Mutex<State>,
    /// No copies are asked to give way before this. Held while they are.
    vain_until: tokio::sync::Mutex<Instant>,
}

#[derive(Debug, Default)]
struct State {
    /// Pulled and, as far as is known, still here.
    pulled: HashMap<ShardId, Shard>,
    /// Pulled and evicted since, and not yet told.
    lost: Vec<Shard>,
    /// Others own these now, and have them.
    to_drop: BTreeMap<Shard, Old>,
}

/// An old copy.
#[derive(Debug, Clone, Copy)]
struct Old {
    /// Since when it is one.
    since: Instant,
    /// Since when it is gone from here.
    gone: Option<Instant>,
}

/// For so long an old copy is kept, unless its room is needed: whoever reads has asked for the ring
/// anew by then. To drop it under clients that still ask here would be to read it again from its
/// new owner, for nothing.
const KEPT_FOR: Duration = limits::RING_REFRESH_INTERVAL;

/// For so long a dropped copy that comes back is dropped again: clients that have not heard of the
/// new ring yet ask here for the shard, and are given it.
const WATCHED_FOR: Duration = limits::RING_REFRESH_INTERVAL.saturating_mul(3);

/// Of the budget, how much room copies are asked for at once: a part in so many.
const ROOM_SHARE: u64 = 16;

/// For so long no room is looked for after none was found.
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

    /// Brings a shard of a dataset here: at once when it is, else from a node that has it, else
    /// from the origin.
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
            // Before it is here, so that its eviction is not missed.
            state.pulled.insert(shard.shard, shard);
            // Nor is it dropped any more because another had it lately.
            state.to_drop.remove(&shard);
        }
        let mut how = bring(&self.shared.cache, &dataset, index, priority).await;
        if how == Pulled::NoRoom {
            self.find_room(dataset.manifest().shard(index).bytes).await;
            how = bring(&self.shared.cache, &dataset, index, priority).await;
        }
        if how != Pulled::Verified {
            self.lock().pulled.remove(&shard.shard);
        }
        how
    }

    /// Lets copies go for a shard that is to come, unless that was tried in vain a moment ago.
    async fn find_room(&self, bytes: u64) {
        let mut vain_until = self.vain_until.lock().await;
        if clock::now() < *vain_until {
            return;
        }
        let standing = self.shared.cluster.as_ref().map(|cluster| cluster.desk().standing());
        let Some(standing) = standing else { return };
        let Some(record) = &standing.record else { return };
        if standing.installed != record.version {
            // Others go by another ring than this node, and may take for spare what it takes for
            // theirs.
            return;
        }
        let change = record.change.as_ref();
        // For others that come with it and after it too: to look costs more than to let go.
        let with_it = bytes.saturating_mul(limits::PULLS_IN_FLIGHT_MAX as u64 + 1);
        let wanted = with_it.max(self.shared.cache.usage().limit_bytes / ROOM_SHARE);
        // Of what somebody has who leaves, this may be the copy that the plan counts on.
        let leaves = |first: &str| change.is_some_and(|change| change.takes_out(first));
        let stays =
            |id: &ShardId, first: &str| leaves(first) || self.lock().pulled.contains_key(id);
        if !give_way(&self.shared, wanted, stays).await {
            *vain_until = clock::now() + VAIN_FOR;
        }
    }

    /// Shards that were pulled and are here no more, each told once.
    pub(super) fn take_lost(&self) -> Vec<Shard> {
        std::mem::take(&mut self.lock().lost)
    }

    /// Drops a copy that another node owns by now, when nobody should ask here for it any more and
    /// those who hold it have let go.
    pub(super) fn drop_old(&self, shard: Shard) {
        // Not told as lost: it is not wanted any more.
        let mut state = self.lock();
        state.pulled.remove(&shard.shard);
        state.to_drop.insert(shard, Old { since: clock::now(), gone: None });
    }

    /// Drops what is due by now, also when it came back; `lives` knows who is announced. Where the
    /// owner does not live this node may stand in for it, and keeps what it has.
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

    /// Whether this node owns the shard, in this snapshot or in another that is open and shares it.
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

/// What comes of a shard whose dataset could not be opened. What will not pass is said at once: the
/// change must not wait for a node that may not have the dataset, or has no room for its manifest.
fn not_open(kind: ErrorKind) -> Pulled {
    match kind {
        ErrorKind::PermissionDenied | ErrorKind::InvalidArgument => Pulled::Gone,
        ErrorKind::ResourceExhausted => Pulled::NoRoom,
        _ => failed(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_that_may_not_be_opened_is_not_asked_for_for_ever() {
        assert_eq!(not_open(ErrorKind::PermissionDenied), Pulled::Gone);
        assert_eq!(not_open(ErrorKind::InvalidArgument), Pulled::Gone);
        assert_eq!(not_open(ErrorKind::NotFound), Pulled::Gone);
        assert_eq!(not_open(ErrorKind::ResourceExhausted), Pulled::NoRoom);
        assert_eq!(not_open(ErrorKind::Unavailable), Pulled::Failed);
    }
}
