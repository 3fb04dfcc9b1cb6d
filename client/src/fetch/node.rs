//! One node as a fetcher knows it: where its data plane is, the right to use it, and what is open.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
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

/// A node and the connections to it.
pub(super) struct Node {
    pub(super) member: Arc<Member>,
    pub(super) pool: Arc<Pool>,
    access: ArcSwapOption<Access>,
    socket: OnceLock<Socket>,
    /// Milliseconds of uptime before which it is not opened for its memory alone.
    lend_at: AtomicU64,
}

/// For so long a node is left alone that was opened, or was to be, for its memory alone.
const LEND_AGAIN: Duration = Duration::from_secs(5);

/// The right to read the snapshot from a node, since its last start.
struct Access {
    /// `host:port` of its data plane.
    address: String,
    ticket: Ticket,
}

impl Node {
    pub(super) fn new(member: Arc<Member>) -> Self {
        let (pool, access, socket) = (Arc::default(), ArcSwapOption::empty(), OnceLock::new());
        Self { member, pool, access, socket, lend_at: AtomicU64::new(0) }
    }

    /// Whether connections can be made, or have to be asked for by [`Node::open`] first.
    pub(super) fn is_open(&self) -> bool {
        self.access.load().is_some()
    }

    /// Whether it can be asked for its memory, or has to be opened for that first.
    pub(super) fn is_mappable(&self) -> bool {
        self.is_open() && !self.socket().is_some_and(Socket::is_unknown)
    }

    /// The node's socket, if it listens on this host.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.get()
    }

    /// As [`open`](Self::open), for those who have somebody else to ask: a node that takes long is
    /// silent. It goes on by itself, and whoever asks it later finds it done.
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

    /// Opens the dataset here by itself, for the memory that this node can lend: rows come from
    /// others meanwhile, and if nothing comes of it.
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
                tracing::debug!(node = node.member.id, ?failure, "it is_mappable no memory yet");
            }
        };
        // Without threads for it, it is tried again.
        let _ = runtime::spawn(opening);
    }

    /// Asks for the right to read, and where to.
    async fn open(&self, target: &Target, slots: &Arc<Slots>) -> Result<(), Error> {
        let cluster = target.cluster.as_deref().expect("a node is a member of a cluster");
        let (node, open) = match cluster.open_on(&self.member, &target.pinned).await {
            // Where the prefix can't be written to, each node keeps a manifest of its own, which it
            // finds, or makes, by the name that the user gave.
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
        self.access.store(Some(Arc::new(Access { address, ticket: open.ticket })));
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

    /// The node no longer knows the ticket, or the dataset: it was restarted.
    pub(super) fn forget(&self) {
        self.access.store(None);
        self.pool.clear();
    }

    /// A new connection.
    pub(super) fn connect(&self, cancel: &CancelToken) -> Result<Connection, Failure> {
        let access = self.access.load_full();
        let access = access.ok_or_else(|| Failure::Broken("it was restarted".to_owned()))?;
        let addresses = access.address.to_socket_addrs();
        let addresses: Vec<SocketAddr> = addresses
            .map_err(|error| Failure::Broken(format!("{}: {error}", access.address)))?
            .collect();
        let (connection, ok) = Connection::open(&addresses, access.ticket, cancel)?;
        if ok.node_id == self.member.id {
            return Ok(connection);
        }
        Err(Failure::Broken(format!("node {} answers at {}", ok.node_id, access.address)))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
