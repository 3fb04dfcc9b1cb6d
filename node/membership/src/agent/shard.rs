//! Names a shard within a cluster.

use larder_base::{ShardId, SnapshotId};

/// A shard, by the snapshot it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The shard.
    pub shard: ShardId,
}
