//! What tools for operators need besides the data path, in one place: indexing and reading datasets
//! on their origin, what nodes say about themselves, changing a cluster, and what a host gives to
//! extents.
//!
//! Training code has no use for any of it.

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

/// How many nodes may own one shard, at most.
pub const COPIES_MAX: u8 = 8;
const _: () = assert!(COPIES_MAX as usize == larder_base::limits::REPLICAS_MAX);

/// Indexes what lies under a prefix, as [`index()`], and waits for it. `progress` is called from
/// threads of this library. Once it is cancelled it ends soon, and publishes
/// nothing unless it has begun to.
///
/// # Errors
/// `InvalidArgument` for what is no prefix or can't be indexed, with the object and the field; else
/// what the origin said, or that it was cancelled.
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

/// The address of a prefix. One that ends like a tag is refused: whoever opens it would be taken to
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
