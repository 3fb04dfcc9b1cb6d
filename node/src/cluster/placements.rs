//! The placement in use: the ring with all its exceptions, and the placement before it.
//!
//! Ring and exceptions change together, so no reader sees the exceptions of one ring beside
//! another. The previous placement is kept because its owners may still hold shards that have new
//! owners now.
//!
//! Thread rule: immutable; a change swaps the whole. Non-goals: the source of placements
//! (`driver`), and which node holds which shard at the moment.

use std::collections::HashMap;
use std::sync::Arc;

use larder_base::{Error, Placement, Ring, ShardId, SnapshotId, placement::Exceptions};
use xxhash_rust::xxh3::xxh3_64;

/// The placements of all snapshots at one version of the ring.
#[derive(Debug)]
pub(crate) struct Placements {
    ring: Arc<Ring>,
    /// The placements of snapshots that have exceptions.
    excepted: HashMap<SnapshotId, Placement>,
    previous: Option<Arc<Placements>>,
}

impl Placements {
    /// Creates placements that follow the ring alone, with no previous one.
    pub(crate) fn of_ring(ring: Arc<Ring>) -> Self {
        Self { ring, excepted: HashMap::new(), previous: None }
    }

    /// Creates placements from a ring, its exceptions and the placements in use before.
    ///
    /// # Errors
    /// `InvalidArgument` when exceptions belong to another ring.
    pub(crate) fn new(
        ring: Arc<Ring>,
        tables: Vec<Exceptions>,
        previous: Option<Arc<Self>>,
    ) -> Result<Self, Error> {
        let mut excepted = HashMap::with_capacity(tables.len());
        for table in tables {
            excepted.insert(table.snapshot(), Placement::new(Arc::clone(&ring), table)?);
        }
        Ok(Self { ring, excepted, previous })
    }

    /// Returns the ring in use.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns the placement of a snapshot's shards.
    pub(crate) fn of(&self, snapshot: SnapshotId) -> Placement {
        match self.excepted.get(&snapshot) {
            Some(placement) => placement.clone(),
            None => Placement::of_ring(Arc::clone(&self.ring)),
        }
    }

    /// Returns the exceptions of a snapshot, if a plan made any.
    pub(crate) fn exceptions(&self, snapshot: SnapshotId) -> Option<&Exceptions> {
        self.excepted.get(&snapshot).and_then(Placement::exceptions)
    }

    /// Returns a digest of the ring and all its exceptions. It is equal wherever shards are placed
    /// alike.
    pub(crate) fn digest(&self) -> u64 {
        let mut tables: Vec<_> = self.excepted.values().filter_map(Placement::exceptions).collect();
        if tables.is_empty() {
            return self.ring.digest();
        }
        tables.sort_unstable_by_key(|table| table.snapshot());
        let mut bytes = self.ring.digest().to_le_bytes().to_vec();
        bytes.extend(tables.iter().flat_map(|table| table.digest()));
        xxh3_64(&bytes)
    }

    /// Returns the placements in use before.
    pub(crate) fn previous(&self) -> Option<&Arc<Self>> {
        self.previous.as_ref()
    }

    /// Returns the same placements without the previous ones.
    pub(crate) fn alone(&self) -> Self {
        Self { ring: Arc::clone(&self.ring), excepted: self.excepted.clone(), previous: None }
    }

    /// Returns true if a member owns a shard of a snapshot.
    pub(crate) fn gives(&self, snapshot: SnapshotId, shard: ShardId, member: &str) -> bool {
        self.rank(snapshot, shard, member).is_some()
    }

    /// Returns true if a member owns a replica of a shard and is not its primary owner.
    pub(crate) fn gives_further(&self, snapshot: SnapshotId, shard: ShardId, member: &str) -> bool {
        self.ring.replicas() > 1 && self.rank(snapshot, shard, member).is_some_and(|rank| rank > 0)
    }

    /// Returns a member's position among the owners of a shard, if it owns it.
    fn rank(&self, snapshot: SnapshotId, shard: ShardId, member: &str) -> Option<usize> {
        let index = self.ring.index(member)?;
        let owners = self.of(snapshot).owners(shard);
        owners.iter().position(|&owner| usize::from(owner) == index)
    }
}

#[cfg(test)]
mod tests {
    use larder_base::placement::ExceptionsBuilder;
    use larder_base::ring::place_of;

    use super::*;
    use crate::testing::member;

    #[test]
    fn exceptions_apply_to_their_snapshot_only() {
        let members = ["n1", "n2", "n3"].map(|id| member(id, &format!("{id}:1"))).to_vec();
        let ring = Arc::new(Ring::new(4, members).unwrap());
        let (one, other) = (SnapshotId::from_bytes([1; 32]), SnapshotId::from_bytes([2; 32]));
        let shard = ShardId::from_bytes([9; 16]);
        let by_ring = ring.index(&ring.owner(shard).id).unwrap();
        let elsewhere = (by_ring + 1) % 3;
        let mut builder = ExceptionsBuilder::new(&ring, one, 1);
        let owners = std::iter::once(u16::try_from(elsewhere).unwrap()).collect();
        builder.except(place_of(shard), owners);
        let tables = vec![builder.build()];
        let placements = Placements::new(Arc::clone(&ring), tables, None).unwrap();
        let id = |index: usize| ring.members()[index].id.as_str();
        assert_ne!(placements.digest(), Placements::of_ring(Arc::clone(&ring)).digest());
        assert_eq!(placements.digest(), placements.alone().digest());
        assert_eq!(placements.of(one).owner(shard).id, id(elsewhere));
        assert_eq!(placements.of(other).owner(shard).id, id(by_ring));
        assert!(placements.gives(one, shard, id(elsewhere)));
        assert!(!placements.gives(one, shard, id(by_ring)));
        assert!(placements.gives(other, shard, id(by_ring)));
        assert!(!placements.gives(other, shard, "stranger"));
    }
}
