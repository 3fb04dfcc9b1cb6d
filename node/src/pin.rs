//! The checksum that a snapshot pins for a shard, and the proof that the shard in memory has it.
//!
//! The id of a shard does not cover its checksum, and snapshots of the same objects share shards.
//! Not all of them pin a checksum, or the same one. So a pin of one snapshot says nothing about the
//! others.

use std::fmt;
use std::sync::Arc;

use larder_wire::{Error, ErrorKind};

use crate::catalog::Dataset;

/// The reason to believe that a shard equals the origin's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// No reason: it was read once, and no snapshot pins its digest.
    None,
    /// Two reads agreed. A snapshot pins another digest.
    ReadTwice,
    /// Some snapshot pins its digest.
    Pinned,
}

/// The checksum that a snapshot pins for a shard.
#[derive(Debug, Clone)]
pub(crate) struct Pin {
    checksum: u64,
    dataset: Arc<Dataset>,
    shard: u32,
}

impl Pin {
    /// Returns the pin of a dataset for a shard, if the manifest has one.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) fn of(dataset: &Arc<Dataset>, shard: u32) -> Option<Self> {
        let checksum = dataset.manifest().shard(shard).checksum?;
        Some(Self { checksum, dataset: Arc::clone(dataset), shard })
    }

    /// Returns the digest that the shard must have.
    pub(crate) fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Returns the dataset with the snapshot that pins the shard.
    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Returns the index of the shard in that dataset.
    pub(crate) fn shard(&self) -> u32 {
        self.shard
    }
}

/// Names the shard in messages.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.shard, self.dataset.uri())
    }
}

/// Returns the error for snapshots that pin a checksum other than that of the origin's bytes.
pub(crate) fn wrong() -> Error {
    Error::new(
        ErrorKind::DataLoss,
        "its bytes don't have the checksum that the manifest pins; the object was changed \
         without a new etag, or is damaged: index the dataset again",
    )
}

/// Returns the error for snapshots that pin a checksum when two reads of the shard differ.
pub(crate) fn not_met() -> Error {
    Error::new(
        ErrorKind::DataLoss,
        "it was read twice and came differently each time, never with the checksum that the \
         manifest pins; something damages bytes at the origin or on their way: have that checked",
    )
}
