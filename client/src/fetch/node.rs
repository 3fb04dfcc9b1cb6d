//! A node as a fetcher sees it: its data address, its ticket, and its open connections.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use larder_base::{ErrorKind, Ticket, data_address, limits};

use super::Target;
use crate::{
    Error,
    deadline::CancelToken,
    directory::Member,
    local::{Slots, Socket},
    process,
    remote::{Connection, Failure, Pool},
    runtime,
};

pub(super) struct Node {
    pub(super) member: Arc<Member>,
    pub(super) pool: Arc<Pool>,
    access: ArcSwapOption<Access>,
    socket: OnceLock<Socket>,
    /// The uptime in milliseconds before which the node is not opened again only to map its memory.
    lend_at: AtomicU64,
    /// The last try to connect to its data port failed.
    unreached: AtomicBool,
    /// The warning that its data port is blocked was given.
    blocked: AtomicBool,
}

/// How long to wait before a node is opened again only to map its memory.
const LEND_AGAIN: Duration = Duration::from_secs(5);

/// The permission to read the snapshot from a node, valid until the node restarts.
struct Access {
    /// `host:port` of its data plane.
    address: String,
    ticket: Ticket,
    /// The data port could not be reached before the control port gave this.
    after_unreached: bool,
}

impl Node {
    pub(super) fn new(member: Arc<Member>) -> Self {
        let (pool, access, socket) = (Arc::default(), ArcSwapOption::empty(), OnceLock::new());
        let (unreached, blocked) = (AtomicBool::default(), AtomicBool::default());
        Self { member, pool, access, socket, lend_at: AtomicU64::new(0), unreached, blocked }
    }

    /// Whether connections can be made. If not, call [`Node::open`] first.
    pub(super) fn is_open(&self) -> bool {
        self.access.load().is_some()
    }

    /// Whether it can be asked for maps. If not, it must be opened for them first.
    pub(super) fn is_mappable(&self) -> bool {
        self.is_open() && !self.socket().is_some_and(Socket::is_unknown)
    }

    /// The node's socket, if it listens on this host.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.get()
    }

    /// As [`open`](Self::open), for callers with another node to ask: a slow node counts as silent.
    /// The node finishes opening by itself, so a later call finds it done.
    pub(super) async fn open_soon(
        &self,
        target: &Target,
        slots: &Arc<Slots>,
    ) -> Result<(), Failure> {
        let opened = tokio::time::timeout(limits::OPEN_NODE_TIMEOUT, self.open(target, slots));
        match opened.await {
            Ok(opened) => opened.map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => Failure::Unwilling(error),
                _ => Failure::Answer(error),
            }),
            Err(_) => Err(Failure::Silent),
        }
    }

    /// Opens the dataset in the background, to map this node's memory. Rows come from other nodes
    /// meanwhile, and also if it fails.
    pub(super) fn open_to_map(self: &Arc<Self>, target: &Arc<Target>, slots: &Arc<Slots>) {
        let now = process::uptime();
        let [now, next] = [now, now + LEND_AGAIN].map(millis);
        let before = self.lend_at.load(Relaxed);
        let claims = || self.lend_at.compare_exchange(before, next, Relaxed, Relaxed).is_ok();
        if self.is_mappable() || now < before || !claims() {
            return;
        }
        let (node, target, slots) = (Arc::clone(self), Arc::clone(target), Arc::clone(slots));
        let opening = async move {
            if let Err(failure) = node.open_soon(&target, &slots).await {
                tracing::debug!(node = node.member.id, ?failure, "its memory can't be mapped yet");
            }
        };
        // If no thread can be started, a later call tries again.
        let _ = runtime::spawn(opening);
    }

    /// Asks the node for a ticket and its data address.
    async fn open(&self, target: &Target, slots: &Arc<Slots>) -> Result<(), Error> {
        let cluster = target.cluster.as_deref().expect("a node is a member of a cluster");
        let (node, open) = match cluster.open_on(&self.member, &target.pinned).await {
            // If the prefix is read-only, each node keeps its own manifest. It finds or makes the
            // manifest by the name that the user gave.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                cluster.open_on(&self.member, &target.name).await?
            }
            opened => opened?,
        };
        let (wanted, found) = (target.manifest.snapshot(), open.snapshot);
        if found != wanted {
            let what = format!("node {} opened snapshot {found} for {wanted}", self.member.id);
            return Err(Error::new(ErrorKind::Internal, what));
        }
        let address = data_address(&node.data_address, &self.member.control);
        let after_unreached = self.unreached.load(Relaxed);
        let access = Access { address, ticket: open.ticket, after_unreached };
        self.access.store(Some(Arc::new(access)));
        if target.options.maps(&self.member.id) && !node.socket_path.is_empty() {
            let (manifest, slots) = (target.manifest.clone(), Arc::clone(slots));
            self.socket.get_or_init(|| {
                Socket::open(node.socket_path.into(), node.node_id, manifest, slots)
            });
        }
        if let Some(socket) = self.socket() {
            socket.reopened();
        }
        Ok(())
    }

    /// Drops the ticket, because the node restarted and no longer knows it or the dataset.
    pub(super) fn forget(&self) {
        self.access.store(None);
        self.pool.clear();
    }

    /// Opens a new connection.
    pub(super) fn connect(&self, cancel: &CancelToken) -> Result<Connection, Failure> {
        let access = self.access.load_full();
        let access = access.ok_or_else(|| Failure::Broken("it was restarted".to_owned()))?;
        let addresses = access.address.to_socket_addrs();
        let addresses: Vec<SocketAddr> = addresses
            .map_err(|error| Failure::Broken(format!("{}: {error}", access.address)))?
            .collect();
        let opened = Connection::open(&addresses, access.ticket, cancel);
        self.unreached.store(matches!(opened, Err(Failure::Unreachable(_))), Relaxed);
        let (connection, ok) =
            opened.inspect_err(|failure| self.warn_if_blocked(&access, failure))?;
        if ok.node_id == self.member.id {
            return Ok(connection);
        }
        Err(Failure::Broken(format!("node {} answers at {}", ok.node_id, access.address)))
    }

    /// Whether the user was warned that its control port answers and its data port does not.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Relaxed)
    }

    /// Warns once if the control port answered between two failures of the data port. A node that
    /// restarts fails only once.
    fn warn_if_blocked(&self, access: &Access, failure: &Failure) {
        let Failure::Unreachable(why) = failure else { return };
        if access.after_unreached && !self.blocked.swap(true, Relaxed) {
            let Member { id, control, .. } = &*self.member;
            tracing::warn!(
                "node {id} answers at {control}, but its data port {} can't be reached from here \
                 ({why}): its rows come from other nodes or the origin; let this host connect to \
                 that port, or correct the node's --data-advertise",
                access.address
            );
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
