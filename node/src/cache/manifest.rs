//! Manifests in the cache. They are admitted, sealed and mapped like shards. They come from memory
//! instead of the origin, and stay until their dataset is closed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use larder_base::{Error, ErrorKind, ShardId, SnapshotId};
use larder_extent::{
    ExtentError, ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region, Sealed,
};
use larder_store::{FillPermit, Outcome};

use super::state::ResidentShard;
use super::{Cache, EvictionGroup, Reclaimable};
use crate::cache::{InFlightFill, extent_error};
use crate::clock;

/// How often, and after which time, room for a manifest is looked for again.
const ROOM_TRIES: u32 = 10;
const ROOM_INTERVAL: Duration = Duration::from_millis(20);

impl Cache {
    /// Puts a manifest into a sealed extent that stays until
    /// [`drop_manifest`](Self::drop_manifest). Blocks for the time of the copy. One caller at a
    /// time.
    pub(crate) fn keep_manifest(
        &self,
        snapshot: SnapshotId,
        manifest: &[u8],
    ) -> Result<Arc<Sealed>, Error> {
        let bytes = manifest.len() as u64;
        let layout = ExtentLayout::new(&[Region::Blocks { bytes }]).map_err(extent_error)?;
        let (id, group) = (id_of(snapshot), EvictionGroup::Manifest(snapshot));
        let mut tries = 0;
        let permit = loop {
            match self.admit(id, group, layout.total_bytes()) {
                Ok(Admission::Resident(sealed)) => return Ok(sealed),
                Ok(Admission::Admitted(permit)) => break permit,
                Err(why) if tries == ROOM_TRIES => return Err(why),
                // A reader may still use a shard that was evicted for it.
                Err(_) => thread::park_timeout(ROOM_INTERVAL),
            }
            tries += 1;
        };
        match filled(id_of(snapshot), layout, manifest) {
            Ok(sealed) => {
                let (sealed, now, mut state) = (Arc::new(sealed), clock::now(), self.lock());
                state.store.open_group(EvictionGroup::Manifest(snapshot), now);
                let kept = ResidentShard::new(Arc::clone(&sealed));
                let _ = state.store.complete(permit, kept, now);
                Ok(sealed)
            }
            Err(why) => {
                let given_up = self.lock().store.give_up(permit, clock::now());
                if let Ok(orphan) = given_up {
                    self.free(orphan.token, Reclaimable::Nothing);
                }
                Err(extent_error(why).context("the manifest's memory"))
            }
        }
    }

    /// Evicts a manifest: now, or once no client maps it and memory is needed.
    pub(crate) fn drop_manifest(&self, snapshot: SnapshotId) {
        let mut state = self.lock();
        state.store.close_group(EvictionGroup::Manifest(snapshot), clock::now());
        let evicted = state.store.evict(id_of(snapshot), clock::now());
        drop(state);
        if let Ok(evicted) = evicted {
            self.bury(evicted);
        }
    }

    /// Takes bytes of the budget for an extent that is not filled part by part from the origin.
    pub(super) fn admit(
        &self,
        id: ShardId,
        group: EvictionGroup,
        bytes: u64,
    ) -> Result<Admission, Error> {
        self.spare_retained(bytes);
        let mut reason = None;
        // The second try uses the room that the first made.
        for _ in 0..2 {
            let make = || Arc::new(InFlightFill::new(id));
            let outcome = self.lock().store.request(id, group, bytes, clock::now(), make);
            match outcome {
                Outcome::Resident(kept) => {
                    self.lock().store.open_group(group, clock::now());
                    return Ok(Admission::Resident(kept.sealed));
                }
                Outcome::Admitted { permit, .. } => return Ok(Admission::Admitted(permit)),
                Outcome::InFlight { waiter, .. } => self.lock().store.leave(waiter),
                Outcome::NoRoom { reason: why, evicted } => {
                    reason = Some(why);
                    // A full node opens another dataset all the same: at the cost of a few shards.
                    let may_go = |group: &EvictionGroup| matches!(group, EvictionGroup::Shards(_));
                    let more = self.lock().store.evict_oldest(bytes, may_go, clock::now());
                    evicted.into_iter().chain(more).for_each(|shard| self.bury(shard));
                }
            }
        }
        let why =
            reason.map_or_else(|| "it is being kept already".to_owned(), |why| why.to_string());
        Err(Error::new(ErrorKind::ResourceExhausted, format!("the manifest can't be kept: {why}")))
    }
}

/// Whether a manifest is resident, or admitted and still to be copied.
pub(super) enum Admission {
    Resident(Arc<Sealed>),
    Admitted(FillPermit<ShardId>),
}

/// Manifests and shards share one id space: both ids are 128 bits of a hash.
pub(super) fn id_of(snapshot: SnapshotId) -> ShardId {
    ShardId::from_bytes(snapshot.first_half())
}

/// Puts bytes into a sealed extent of one region.
pub(super) fn filled(
    id: ShardId,
    layout: ExtentLayout,
    bytes: &[u8],
) -> Result<Sealed, ExtentError> {
    let parts = vec![PartSpec { region: 0, range: 0..bytes.len() as u64 }];
    let id = ExtentId::from_bytes(*id.as_bytes());
    let filling = Filling::create(id, layout, parts, PagePreference::Auto)?;
    if let Some(mut part) = filling.take_part(0) {
        part.write(bytes)?;
        part.finish()?;
    }
    filling.seal()
}
