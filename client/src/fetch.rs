//! SIGNATURES FIRST: bodies follow. What the loader codes against.

use std::{sync::Arc, time::Duration};

use larder_dataset::{DatasetRef, Manifest, OriginUri};
use larder_extent::Attached;
use larder_wire::data::RowRef;

use crate::{Cluster, Error};

/// Under which name nodes know the dataset: what they are asked to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetName {
    /// Prefix and tag.
    pub reference: DatasetRef,
    /// Where the manifest lies when not beside the data.
    pub manifest: Option<OriginUri>,
}

/// How rows are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Whether to map the extents of nodes on this host. On by default.
    pub local: bool,
    /// How long one call goes on trying when nodes or the origin say "try again": 120 s by default.
    pub patience: Duration,
}

/// Where the rows of one gather came from, and what they cost. Rows are counted once, however many
/// tensors they have. `Sources` of several gathers add up with `+=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Copied out of extents mapped from a node on this host.
    pub rows_local: u64,
    /// Sent by a node out of its memory.
    pub rows_remote: u64,
    /// Read by range from the origin, by a node that does not keep them or by this process.
    pub rows_origin: u64,
    /// Bytes of rows delivered.
    pub bytes: u64,
    /// Time spent waiting for nodes: to connect, and for bytes to arrive.
    pub wait_nodes: Duration,
    /// Time spent reading from the origin in this process.
    pub wait_origin: Duration,
    /// Time spent waiting before another try.
    pub wait_retries: Duration,
}

/// Reads rows of one snapshot.
pub struct Fetcher {}

impl Fetcher {
    /// Nothing is connected yet. Without a cluster all rows come from the origin.
    pub fn new(manifest: Manifest, name: DatasetName, cluster: Option<Arc<Cluster>>, options: FetchOptions) -> Arc<Self>;
    /// The snapshot's index.
    pub fn manifest(&self) -> &Manifest;
    /// Fills `out[k]` with the rows of tensor `tensors[k]`, in the order of `rows`:
    /// `rows.len() * row_bytes` bytes each.
    pub fn gather(&self, rows: &[RowRef], tensors: &[usize], out: &mut [&mut [u8]]) -> Result<Sources, Error>;
    /// A row where it lies, when its shard is mapped or can be mapped at once; checked once here.
    pub fn view(&self, row: RowRef, tensor: usize) -> Option<RowView>;
}

/// One row of one tensor in a mapped extent; holds the map. Derefs to `[u8]`.
pub struct RowView { attached: Arc<Attached>, region: usize, row: u64 }
