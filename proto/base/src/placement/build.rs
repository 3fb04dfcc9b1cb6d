//! Builds a table of exceptions.

use std::{collections::BTreeMap, sync::Arc};

use crate::SnapshotId;

use super::{
    Exceptions,
    format::{self, HEADER_BYTES, TableHeader},
};
use crate::{
    Ring, limits,
    ring::{Owners, Spread},
};

/// Collects exceptions to one ring and encodes them as a table.
pub struct ExceptionsBuilder<'a> {
    ring: &'a Ring,
    snapshot: SnapshotId,
    replicas: usize,
    owners: BTreeMap<u64, Owners>,
}

impl<'a> ExceptionsBuilder<'a> {
    /// Starts a table without exceptions, for shards with `replicas` owners: at least one and at
    /// most [`limits::REPLICAS_MAX`].
    pub fn new(ring: &'a Ring, snapshot: SnapshotId, replicas: usize) -> Self {
        let replicas = replicas.clamp(1, limits::REPLICAS_MAX);
        Self { ring, snapshot, replicas, owners: BTreeMap::new() }
    }

    /// Gives the shards at `place` these owners, as indices of members, the primary owner first.
    ///
    /// # Panics
    /// If their number is not the number of copies, or they are not distinct members of the ring.
    pub fn except(&mut self, place: u64, owners: Owners) {
        let (members, owner_count) = (self.ring.members().len(), self.owner_count());
        let distinct = (0..owners.len()).all(|at| !owners[..at].contains(&owners[at]));
        let known = owners.iter().all(|&owner| usize::from(owner) < members);
        assert!(owners.len() == owner_count && distinct && known, "{owners:?} can't own a shard");
        self.owners.insert(place, owners);
    }

    /// Encodes the table.
    pub fn build(self) -> Exceptions {
        let count = u32::try_from(self.owners.len()).expect("a snapshot has at most 2^24 shards");
        let mut header = TableHeader {
            hash: [0; 16],
            table_bytes: 0,
            ring_version: self.ring.version(),
            ring_digest: self.ring.digest(),
            snapshot: *self.snapshot.as_bytes(),
            count,
            members: u16::try_from(self.ring.members().len()).expect("at most 1,024"),
            replicas: u8::try_from(self.replicas).expect("at most 8"),
            fan_bits: format::fan_bits(count),
        };
        let tables = header.tables().expect("the counts of a snapshot");
        header.table_bytes = tables.end as u64;
        let mut bytes = Vec::with_capacity(tables.end);
        header.put(&mut bytes);
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        self.put_fan(header.fan_bits, &mut bytes);
        self.owners.keys().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
        let owners = self.owners.values().flat_map(|owners| owners.iter());
        owners.for_each(|owner| bytes.extend_from_slice(&owner.to_le_bytes()));
        format::write_hash(&mut bytes);
        header.hash = format::hash(&bytes);
        Exceptions { bytes: Arc::new(bytes), header, tables }
    }

    fn put_fan(&self, bits: u8, bytes: &mut Vec<u8>) {
        let mut slot = 0;
        for (before, &place) in self.owners.keys().enumerate() {
            let begin = format::bucket_of(place, bits) + 1;
            let before = u32::try_from(before).expect("counted");
            (slot..begin).for_each(|_| bytes.extend_from_slice(&before.to_le_bytes()));
            slot = begin;
        }
        let count = u32::try_from(self.owners.len()).expect("counted");
        (slot..=1 << bits).for_each(|_| bytes.extend_from_slice(&count.to_le_bytes()));
    }

    fn owner_count(&self) -> usize {
        Spread::owner_count(self.ring.spread(), self.replicas)
    }
}
