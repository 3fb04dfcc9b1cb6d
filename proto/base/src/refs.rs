//! Places in a snapshot, by number. Shards and tensors are counted in the manifest, rows in their
//! shard, all from 0.

/// A row of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowRef {
    /// Index of the shard in the manifest.
    pub shard: u32,
    /// Index of the row in the shard.
    pub row: u32,
}

/// The region of a tensor in a shard: the bytes of its rows there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionRef {
    /// Index of the shard in the manifest.
    pub shard: u32,
    /// Index of the tensor in the manifest.
    pub tensor: usize,
}
