//! What one process has open for a fetcher: nodes, sockets and maps.

use std::sync::Arc;

use arc_swap::ArcSwap;
use larder_dataset::Manifest;
use larder_extent::Attached;
use larder_wire::limits;

use super::{Fetcher, node::Node};
use crate::{
    Cluster,
    cluster::{Member, View},
    local::Slots,
    process,
    route::Router,
    runtime,
};

/// The open things of one process.
pub(super) struct Session {
    /// Absent without a cluster.
    routes: Option<ArcSwap<Routes>>,
    pub(super) slots: Arc<Slots>,
}

/// One ring, and the nodes on it in its order.
pub(super) struct Routes {
    view: Arc<View>,
    pub(super) router: Router,
    pub(super) nodes: Box<[Arc<Node>]>,
}

impl Session {
    pub(super) fn new(manifest: &Manifest, cluster: Option<&Cluster>) -> Self {
        let shards = manifest.shard_count();
        let routes = cluster.map(|cluster| Routes::new(cluster.view(), shards, &[]));
        Self { routes: routes.map(ArcSwap::from_pointee), slots: Arc::new(Slots::new(shards)) }
    }

    /// The routes by the ring as it is now.
    pub(super) fn routes(&self, fetcher: &Fetcher) -> Option<Arc<Routes>> {
        let (routes, cluster) = (self.routes.as_ref()?, fetcher.cluster.as_ref()?);
        let (current, view) = (routes.load_full(), cluster.view());
        cluster.keep_up(&view);
        if Arc::ptr_eq(&current.view, &view) {
            return Some(current);
        }
        let shards = fetcher.manifest.shard_count();
        let made = Arc::new(Routes::new(view, shards, &current.nodes));
        routes.store(Arc::clone(&made));
        Some(made)
    }

    /// Maps a shard now, if the node that owns it is on this host and has it.
    pub(super) fn attach(&self, fetcher: &Fetcher, shard: u32) -> Option<Arc<Attached>> {
        if !fetcher.options.local {
            return None;
        }
        let routes = self.routes(fetcher)?;
        let usable: Vec<bool> =
            routes.nodes.iter().map(|node| node.member.health.is_up()).collect();
        let id = || fetcher.manifest.shard(shard).id;
        let node = &routes.nodes[routes.router.pick(shard, id, &usable)?];
        if !node.is_open() {
            let cluster = fetcher.cluster.as_deref()?;
            runtime::block_on(node.open(cluster, fetcher, &self.slots)).ok()?;
        }
        let (socket, patience) = (node.socket()?, limits::OWNER_SILENT_TIMEOUT);
        if !socket.wait_connected(patience) {
            return None;
        }
        if self.slots.claim(shard, process::uptime()) {
            socket.ask(&[shard]);
        }
        socket.wait_for(shard, patience);
        self.slots.get(shard)
    }

    /// In a forked child: lets go of the maps that were inherited with the parent's session. All
    /// else stays as it is, for its locks may be held for ever.
    pub(super) fn abandon(&self) {
        self.slots.clear();
    }
}

impl Routes {
    /// Nodes that were known before keep their connections.
    fn new(view: Arc<View>, shards: u32, known: &[Arc<Node>]) -> Self {
        let node = |member: &Arc<Member>| {
            let same = |node: &&Arc<Node>| Arc::ptr_eq(&node.member, member);
            let node = known.iter().find(same).cloned();
            node.unwrap_or_else(|| Arc::new(Node::new(Arc::clone(member))))
        };
        let nodes = view.members.iter().map(node).collect();
        Self { router: Router::new(Arc::clone(&view.ring), shards), nodes, view }
    }
}
