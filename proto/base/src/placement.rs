//! The owners of shards: the ring, and the exceptions to it that a plan made.
//!
//! A ring spreads shards evenly only on average. So the planner gives some shards of a snapshot
//! other owners than the walk does. These [`Exceptions`] are one flat table for each snapshot and
//! version of the ring, served like a manifest and used in place. The walk decides for shards
//! without an exception, and for snapshots without a table.
//!
//! A table names shards by their *place* on the ring, the hash that a lookup needs anyway. So it
//! needs neither a manifest nor its own index, and a shard shared by two snapshots can have the
//! same owners in both. A table belongs to one ring: its version and digest are checked when the
//! two are joined. Another table means another version of the ring.
//!
//! Thread rule: immutable, `Send + Sync`; a clone is two reference counts. Non-goals: planning
//! (`node/membership`), health, and which node holds which shard at the moment.

mod build;
mod format;
mod parse;

use std::sync::Arc;

use crate::{ShardId, SnapshotId};

use crate::{
    Error, ErrorKind, Member, Ring,
    ring::{Owners, place_of},
};
use format::{TableHeader, Tables};

pub use build::ExceptionsBuilder;
pub use parse::ExceptionsError;

/// Largest table of exceptions to the ring, in bytes: every shard of the largest dataset, each with
/// the most copies, and the fan-out over them. A receiver first bounds it by the snapshot's number
/// of shards: see `Exceptions::bytes_max`.
const EXCEPTIONS_BYTES_MAX: u64 = 512 << 20;

/// The shards of one snapshot with other owners than the walk gives. Cheap to clone.
#[derive(Clone)]
pub struct Exceptions {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    header: TableHeader,
    tables: Tables,
}

impl Exceptions {
    /// Returns the most bytes that the table of a snapshot with this many shards can have. A
    /// receiver compares an announced length with it before it allocates.
    pub fn bytes_max(shards: u32) -> u64 {
        let header = TableHeader::largest(shards);
        header.tables().map_or(EXCEPTIONS_BYTES_MAX, |tables| tables.end as u64)
    }

    /// Returns the snapshot of the shards.
    pub fn snapshot(&self) -> SnapshotId {
        SnapshotId::from_bytes(self.header.snapshot)
    }

    /// Returns the version of the ring that they are exceptions to.
    pub fn ring_version(&self) -> u64 {
        self.header.ring_version
    }

    /// Returns how many owners a shard has, if there are enough members.
    pub fn replicas(&self) -> usize {
        usize::from(self.header.replicas)
    }

    /// Returns the number of shards with other owners than the walk gives.
    pub fn len(&self) -> usize {
        self.header.count as usize
    }

    /// Returns whether the walk decides for all shards.
    pub fn is_empty(&self) -> bool {
        self.header.count == 0
    }

    /// Returns the xxh3-128 of the table: two tables with equal contents have equal digests.
    pub fn digest(&self) -> [u8; 16] {
        self.header.hash
    }

    /// Returns the table as it is served.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Returns the owners that a plan gave to the shards at `place`, if any.
    fn find(&self, place: u64) -> Option<Owners> {
        let bytes = self.as_bytes();
        let (from, to) = self.tables.bucket(bytes, format::bucket_of(place, self.header.fan_bits));
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low.midpoint(high);
            if self.tables.place(bytes, middle) < place { low = middle + 1 } else { high = middle }
        }
        (low < to && self.tables.place(bytes, low) == place)
            .then(|| self.tables.owners(bytes, low, self.header.owner_count()))
    }
}

impl std::fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exceptions")
            .field("snapshot", &self.snapshot())
            .field("ring_version", &self.ring_version())
            .field("replicas", &self.replicas())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The owners of the shards of one snapshot, at one version of the ring. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Placement {
    ring: Arc<Ring>,
    exceptions: Option<Exceptions>,
    replicas: usize,
}

impl Placement {
    /// Makes the placement of a snapshot without exceptions. The owners of a shard are the walk's
    /// first members that keep apart, as many as the ring's copies.
    pub fn of_ring(ring: Arc<Ring>) -> Self {
        let replicas = ring.replicas();
        Self { ring, exceptions: None, replicas }
    }

    /// Makes the placement of a snapshot with a table of exceptions.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the table belongs to another ring.
    pub fn new(ring: Arc<Ring>, exceptions: Exceptions) -> Result<Self, Error> {
        let header = &exceptions.header;
        let fits = header.ring_version == ring.version()
            && header.ring_digest == ring.digest()
            && usize::from(header.members) == ring.members().len();
        if !fits {
            let message = format!(
                "exceptions of snapshot {} are to ring version {} ({:016x}), not to version {} ({:016x}); \
                 fetch those of this ring",
                exceptions.snapshot(),
                header.ring_version,
                header.ring_digest,
                ring.version(),
                ring.digest(),
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let replicas = exceptions.replicas();
        Ok(Self { ring, exceptions: Some(exceptions), replicas })
    }

    /// Returns its ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns the plan's exceptions, if there are any.
    pub fn exceptions(&self) -> Option<&Exceptions> {
        self.exceptions.as_ref()
    }

    /// Returns how many owners a shard has, if there are enough members.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// Returns the primary owner: clients ask it first for this shard, and it fills the shard.
    pub fn owner(&self, shard: ShardId) -> &Member {
        self.member(self.owners(shard)[0])
    }

    /// Returns the members that own this shard, as indices into those of the ring. Clients ask the
    /// first one first.
    pub fn owners(&self, shard: ShardId) -> Owners {
        self.owners_at(place_of(shard))
    }

    /// Returns [`Placement::owners`] for the shards at `place` (see [`place_of`]).
    pub fn owners_at(&self, place: u64) -> Owners {
        let excepted = self.exceptions.as_ref().and_then(|exceptions| exceptions.find(place));
        excepted.unwrap_or_else(|| self.ring.owners_at(place, self.replicas))
    }

    /// Returns all members, each once, in the order in which clients ask them for this shard: its
    /// owners, then the members that stand in for them.
    pub fn walk(&self, shard: ShardId) -> impl Iterator<Item = &Member> {
        let place = place_of(shard);
        let owners = self.owners_at(place);
        let others = self
            .ring
            .walk_at(place)
            .filter(move |&index| owners.iter().all(|&owner| usize::from(owner) != index));
        let owners = (0..owners.len()).map(move |at| usize::from(owners[at]));
        owners.chain(others).map(|index| &self.ring.members()[index])
    }

    fn member(&self, index: u16) -> &Member {
        &self.ring.members()[usize::from(index)]
    }
}

#[cfg(test)]
mod tests;
