//! What all servers of a node share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::catalog::Catalog;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::counters::Counters;
use crate::fill::ReadThrough;
use crate::pace::Pace;
use crate::peers::Peers;
use crate::placements::Placements;

/// The parts of a node that its servers use. One per node, behind an `Arc`.
#[derive(Debug)]
pub struct Shared {
    /// What was configured.
    pub config: Config,
    /// Drawn at every start: tells a restarted node from one that was merely silent.
    pub boot_id: [u8; 16],
    /// The datasets that are open.
    pub catalog: Catalog,
    /// The shards.
    pub cache: Arc<Cache>,
    /// Rows of shards that are not kept.
    pub read_through: ReadThrough,
    /// The other nodes of the ring.
    pub(crate) peers: Arc<Peers>,
    /// What fills have done so far.
    pub counters: Arc<Counters>,
    /// How fast shards may come and leave that nobody waits for.
    pub(crate) pace: Arc<Pace>,
    /// Which node owns which shards, as far as this node knows.
    pub placements: Arc<ArcSwap<Placements>>,
    /// The cluster whose membership can change, if this node is one of such.
    pub cluster: Option<Cluster>,
    /// Where async work runs.
    pub runtime: Handle,
    /// Cancelled when the node stops: no new connections, requests in flight are finished.
    pub stopping: CancellationToken,
}
