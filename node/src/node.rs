//! The assembly: a node is its cache, its fills and its servers, started in that order and stopped in
//! the opposite one.
//!
//! Thread rule: `start` and `shutdown` block and are called from ordinary threads; a node brings its
//! own runtime. Several nodes can live in one process.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_base::{Error, ErrorKind, Member, Ring, limits, root_cause};
use larder_store::{Budget, BudgetError};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::catalog::Catalog;
use crate::cluster::Cluster;
use crate::config::{Config, Memory};
use crate::copies::Copier;
use crate::counters::Counters;
use crate::driver;
use crate::fill::{Filler, ReadThrough, Reader};
use crate::pace::Pace;
use crate::peers::Peers;
use crate::placements::Placements;
use crate::preflight;
use crate::serve::{Listeners, Servers};
use crate::shared::Shared;

/// Version of a ring that is a list in the configuration: it never changes while a node runs.
const STATIC_RING_VERSION: u64 = 1;

/// Version of what a node goes by before it has seen its cluster's ring: older than any of those.
const UNKNOWN_RING_VERSION: u64 = 0;

/// A node that is told no weight has one for each of these in its memory.
const WEIGHT_UNIT_BYTES: u64 = 1 << 30;

/// For what still runs when the servers have ended: blocking work finishes, tasks are dropped.
const RUNTIME_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a node can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC, `/metrics` and `/healthz`.
    pub listen: SocketAddr,
    /// Rows, over TCP.
    pub data: SocketAddr,
    /// The unix socket for clients on this host.
    pub socket: PathBuf,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    servers: Servers,
    addresses: Addresses,
    /// What it does as one of a cluster.
    part: Option<JoinHandle<()>>,
    runtime: Runtime,
}

impl Node {
    /// Starts a node: takes its addresses and its share of memory, and serves.
    ///
    /// # Errors
    /// If an address is taken, the memory asked for is not there, or the system refuses a thread.
    pub fn start(config: Config) -> Result<Self, Error> {
        larder_dataset::install_crypto();
        let listeners = Listeners {
            control: bind("--listen", config.listen())?,
            data: bind("--data-listen", config.data_listen())?,
        };
        let addresses = Addresses {
            listen: listeners.control.local_addr().map_err(io_error("--listen"))?,
            data: listeners.data.local_addr().map_err(io_error("--data-listen"))?,
            socket: config.socket().path.clone(),
        };
        let (me, ring) = place(&config, addresses.listen)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("larder-async")
            .enable_all()
            .build()
            .map_err(io_error("the runtime"))?;
        let address = control_address(&config, addresses.listen);
        let cluster = runtime.block_on(Cluster::start(&config, address))?;
        let shared = Arc::new(share(config, ring, cluster, &runtime)?);
        let servers = Servers::start(&shared, listeners)?;
        preflight::look(&shared);
        let part = driver::start(&shared, weighed(me, &shared)?);
        Copier::start(&shared);
        Ok(Self { shared, servers, addresses, part, runtime })
    }

    /// Where it listens; ports that were 0 are filled in.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What its servers share: for tests, and for looking into a node of one's own process.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs `then` once nobody has used the node's unix socket for as long as its configuration says;
    /// never if that says nothing.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn when_unused(&self, then: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        match self.shared.config.exit_when_unused() {
            Some(span) => self.servers.when_unused(span, then).map_err(io_error("a thread")),
            None => Ok(()),
        }
    }

    /// Stops taking connections, finishes the requests in flight for at most `grace`, and ends.
    pub fn shutdown(self, grace: Duration) {
        self.shared.stopping.cancel();
        self.shared.cluster.iter().for_each(Cluster::stop);
        if let Some(part) = self.part {
            // That it died is no reason to stay.
            let _ = self.runtime.block_on(part);
        }
        // Nobody fills any more: who waits for a shard is told so at once, and asks the next node.
        self.shared.cache.close();
        self.servers.drain(grace);
        self.runtime.shutdown_timeout(RUNTIME_STOP_TIMEOUT);
    }
}

