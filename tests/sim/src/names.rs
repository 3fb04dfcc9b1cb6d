//! The numbers of a run's members and shards.

/// A node or a client by its number; the coordinator has the last one.
pub(crate) type Place = usize;
/// A shard by its number.
pub(crate) type ShardNo = usize;
