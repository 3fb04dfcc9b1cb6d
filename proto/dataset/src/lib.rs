//! Temporary: the ids only, until the dataset crate is merged.

mod id;

pub use id::{IdError, ShardId, SnapshotId};
