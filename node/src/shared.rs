//! The state that all servers of a node share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Counters, Priority};
use crate::catalog::Catalog;
use crate::catalog::leaves::Leaves;
use crate::cluster::{Cluster, Placements};
use crate::config::Config;
use crate::dataset::Dataset;
use crate::fill::{Brought, Peers, ReadThrough, TransferThrottle, bring};
use crate::plans::ReadPlans;

/// The parts of a node that its servers use. One per node, behind an `Arc`.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The configuration.
    pub(crate) config: Config,
    /// Drawn at every start, to tell a restarted node from one that was silent.
    pub(crate) boot_id: [u8; 16],
    /// The datasets that are open.
    pub(crate) catalog: Catalog,
    /// Why prefixes of the configuration can't be read, by the last look at them.
    pub(crate) origin_faults: ArcSwap<Vec<String>>,
    /// The shards.
    pub(crate) cache: Arc<Cache>,
    /// The leaves of the manifests of open datasets.
    pub(crate) leaves: Arc<Leaves>,
    /// Reads rows of shards that are not kept.
    pub(crate) read_through: ReadThrough,
    /// The other nodes of the ring.
    pub(crate) peers: Arc<Peers>,
    /// Counts of fills since the start.
    pub(crate) counters: Arc<Counters>,
    /// In which order loaders read.
    pub(crate) plans: ReadPlans,
    /// The throttle of background transfers.
    pub(crate) throttle: Arc<TransferThrottle>,
    /// Which node owns which shards, as far as this node knows.
    pub(crate) placements: Arc<ArcSwap<Placements>>,
    /// The cluster with changing membership, if this node belongs to one.
    pub(crate) cluster: Option<Cluster>,
    /// The runtime for async work.
    pub(crate) runtime: Handle,
    /// Cancelled when the node stops: it accepts no connections and finishes the requests in
    /// flight.
    pub(crate) stopping: CancellationToken,
}

impl Shared {
    /// Fills a shard unless it is here.
    pub(crate) async fn bring(
        &self,
        dataset: &Arc<Dataset>,
        shard: u32,
        priority: Priority,
    ) -> Brought {
        bring(&self.cache, &self.leaves, dataset, shard, priority).await
    }
}
