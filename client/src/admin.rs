//! What tools for operators need besides the data path, in one place: indexing and reading datasets
//! on their origin, what nodes say about themselves, and what a host gives to extents.
//!
//! Training code has no use for any of it.

pub use crate::cluster::{Answer, ShardCounts};
pub use larder_dataset::{
    DatasetError, DatasetRef, Dtype, FetchError, FillPlan, IndexOptions, IndexProgress, Indexed,
    LeftOut, Manifest, ManifestLocation, Opened, Origin, OriginError, OriginUri, PartRead,
    RowLocator, Scheme, Shard, SnapshotId, TokenSpec, UriError, index, open, open_with,
    shard_checksum,
};
pub use larder_extent::{
    PageSize,
    pages::{PageReport, probe as probe_pages},
};
pub use larder_wire::{
    SizeError,
    control::{Counters, DatasetStatus, Failure as FillFailure, Load, MemoryUse, NodeDescription},
    parse_size,
};
