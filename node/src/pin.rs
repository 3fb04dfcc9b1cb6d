//! What a snapshot says that the bytes of a shard are.
//!
//! A shard is known by an id that does not cover its checksum: snapshots of the same objects share shards, and not all
//! of them pin a checksum, or the same one. So what one of them pins says nothing about what others get.

use std::fmt;
use std::sync::Arc;

use larder_base::{Error, ErrorKind};

use crate::dataset::Dataset;

/// Why a shard is believed to be what the origin has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It is not: it was read once, and nobody pins its digest.
    None,
    /// It was read twice alike, and is not what somebody pins.
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
    /// What the dataset pins, if it does.
    ///
    /// # Panics
    /// If the dataset has no such shard.
    pub(crate) fn of(dataset: &Arc<Dataset>, shard: u32) -> Option<Self> {
        let checksum = dataset.manifest().shard(shard).checksum?;
        Some(Self { checksum, dataset: Arc::clone(dataset), shard })
    }

    /// The digest that the shard is to have.
    pub(crate) fn checksum(&self) -> u64 {
        self.checksum
    }

    /// The dataset whose snapshot pins it.
    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The number of the shard in that dataset.
    pub(crate) fn shard(&self) -> u32 {
        self.shard
    }
}

/// The shard, for people.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.shard, self.dataset.uri())
    }
}

/// Why those who pin another checksum don't get the shard that the origin has.
pub(crate) fn wrong() -> Error {
    Error::new(
        ErrorKind::DataLoss,
        "its bytes don't have the checksum that the manifest pins; the object was changed \
         without a new etag, or is damaged: index the dataset again",
    )
}

/// Why those who pin a checksum don't get a shard that came in differently each time.
pub(crate) fn not_met() -> Error {
    Error::new(
        ErrorKind::DataLoss,
        "it was read twice and came differently each time, never with the checksum that the \
         manifest pins; something damages bytes at the origin or on their way: have that checked",
    )
}
