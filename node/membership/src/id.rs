//! Identifiers: of a shard within a cluster, of one revision of the record.

use larder_base::{ShardId, SnapshotId};

/// A shard, by the snapshot it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The shard.
    pub shard: ShardId,
}

/// The coordinator's count of writes to the record. The greater of two is the newer one, while the
/// record's generation is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);
