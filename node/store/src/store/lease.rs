//! Leases: a client's hold on a resident shard, which keeps it from being evicted.

use super::Store;
use crate::holder::{Edge, HolderId};
use larder_base::Bytes;
use std::hash::Hash;
use std::time::Instant;

/// Why a lease was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefused {
    /// The shard is not resident.
    #[error("the shard is not resident")]
    NotResident,
    /// The holder would exceed its quota.
    #[error(
        "a lease of {} on top of the {} held exceeds the client's quota of {}; release other shards, \
         or read rows without mapping them",
        Bytes(*needed_bytes),
        Bytes(*held_bytes),
        Bytes(*quota_bytes)
    )]
    OverQuota {
        /// The shard's bytes.
        needed_bytes: u64,
        /// The bytes that the holder leases.
        held_bytes: u64,
        /// The holder's quota in bytes.
        quota_bytes: u64,
    },
}

/// The shards that a holder leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released<K> {
    /// The shards, in order, each once.
    pub ids: Vec<K>,
    /// Their bytes.
    pub bytes: u64,
}

impl<K, G, F, R> Store<K, G, F, R>
where
    K: Copy + Eq + Hash + Ord,
    G: Copy + Eq + Hash + Ord,
    F: Clone,
    R: Clone,
{
    /// Gives a holder one more lease on a resident shard. Only the first costs it quota.
    pub fn lease(&mut self, id: K, holder: HolderId, now: Instant) -> Result<R, LeaseRefused> {
        let entry = self.entries.get_mut(&id).ok_or(LeaseRefused::NotResident)?;
        let resident = entry.state.resident_mut().ok_or(LeaseRefused::NotResident)?;
        let (needed_bytes, held_bytes) = (entry.bytes, self.holders.bytes(holder));
        let fits = needed_bytes <= self.quota_bytes.saturating_sub(held_bytes);
        if !fits && !self.holders.holds(holder, id) {
            let quota_bytes = self.quota_bytes;
            return Err(LeaseRefused::OverQuota { needed_bytes, held_bytes, quota_bytes });
        }
        resident.last_used = now;
        if self.holders.begin(holder, id, entry.bytes) == Edge::Outer {
            resident.holders += 1;
            if resident.holders == 1 {
                self.groups.lease_began(&entry.groups);
            }
        }
        for &group in &entry.groups {
            self.groups.touch(group, now);
        }
        Ok(resident.handle.clone())
    }

    /// Ends one lease. Returns whether there was one.
    pub fn release(&mut self, id: K, holder: HolderId, now: Instant) -> bool {
        let bytes = self.entries.get(&id).map_or(0, |entry| entry.bytes);
        match self.holders.end(holder, id, bytes) {
            Some(Edge::Outer) => self.lost_holder(id, now),
            Some(Edge::Inner) => {}
            None => return false,
        }
        true
    }

    /// Ends all leases of a holder, since its process has ended. Returns their shards.
    pub fn release_all(&mut self, holder: HolderId, now: Instant) -> Released<K> {
        let Some(held) = self.holders.end_all(holder) else {
            return Released { ids: Vec::new(), bytes: 0 };
        };
        let ids: Vec<K> = held.leases.into_keys().collect();
        for &id in &ids {
            self.lost_holder(id, now);
        }
        Released { ids, bytes: held.bytes }
    }

    /// Returns the bytes that one holder leases, each shard counted once.
    pub fn holder_bytes(&self, holder: HolderId) -> u64 {
        self.holders.bytes(holder)
    }

    /// Notes that a holder no longer leases a shard. This counts as a use of its groups: while a
    /// client holds a lease, it reads without asking.
    fn lost_holder(&mut self, id: K, now: Instant) {
        let entry = self.entries.get_mut(&id).expect("a leased shard is never let go");
        let resident = entry.state.resident_mut().expect("only resident shards are leased");
        resident.last_used = now;
        resident.holders -= 1;
        if resident.holders == 0 {
            self.groups.lease_ended(&entry.groups);
        }
        for &group in &entry.groups {
            self.groups.touch(group, now);
        }
    }
}
