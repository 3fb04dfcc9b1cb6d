//! Leases: what the clients on this host hold, as the books see it.

use std::sync::Arc;

use larder_dataset::ShardId;
use larder_extent::Sealed;
use larder_store::{HolderView, LeaseRefused, Released};
use larder_wire::{Error, ErrorKind};

use super::{Cache, Found, Group, HolderId, find::is_pinned};
use crate::catalog::Dataset;
use crate::clock;
use crate::fill::Priority;
use crate::flight::{Flight, Waited};

/// What came of a client asking to hold a shard.
#[derive(Debug)]
pub enum Leased {
    /// The client holds it: give it a descriptor.
    Granted(Arc<Sealed>),
    /// It is on its way ([`Flight::is_queued`] says how far); ask again, or wait for the flight.
    Pending(Arc<Flight>),
    /// It will not be kept for now.
    NotKept,
    /// The client holds too much already.
    OverQuota(Error),
    /// It can't be had.
    Failed(Arc<Error>),
}

impl Cache {
    /// Gives a holder a lease on a shard, if it is here; else sees to it that it is filled.
    ///
    /// # Panics
    /// If the dataset has no such shard.
    pub fn lease(self: &Arc<Self>, dataset: &Arc<Dataset>, shard: u32, holder: HolderId) -> Leased {
        // Between being found and being leased it may be evicted, once in a blue moon.
        for _ in 0..3 {
            match self.find(dataset, &[shard], Priority::Demand).pop() {
                Some(Found::Resident(_)) => match self.lease_resident(dataset, shard, holder) {
                    Ok(sealed) => return Leased::Granted(sealed),
                    Err(LeaseRefused::NotResident) => {}
                    Err(refused @ LeaseRefused::OverQuota { .. }) => {
                        let kind = ErrorKind::ResourceExhausted;
                        return Leased::OverQuota(Error::new(kind, refused.to_string()));
                    }
                },
                Some(Found::InFlight(flight)) => return pending(flight.flight()),
                Some(Found::NotKept) | None => return Leased::NotKept,
            }
        }
        Leased::NotKept
    }

    fn lease_resident(
        &self,
        dataset: &Dataset,
        shard: u32,
        holder: HolderId,
    ) -> Result<Arc<Sealed>, LeaseRefused> {
        let shard = dataset.manifest().shard(shard);
        let (id, now, mut books) = (shard.id, clock::now(), self.lock());
        let there = books.store.get(id, Group::Shards(dataset.snapshot()), now);
        let right = there.is_some_and(|sealed| is_pinned(shard.checksum, &sealed));
        if !right || books.condemned.contains(&id) {
            return Err(LeaseRefused::NotResident);
        }
        books.store.lease(id, holder, now)
    }

    /// Ends one lease. Returns whether there was one.
    pub fn release(&self, holder: HolderId, id: ShardId) -> bool {
        let mut books = self.lock();
        let released = books.store.release(id, holder, clock::now());
        drop(books);
        self.after_release(&[id]);
        released
    }

    /// Ends all leases of a holder, whose process is gone. Returns what it held.
    pub fn release_all(&self, holder: HolderId) -> Released<ShardId> {
        let released = self.lock().store.release_all(holder, clock::now());
        self.after_release(&released.ids);
        released
    }

    /// What a holder holds, in bytes, each shard counted once.
    #[must_use]
    pub fn leased_by(&self, holder: HolderId) -> u64 {
        self.lock().store.holder_bytes(holder)
    }

    /// Everyone who holds something, in order.
    #[must_use]
    pub fn holders(&self) -> Vec<HolderView> {
        self.lock().store.holders()
    }

    /// Evicts condemned shards that lost their last lease, and lets the reaper look at once for what
    /// the client may have unmapped.
    fn after_release(&self, ids: &[ShardId]) {
        let mut evicted = Vec::new();
        {
            let mut books = self.lock();
            for id in ids {
                if books.condemned.contains(id)
                    && let Ok(shard) = books.store.evict(*id, clock::now())
                {
                    books.condemned.remove(id);
                    evicted.push(shard);
                }
            }
        }
        evicted.into_iter().for_each(|shard| self.bury(shard));
        self.reaper.kick();
    }
}

fn pending(flight: Arc<Flight>) -> Leased {
    match flight.wait_for_all(std::time::Duration::ZERO) {
        Waited::Failed(why) => Leased::Failed(why),
        _ => Leased::Pending(flight),
    }
}
