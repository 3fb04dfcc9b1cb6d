//! Who owns a shard: the ring, and what a plan decided otherwise.
//!
//! A ring spreads shards evenly only on average. The planner therefore gives some shards of a snapshot
//! other owners than the walk does; these [`Exceptions`] are one flat table for each snapshot and
//! version of the ring, handed out like a manifest and used where it is mapped. Shards that have no
//! exception, and snapshots that have no table, go by the walk.
//!
//! A table names shards by their *place* on the ring, the hash that a lookup needs anyway, so that it
//! needs neither a manifest nor an index of its own, and a shard that two snapshots share can be given
//! the same owners in both. It belongs to one ring: its version, and its digest, are checked when they
//! come together. Another table is another version of the ring.
//!
//! Thread rule: immutable, `Send + Sync`; a clone is two reference counts.
//! Non-goals: planning (`node/rebalance`), health, who holds what at this moment.

mod build;
mod format;
mod parse;

use std::sync::Arc;

use crate::{ShardId, SnapshotId};

use crate::{
    Error, ErrorKind, Member, Ring, limits,
    ring::{Owners, place_of},
};
use format::{Header, Tables};

pub use build::ExceptionsBuilder;
pub use parse::ExceptionsError;

/// The shards of one snapshot whose owners are not those of the walk. Cheap to clone.
#[derive(Clone)]
pub struct Exceptions {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    header: Header,
    tables: Tables,
}

impl Exceptions {
    /// Most bytes that the table of a snapshot with so many shards can have: what a receiver compares
    /// an announced length with before it takes memory.
    pub fn bytes_max(shards: u32) -> u64 {
        let header = Header::largest(shards);
        header.tables().map_or(limits::EXCEPTIONS_BYTES_MAX, |tables| tables.end as u64)
    }

    /// The snapshot whose shards these are.
    pub fn snapshot(&self) -> SnapshotId {
        SnapshotId::from_bytes(self.header.snapshot)
    }

    /// The version of the ring that they are exceptions to.
    pub fn ring_version(&self) -> u64 {
        self.header.ring_version
    }

    /// How many owners a shard has, where there are enough members.
    pub fn replicas(&self) -> usize {
        usize::from(self.header.replicas)
    }

    /// How many shards have other owners than the walk says.
    pub fn len(&self) -> usize {
        self.header.count as usize
    }

    /// Whether all shards go by the walk.
    pub fn is_empty(&self) -> bool {
        self.header.count == 0
    }

    /// The xxh3-128 of the table: equal for two tables exactly when they say the same.
    pub fn digest(&self) -> [u8; 16] {
        self.header.hash
    }

    /// The table as it is handed out.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// The owners that a plan gave to the shards at `place`, if it did.
    fn find(&self, place: u64) -> Option<Owners> {
        let bytes = self.as_bytes();
        let (from, to) = self.tables.bucket(bytes, format::bucket_of(place, self.header.fan_bits));
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low.midpoint(high);
            if self.tables.place(bytes, middle) < place { low = middle + 1 } else { high = middle }
        }
        (low < to && self.tables.place(bytes, low) == place)
            .then(|| self.tables.owners(bytes, low, self.header.copies()))
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

/// Who owns the shards of one snapshot, at one version of the ring. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Placement {
    ring: Arc<Ring>,
    exceptions: Option<Exceptions>,
    replicas: usize,
}

impl Placement {
    /// The placement of a snapshot for which nothing was planned: the walk's first members that keep apart
    /// own a shard, as many as the ring says.
    pub fn of_ring(ring: Arc<Ring>) -> Self {
        let replicas = ring.copies();
        Self { ring, exceptions: None, replicas }
    }

    /// The placement of a snapshot with a table of exceptions.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the table belongs to another ring.
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

    /// The ring below it.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// What a plan decided otherwise, if there was one.
    pub fn exceptions(&self) -> Option<&Exceptions> {
        self.exceptions.as_ref()
    }

    /// How many owners a shard has, where there are enough members.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// The member that is asked first for this shard, and fills it.
    pub fn owner(&self, shard: ShardId) -> &Member {
        self.member(self.owners(shard)[0])
    }

    /// The members that own this shard, as indices into those of the ring: whom to ask first comes
    /// first.
    pub fn owners(&self, shard: ShardId) -> Owners {
        self.owners_at(place_of(shard))
    }

    /// [`Placement::owners`] of the shards that lie at `place` (see [`place_of`]).
    pub fn owners_at(&self, place: u64) -> Owners {
        let excepted = self.exceptions.as_ref().and_then(|exceptions| exceptions.find(place));
        excepted.unwrap_or_else(|| self.ring.owners_at(place, self.replicas))
    }

    /// All members, each once, in the order in which they are to be asked for this shard: its owners,
    /// then who would stand in for them.
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
