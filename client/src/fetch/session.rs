//! The nodes, sockets and maps of a fetcher in one process.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larder_base::limits;
use larder_dataset::Manifest;
use larder_extent::Attached;

use super::{node::Node, target::Target};
use crate::{
    deadline::CancelToken,
    directory::{Directory, Member},
    local::Slots,
    process,
    remote::Failure,
    route::Router,
    runtime,
};

pub(super) struct Session {
    /// Absent without a cluster, and until one of its nodes first answers.
    routes: ArcSwapOption<Routes>,
    pub(super) slots: Arc<Slots>,
}

/// The owners of the snapshot's shards on one ring, and the nodes in the order of that ring.
pub(super) struct Routes {
    directory: Arc<Directory>,
    pub(super) router: Router,
    pub(super) nodes: Box<[Arc<Node>]>,
}

impl Session {
    pub(super) fn new(manifest: &Manifest) -> Self {
        let slots = Arc::new(Slots::new(manifest.shard_count()));
        Self { routes: ArcSwapOption::empty(), slots }
    }

    /// The routes of the current placement.
    pub(super) fn routes(&self, target: &Target) -> Option<Arc<Routes>> {
        let cluster = target.cluster.as_ref()?;
        cluster.keep_up();
        let (current, directory) =
            (self.routes.load_full(), target.owner_directory.directory(cluster)?);
        let current = match current {
            Some(current) if Arc::ptr_eq(&current.directory, &directory) => return Some(current),
            other => other,
        };
        let known = current.as_deref().map_or(&[][..], |routes| &routes.nodes);
        let made = Arc::new(Routes::new(directory, target, known));
        self.routes.store(Some(Arc::clone(&made)));
        Some(made)
    }

    /// Maps a shard now, if an owner on this host has it.
    pub(super) fn attach(
        &self,
        target: &Target,
        shard: u32,
        cancel: &CancelToken,
    ) -> Option<Arc<Attached>> {
        if !target.options.local {
            return None;
        }
        let routes = self.routes(target)?;
        let usable: Vec<bool> =
            routes.nodes.iter().map(|node| node.member.health.is_up()).collect();
        let id = || target.manifest.shard(shard).id;
        let mappable_owner = routes
            .router
            .mappable_owner(shard, id)
            .filter(|&mappable_owner| usable[mappable_owner]);
        let node =
            &routes.nodes[mappable_owner.or_else(|| routes.router.pick(shard, id, &usable))?];
        if !node.is_open() {
            let opened = cancel.unless(node.open_soon(target, &self.slots));
            let opened = runtime::block_on(opened).ok()?.ok()?;
            if let Err(Failure::Silent) = opened {
                node.member.health.fail(process::uptime());
            }
            opened.ok()?;
        }
        let (socket, patience) = (node.socket()?, limits::OWNER_SILENT_TIMEOUT);
        if !socket.wait_connected(patience) || cancel.is_cancelled() {
            return None;
        }
        if self.slots.claim(shard, process::uptime()) {
            socket.ask(&[shard]);
        }
        socket.wait_for(shard, patience);
        self.slots.get(shard)
    }

    /// Drops the maps that a forked child inherited with the parent's session. The rest stays,
    /// because its locks may be held forever.
    pub(super) fn abandon(&self) {
        self.slots.clear();
    }
}

impl Routes {
    /// Creates routes. Nodes known before keep their connections.
    fn new(directory: Arc<Directory>, target: &Target, known: &[Arc<Node>]) -> Self {
        let placement = directory.placement().clone();
        let is_near =
            |member: &Arc<Member>| member.proximity.is_here() && target.options.maps(&member.id);
        let near = directory.members().iter().map(is_near).collect();
        let router = Router::new(placement, near, target.manifest.shard_count());
        let node = |member: &Arc<Member>| {
            let same = |node: &&Arc<Node>| Arc::ptr_eq(&node.member, member);
            let node = known.iter().find(same).cloned();
            node.unwrap_or_else(|| Arc::new(Node::new(Arc::clone(member))))
        };
        let nodes = directory.members().iter().map(node).collect();
        Self { router, nodes, directory }
    }

    /// Whether a node on this host must be opened before its memory can be mapped.
    pub(super) fn are_lenders_new(&self) -> bool {
        self.nodes.iter().any(|node| node.member.proximity.is_here() && !node.is_mappable())
    }
}
