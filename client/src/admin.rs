//! What tools for operators need besides the data path, in one place: indexing and reading datasets
//! on their origin, what nodes say about themselves, changing a cluster, and what a host gives to extents.
//!
//! Training code has no use for any of it.

pub use crate::cluster::{Answer, Operator, PlannedChange, Seen, ShardCounts};
pub use larder_dataset::{
    DatasetError, DatasetRef, Dtype, FetchError, FillPlan, IndexOptions, IndexProgress, Indexed,
    LeftOut, Manifest, ManifestLocation, Opened, Origin, OriginError, OriginUri, PartRead,
    RowLocator, Scheme, Shard, ShardId, SnapshotId, TokenSpec, UriError, cache_home, index, open,
    open_with, shard_checksum,
};
pub use larder_extent::{
    PageSize,
    pages::{PageReport, probe as probe_pages},
};
pub use larder_wire::{
    SizeError,
    control::{
        AbortChange, DrainNode, PauseChange, RemoveNodes, ResumeChange, SetRate, UndrainNode,
    },
    control::{
        ChangeEdit, ClusterChange, ClusterDataset, ClusterHistory, ClusterNode, ClusterStatus,
        CoordinatorKind, Counters, DatasetStatus, Explanation, Failure as FillFailure, Load,
        MemoryUse, MoveProgress, NodeDescription, NodeFigures, NodeState, NodeWeight, PastChange,
        PlanChangeRequest, PlanFigures, ShardState, ShardStatus, TakeOverResponse,
        command_request::Command as ClusterCommand, explain_request::What as ExplainWhat,
    },
    limits::PLANNED_BYTES_MAX,
    parse_size,
};

use crate::{
    Error,
    dataset::{origin_error, parse_uri},
    runtime,
};

/// Indexes what lies under a prefix, as [`index()`], and waits for it. `progress` is called from
/// threads of this library.
///
/// # Errors
/// `InvalidArgument` for what is no prefix or can't be indexed, with the object and the field; else
/// what the origin said.
pub fn index_prefix(
    uri: &str,
    options: &IndexOptions,
    progress: &(dyn Fn(IndexProgress) + Send + Sync),
) -> Result<Indexed, Error> {
    let prefix = &parse_uri(uri)?;
    let indexed = runtime::block_on(async {
        let origin = Origin::connect(prefix).await.map_err(DatasetError::from)?;
        Box::pin(index(&origin, prefix, options, progress)).await
    });
    indexed.map_err(|error| origin_error(format!("cannot index {prefix}"), error))
}
