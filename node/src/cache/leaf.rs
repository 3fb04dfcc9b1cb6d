//! Leaves of manifests in the cache. They are counted and evicted like shards.
//!
//! A leaf is worth more than a shard: without it no row of its shards can be found. So a leaf takes
//! the place of the longest unused shards, also of a dataset in use.

use std::sync::Arc;
use std::time::Duration;

use larder_base::{Error, ErrorKind, ShardId, SnapshotId};
use larder_dataset::Leaf;
use larder_extent::Sealed;
use larder_store::{FillPermit, Outcome};
use tokio::time;

use super::state::ResidentShard;
use super::{Cache, EvictionGroup, Reclaimable};
use crate::cache::InFlightFill;
use crate::clock;

/// How often, and how many times, a leaf looks for room while evicted memory becomes free.
const LOOKS: (u32, Duration) = (100, Duration::from_millis(10));

/// Room for a leaf that is being read. Dropping it unfilled gives the room back.
pub(crate) struct LeafPlace {
    cache: Arc<Cache>,
    permit: Option<FillPermit<ShardId>>,
}

impl LeafPlace {
    /// The leaf is in.
    pub(crate) fn complete(mut self, sealed: &Arc<Sealed>, leaf: &Leaf) {
        let Some(permit) = self.permit.take() else { return };
        let kept =
            ResidentShard { leaf: Some(leaf.clone()), ..ResidentShard::new(Arc::clone(sealed)) };
        let _ = self.cache.lock().store.complete(permit, kept, clock::now());
    }
}

impl Drop for LeafPlace {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let given_up = self.cache.lock().store.give_up(permit, clock::now());
        if let Ok(orphan) = given_up {
            self.cache.free(orphan.token, Reclaimable::Nothing);
        }
    }
}

impl Cache {
    /// Returns the extent of a leaf that is resident, and the leaf as it was parsed last. Counts as
    /// a use.
    pub(crate) fn leaf(
        &self,
        id: ShardId,
        snapshot: SnapshotId,
    ) -> Option<(Arc<Sealed>, Option<Leaf>)> {
        let kept = self.lock().store.get(id, EvictionGroup::Leaves(snapshot), clock::now())?;
        Some((kept.sealed, kept.leaf))
    }

    /// Notes a leaf that was parsed in its extent, for the next caller.
    pub(crate) fn note_leaf(&self, id: ShardId, leaf: &Leaf) {
        if let Some(kept) = self.lock().store.handle_mut(id) {
            kept.leaf = Some(leaf.clone());
        }
    }

    /// Takes bytes of the budget for a leaf that is not resident. One caller at a time for a leaf.
    ///
    /// # Errors
    /// `ResourceExhausted` if clients hold all of the budget, or it is too small.
    pub(crate) async fn admit_leaf(
        self: &Arc<Self>,
        id: ShardId,
        snapshot: SnapshotId,
        bytes: u64,
    ) -> Result<LeafPlace, Error> {
        self.spare_retained(bytes);
        let mut reason = None;
        for _ in 0..LOOKS.0 {
            let make = || Arc::new(InFlightFill::new(id));
            let group = EvictionGroup::Leaves(snapshot);
            let outcome = self.lock().store.request(id, group, bytes, clock::now(), make);
            match outcome {
                Outcome::Admitted { permit, .. } => {
                    return Ok(LeafPlace { cache: Arc::clone(self), permit: Some(permit) });
                }
                Outcome::NoRoom { reason: why, evicted } => {
                    reason = Some(why);
                    let may_go =
                        |group: &EvictionGroup| !matches!(group, EvictionGroup::Manifest(_));
                    let more = self.lock().store.evict_oldest(bytes, may_go, clock::now());
                    evicted.into_iter().chain(more).for_each(|shard| self.bury(shard));
                }
                Outcome::InFlight { waiter, .. } => self.lock().store.leave(waiter),
                Outcome::Resident(_) => {}
            }
            time::sleep(LOOKS.1).await;
        }
        let why = reason.map_or_else(|| "it is being read".to_owned(), |why| why.to_string());
        let message = format!("there is no room for a leaf of the manifest: {why}");
        let hint = "give the node more memory, or ask another node";
        Err(Error::new(ErrorKind::ResourceExhausted, message).with_hint(hint.to_owned()))
    }
}