/// Builds what stands behind the servers, and starts the workers.
fn share(
    config: Config,
    ring: Ring,
    cluster: Option<Cluster>,
    runtime: &Runtime,
) -> Result<Shared, Error> {
    let budget = budget(config.memory())
        .map_err(|why| Error::new(ErrorKind::InvalidArgument, format!("--memory: {why}")))?;
    let counters = Arc::new(Counters::default());
    let cache = Cache::start(budget, Arc::clone(&counters)).map_err(io_error("the reaper"))?;
    let reader = Arc::new(Reader::new(Arc::clone(&counters)));
    let stopping = CancellationToken::new();
    let handle = runtime.handle().clone();
    let placements = Placements::of_ring(Arc::new(ring));
    let placements = Arc::new(ArcSwap::from_pointee(placements));
    let catalog = Catalog::new(config.origins().to_vec(), Arc::clone(&cache));
    let catalog = if config.private() { catalog.following_links() } else { catalog };
    let peers = Arc::new(Peers::new(config.node_id(), Arc::clone(&placements)));
    let pace = Arc::new(Pace::default());
    Filler::new(&reader, Arc::clone(&peers), &counters, &pace)
        .start_workers(&cache, &handle, &stopping);
    Ok(Shared {
        boot_id: std::array::from_fn(|_| fastrand::u8(..)),
        catalog,
        read_through: ReadThrough::new(handle.clone(), reader, Arc::clone(&counters)),
        config,
        cache,
        peers,
        counters,
        pace,
        placements,
        cluster,
        runtime: handle,
        stopping,
    })
}

fn budget(asked: Option<Memory>) -> Result<Budget, BudgetError> {
    let (root, overhead) = (Path::new("/"), limits::NODE_OVERHEAD_BYTES);
    match asked {
        None => Budget::detect(None, root, overhead),
        Some(Memory::Bytes(bytes)) => Budget::detect(Some(bytes), root, overhead),
        Some(Memory::Share(percent)) => Budget::detect_share(percent, root, overhead),
    }
}

/// This node as a member, and the ring that it goes by until it learns of another: the members that are configured, or
/// itself alone where it really listens.
fn place(config: &Config, listen: SocketAddr) -> Result<(Member, Ring), Error> {
    let (id, control) = (config.node_id().to_owned(), control_address(config, listen));
    let (host, zone) = (host_of(config, listen), config.ring_share().zone.clone());
    let me = Member { id, weight: 1, control, host, zone };
    let (version, members) = match (config.cluster(), config.members()) {
        (Some(_), _) => (UNKNOWN_RING_VERSION, vec![me.clone()]),
        (None, []) => (STATIC_RING_VERSION, vec![me.clone()]),
        (None, members) => (STATIC_RING_VERSION, members.to_vec()),
    };
    let ring = Ring::new(version, members)?.with_copies(config.copies().unwrap_or(1))?;
    Ok((me, ring))
}

/// The same member with the weight that was asked for, or that its memory gives it.
fn weighed(me: Member, shared: &Shared) -> Result<Member, Error> {
    let by_memory = (shared.cache.usage().limit_bytes + WEIGHT_UNIT_BYTES / 2) / WEIGHT_UNIT_BYTES;
    let by_memory = u32::try_from(by_memory.max(1)).unwrap_or(limits::RING_WEIGHT_MAX);
    let weight = shared.config.ring_share().weight.unwrap_or(by_memory);
    let me = Member { weight, ..me };
    Ring::new(UNKNOWN_RING_VERSION, vec![me.clone()])?;
    Ok(me)
}

/// Where others reach the control port.
fn control_address(config: &Config, listen: SocketAddr) -> String {
    format!("http://{}:{}", host_of(config, listen), listen.port())
}

fn host_of(config: &Config, listen: SocketAddr) -> String {
    if let Some(host) = config.advertise() {
        return host.to_owned();
    }
    match listen.ip() {
        ip if ip.is_unspecified() => config.host().to_owned(),
        ip @ std::net::IpAddr::V4(_) => ip.to_string(),
        ip @ std::net::IpAddr::V6(_) => format!("[{ip}]"),
    }
}

fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|why| {
        let cannot = format!("{setting} {address}: {}", cannot_bind(&why));
        Error::new(ErrorKind::Unavailable, cannot).with_source(why)
    })
}

/// Why an address can't be had, and what to do.
fn cannot_bind(why: &std::io::Error) -> String {
    use std::io::ErrorKind as Io;
    match why.kind() {
        Io::AddrInUse => {
            "another process listens there; stop it, or choose another port".to_owned()
        }
        Io::AddrNotAvailable => {
            "no interface of this host has that address; choose one that `ip addr` shows".to_owned()
        }
        Io::PermissionDenied => {
            "this user may not listen there; choose a port from 1024 on".to_owned()
        }
        _ => format!("{}; choose another address or port", root_cause(why)),
    }
}

fn io_error(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |why| {
        let message = format!("{what}: {}", root_cause(&why));
        Error::new(ErrorKind::Unavailable, message).with_source(why)
    }
}
