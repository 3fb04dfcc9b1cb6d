//! The functions for operators' tools beside the data path: indexing and reading datasets on their
//! origin, inspecting nodes, changing a cluster, and the memory of a host for extents.
//!
//! Training code needs none of them.

pub use crate::directory::{Answer, Operator, PlannedChange, Seen, ShardCounts};
pub use larder_base::{ShardId, SnapshotId};
pub use larder_base::{SizeError, limits::PLANNED_BYTES_MAX, parse_size};
pub use larder_dataset::{
    DatasetError, DatasetRef, Dtype, FetchError, FillPlan, IndexOptions, IndexProgress, Indexed,
    LeftOut, Manifest, ManifestLocation, Opened, Origin, OriginError, OriginUri, PartRead,
    RowLocator, Scheme, Shard, TokenSpec, UriError, cache_home, index, open, open_with,
    shard_checksum,
};
pub use larder_extent::{
    PageSize,
    pages::{PageReport, probe as probe_pages},
};
pub use larder_wire::control::{
    AbortChange, ChangeEdit, ClusterChange, ClusterDataset, ClusterHistory, ClusterNode,
    ClusterStatus, CoordinatorKind, Counters, DatasetStatus, DrainNode, Explanation,
    Failure as FillFailure, Load, MemoryUse, MoveProgress, NodeDescription, NodeFigures, NodeState,
    NodeWeight, PastChange, PauseChange, PlanChangeRequest, PlanFigures, RemoveNodes, ResumeChange,
    SetRate, ShardState, ShardStatus, TakeOverResponse, UndrainNode,
    command_request::Command as ClusterCommand, explain_request::What as ExplainWhat,
};

use crate::{
    CancelToken, Error, ErrorKind,
    dataset::{index_error, parse_uri},
    runtime,
};

/// The most nodes that may own one shard.
pub const COPIES_MAX: u8 = 8;
const _: () = assert!(COPIES_MAX as usize == larder_base::limits::REPLICAS_MAX);

/// Indexes a prefix, as [`index()`], and waits for it. Threads of this library call `progress`.
/// After cancellation it ends soon, and publishes only if it had already begun to.
///
/// # Errors
/// - `InvalidArgument` for an invalid prefix or data that can't be indexed, with the object and
///   field.
/// - The origin's error.
/// - An error if it was cancelled.
pub fn index_prefix(
    uri: &str,
    options: &IndexOptions,
    progress: &(dyn Fn(IndexProgress) + Send + Sync),
    cancel: &CancelToken,
) -> Result<Indexed, Error> {
    let prefix = &parse_prefix(uri)?;
    let indexed = runtime::block_on(cancel.unless(async {
        let origin = Origin::connect(prefix).await.map_err(DatasetError::from)?;
        Box::pin(index(&origin, prefix, options, progress)).await
    }))??;
    indexed.map_err(|error| index_error(prefix, error))
}

/// Parses the address of a prefix. Refuses one with an ending like a tag, because opening it would
/// mean that tag.
fn parse_prefix(uri: &str) -> Result<OriginUri, Error> {
    let prefix = parse_uri(uri)?;
    let Some((before, tag)) = uri.rsplit_once('@').filter(|(_, tag)| !tag.contains('/')) else {
        return Ok(prefix);
    };
    let what = format!("'{uri}' names a version, not a prefix");
    let hint = format!(
        "to index '{before}' as the version '{tag}', give the tag apart; if '@' is part of its name, end the \
         prefix with '/', here and where it is opened"
    );
    Err(Error::new(ErrorKind::InvalidArgument, what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_prefix_that_parses_as_reference_with_tag() {
        let refused = parse_prefix("s3://bucket/data@v3").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let hint = refused.advice_text().unwrap();
        assert!(hint.contains("'s3://bucket/data'") && hint.contains("'v3'"), "{hint}");
        for prefix in ["s3://bucket/data", "s3://bucket/me@home/data", "s3://bucket/data@v3/"] {
            let opened = DatasetRef::parse(prefix).unwrap();
            assert_eq!((&parse_prefix(prefix).unwrap(), "latest"), (opened.uri(), opened.tag()));
        }
    }
}
