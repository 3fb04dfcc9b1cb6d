//! Leases: the shards that clients on this host hold, in the cache state.

use std::sync::Arc;

use larder_base::{Error, ErrorKind, ShardId};
use larder_extent::Sealed;
use larder_store::{LeaseRefused, Released};

use super::state::EvictedShard;
use super::{Awaited, Cache, EvictionGroup, FoundShard, HolderId};
use crate::cache::{InFlightFill, Priority, Waited};
use crate::clock;
use crate::dataset::Dataset;

/// The answer to a client's request to hold a shard.
#[derive(Debug)]
pub(crate) enum Leased {
    /// The client holds it: send it a descriptor.
    Granted(Arc<Sealed>),
    /// It is being filled ([`InFlightFill::is_queued`] tells how far). Ask again, or wait for the
    /// flight.
    Pending(Arc<InFlightFill>),
    /// It will not be kept for now.
    NotKept,
    /// It failed, or the client holds too much already.
    Failed(Arc<Error>),
}

impl Cache {
    /// Leases a shard to a holder if it is resident. Else starts its fill.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) fn lease(
        self: &Arc<Self>,
        dataset: &Arc<Dataset>,
        shard: u32,
        holder: HolderId,
    ) -> Leased {
        // Between look and lease the shard may be evicted, though rarely.
        for _ in 0..3 {
            match self.find(dataset, &[shard], Priority::Demand).pop() {
                Some(FoundShard::Resident(_)) => match self.lease_if_here(dataset, shard, holder) {
                    Leased::NotKept => {}
                    leased => return leased,
                },
                Some(FoundShard::InFlight(flight)) => return pending(&flight),
                Some(FoundShard::NotKept) | None => return Leased::NotKept,
            }
        }
        Leased::NotKept
    }

    /// Leases a shard to a holder if it is resident. Starts no fill.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) fn lease_if_here(&self, dataset: &Dataset, shard: u32, holder: HolderId) -> Leased {
        if let Err(why) = dataset.check_vouched(shard) {
            return Leased::Failed(Arc::new(why));
        }
        let id = dataset.manifest().shard(shard).id;
        let (now, mut state) = (clock::now(), self.lock());
        let there = state.store.get(id, EvictionGroup::Shards(dataset.snapshot()), now);
        if there.is_none_or(|kept| kept.condemned) {
            return Leased::NotKept;
        }
        match state.store.lease(id, holder, now) {
            Ok(kept) => Leased::Granted(kept.sealed),
            Err(LeaseRefused::NotResident) => Leased::NotKept,
            Err(refused @ LeaseRefused::OverQuota { .. }) => {
                let kind = ErrorKind::ResourceExhausted;
                Leased::Failed(Arc::new(Error::new(kind, refused.to_string())))
            }
        }
    }

    /// Ends one lease. Returns true if there was one.
    pub(crate) fn release(&self, holder: HolderId, id: ShardId) -> bool {
        let (now, mut state) = (clock::now(), self.lock());
        let released = state.store.release(id, holder, now);
        let evicted = state.evict_condemned(&[id], now);
        drop(state);
        self.after_release(evicted);
        released
    }

    /// Ends all leases of a holder after its process is gone. Returns the shards that it held.
    pub(crate) fn release_all(&self, holder: HolderId) -> Released<ShardId> {
        let (now, mut state) = (clock::now(), self.lock());
        let released = state.store.release_all(holder, now);
        let evicted = state.evict_condemned(&released.ids, now);
        drop(state);
        self.after_release(evicted);
        released
    }

    /// Returns all holders of leases, in order.
    #[cfg(test)]
    pub(crate) fn holders(&self) -> Vec<larder_store::HolderView> {
        self.lock().store.holders()
    }

    /// Buries condemned shards that lost their last lease. Makes the reaper check at once, because
    /// the client may have unmapped memory.
    fn after_release(&self, evicted: Vec<EvictedShard>) {
        evicted.into_iter().for_each(|shard| self.bury(shard));
        self.reaper.kick();
    }
}

fn pending(awaited: &Awaited) -> Leased {
    match awaited.wait_for_all(std::time::Duration::ZERO) {
        Waited::Failed(why) => Leased::Failed(why),
        _ => Leased::Pending(awaited.flight()),
    }
}
