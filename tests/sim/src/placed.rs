//! The owners of all shards by one ring with its exceptions, computed once, by number.

use larder_membership::{Record, agent::RingOf};

use crate::names::{Place, ShardNo};

/// The placement of all shards at one version of the ring.
#[derive(Debug)]
pub(crate) struct Placed {
    /// By shard: all places in the order in which they are asked, owners first.
    pub(crate) walks: Vec<Vec<Place>>,
    /// By shard: the number of its owners.
    pub(crate) copies: Vec<usize>,
    /// Whether the copies of every shard keep apart as far as they can.
    pub(crate) keeps_apart: bool,
}

impl Placed {
    /// Returns the owners of a shard; the primary owner comes first.
    pub(crate) fn owners(&self, shard: ShardNo) -> &[Place] {
        &self.walks[shard][..self.copies[shard]]
    }

    pub(crate) fn owns(&self, place: Place, shard: ShardNo) -> bool {
        self.owners(shard).contains(&place)
    }

    /// Returns all places, each once, in the order in which clients ask for a shard.
    pub(crate) fn walk(&self, shard: ShardNo) -> &[Place] {
        &self.walks[shard]
    }

    /// Whether every shard has the same owners in both.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        (0..self.walks.len()).all(|shard| self.owners(shard) == other.owners(shard))
    }
}

/// The ring that a record commits.
pub(crate) fn committed(record: &Record) -> RingOf {
    RingOf {
        version: record.version,
        members: record.ring_members(),
        scheme: record.scheme,
        placement: record.placement,
    }
}
