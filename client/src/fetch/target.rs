//! What a fetcher reads, and how: fixed for its life.

use std::{sync::Arc, time::Duration};

use larder_dataset::Manifest;

use crate::{Cluster, DatasetName, directory::OwnerDirectory};

/// How long a call goes on trying when nodes or the origin say "try again", unless told otherwise.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(120);

/// How rows are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Whether to map the extents of nodes on this host.
    pub local: bool,
    /// Nodes, by id, that are read over the network even if they are on this host.
    pub over_network: Vec<String>,
    /// How long one call goes on trying when nodes or the origin say "try again".
    pub patience: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { local: true, over_network: Vec::new(), patience: PATIENCE_DEFAULT }
    }
}

impl FetchOptions {
    /// Whether the memory of this node may be mapped.
    pub(super) fn maps(&self, node: &str) -> bool {
        self.local && !self.over_network.iter().any(|id| id == node)
    }
}

/// One snapshot, under its names, and the way to it.
pub(super) struct Target {
    pub(super) manifest: Manifest,
    /// As the user opened it.
    pub(super) name: DatasetName,
    /// The same, pinned to the snapshot.
    pub(super) pinned: DatasetName,
    pub(super) cluster: Option<Arc<Cluster>>,
    /// To the owners of its shards among the cluster's nodes.
    pub(super) owner_directory: Arc<OwnerDirectory>,
    pub(super) options: FetchOptions,
}

impl Target {
    pub(super) fn new(
        manifest: Manifest,
        name: &DatasetName,
        cluster: Option<Arc<Cluster>>,
        options: FetchOptions,
    ) -> Self {
        let pinned = name.pinned(manifest.snapshot());
        let owner_directory = OwnerDirectory::new(manifest.snapshot(), manifest.shard_count());
        Self { manifest, name: name.clone(), pinned, cluster, owner_directory, options }
    }
}
