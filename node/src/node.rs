//! Assembles a node: its cache, its fills and its servers. They start in that order and stop in the
//! opposite one.
//!
//! Thread rule: `start` and `shutdown` block, so call them from ordinary threads. A node creates
//! its own runtime. One process may hold several nodes.

mod budget;
mod preflight;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_base::{Error, ErrorKind, Member, Ring, limits, root_cause};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::background::prefetch::Prefetcher;
use crate::background::replication::Copier;
use crate::cache::{Cache, Counters};
use crate::catalog::Catalog;
use crate::catalog::leaves::Leaves;
use crate::cluster::{Cluster, Placements};
use crate::config::Config;
use crate::driver;
use crate::fill::{Filler, FirstFills, Maker, Peers, ReadThrough, Reader, TransferThrottle};
use crate::plans::ReadPlans;
use crate::serve::{Listeners, Servers, io_error};
use crate::shared::Shared;

/// Version of a ring that is a list in the configuration. It never changes while the node runs.
const STATIC_RING_VERSION: u64 = 1;

/// Version of the ring in use before the node has seen its cluster's ring. All cluster rings are
/// newer.
const UNKNOWN_RING_VERSION: u64 = 0;

/// Memory for one unit of weight, when no weight is configured.
const WEIGHT_UNIT_BYTES: u64 = 1 << 30;

/// How long shutdown waits for blocking work after the servers have ended. Tasks are dropped.
const RUNTIME_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The addresses of a node.
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
    /// The task that takes part in the cluster, if the node has one.
    part: Option<JoinHandle<()>>,
    /// Why the cluster does not take the node, if it does not.
    refused: Option<oneshot::Receiver<Error>>,
    runtime: Runtime,
}

impl Node {
    /// Starts a node: binds its addresses, takes its share of memory, and serves.
    ///
    /// # Errors
    /// An address is taken, the requested memory is not there, or the system refuses a thread.
    pub fn start(config: Config) -> Result<Self, Error> {
        larder_dataset::install_crypto();
        let listeners = Listeners {
            control: bind("--listen", config.listen)?,
            data: bind("--data-listen", config.data_listen)?,
        };
        let addresses = Addresses {
            listen: listeners.control.local_addr().map_err(io_error("--listen"))?,
            data: listeners.data.local_addr().map_err(io_error("--data-listen"))?,
            socket: config.socket.path.clone(),
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
        let (part, refused) = part.map(|part| (part.task, part.refused)).unzip();
        Copier::start(&shared);
        Prefetcher::start(&shared);
        Ok(Self { shared, servers, addresses, part, refused, runtime })
    }

    /// Runs `then` if the cluster does not take the node: no node answers its first join, or
    /// another process has its name. The node serves until it is shut down.
    pub fn when_refused(&mut self, then: impl FnOnce(Error) + Send + 'static) {
        let Some(refused) = self.refused.take() else { return };
        self.runtime.spawn(async move {
            // Without a sender the node takes part, or stops.
            if let Ok(why) = refused.await {
                then(why);
            }
        });
    }

    /// Returns the addresses it listens on, with real ports in place of 0.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Runs `then` once no client has used the node's unix socket for the configured time. Never
    /// runs it if no time is configured.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn when_unused(&self, then: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        match self.shared.config.exit_when_unused {
            Some(span) => self.servers.when_unused(span, then).map_err(io_error("a thread")),
            None => Ok(()),
        }
    }

    /// Stops accepting connections, finishes the requests in flight for at most `grace`, and ends.
    pub fn shutdown(self, grace: Duration) {
        self.shared.stopping.cancel();
        self.shared.cluster.iter().for_each(Cluster::stop);
        if let Some(part) = self.part {
            // A cluster task that died must not delay the shutdown.
            let _ = self.runtime.block_on(part);
        }
        // No fill goes on from here. Waiting clients are told at once, and ask the next node.
        self.shared.cache.close();
        self.servers.drain(grace);
        self.runtime.shutdown_timeout(RUNTIME_STOP_TIMEOUT);
    }
}

/// Builds the shared state behind the servers, and starts the fill workers.
fn share(
    config: Config,
    ring: Ring,
    cluster: Option<Cluster>,
    runtime: &Runtime,
) -> Result<Shared, Error> {
    let budget = budget::budget(config.memory, Path::new("/"), limits::NODE_OVERHEAD_BYTES)
        .map_err(|why| Error::new(ErrorKind::InvalidArgument, format!("--memory: {why}")))?;
    budget::check_file_size(budget.limit_bytes())?;
    let budget = budget.with_shards_max(budget::shards_max(Path::new("/")));
    let counters = Arc::new(Counters::default());
    let cache = Cache::start(budget, Arc::clone(&counters)).map_err(io_error("the reaper"))?;
    let reader = Arc::new(Reader::new(Arc::clone(&counters), cache.retained()));
    let stopping = CancellationToken::new();
    let handle = runtime.handle().clone();
    let placements = Placements::of_ring(Arc::new(ring));
    let placements = Arc::new(ArcSwap::from_pointee(placements));
    let catalog = Catalog::new(config.origins.clone(), Arc::clone(&cache));
    let catalog = if config.private { catalog.following_links() } else { catalog };
    let peers = Arc::new(Peers::new(&config.node_id, Arc::clone(&placements)));
    let throttle = Arc::new(TransferThrottle::default());
    let leaves = Leaves::new(&cache, handle.clone());
    let maker = Maker::new(&cache, &reader);
    let first = Arc::new(FirstFills {
        cache: Arc::clone(&cache),
        leaves: Arc::clone(&leaves),
        reader: Arc::clone(&reader),
        placements: Arc::clone(&placements),
        node_id: config.node_id.clone(),
        runtime: handle.clone(),
    });
    let first_fill = move |dataset, reads| Arc::clone(&first).begin(dataset, reads);
    let catalog = catalog.with_first_fill(Box::new(first_fill));
    Filler::new(&reader, &maker, &leaves, Arc::clone(&peers), &counters, &throttle)
        .start_workers(&cache, &handle, &stopping);
    Ok(Shared {
        boot_id: std::array::from_fn(|_| fastrand::u8(..)),
        catalog,
        origin_faults: ArcSwap::default(),
        read_through: ReadThrough::new(handle.clone(), reader, maker, Arc::clone(&counters)),
        config,
        cache,
        leaves,
        peers,
        counters,
        plans: ReadPlans::default(),
        throttle,
        placements,
        cluster,
        runtime: handle,
        stopping,
    })
}

/// Returns this node as a member, and the ring that it uses until it learns a newer one. That ring
/// has the configured members, or this node alone at the address it listens on.
fn place(config: &Config, listen: SocketAddr) -> Result<(Member, Ring), Error> {
    let (id, control) = (config.node_id.clone(), control_address(config, listen));
    let (host, zone) = (host_of(config, listen), config.zone.clone());
    let me = Member { id, weight: 1, control, host, zone };
    let (version, members) = match (config.cluster.as_ref(), &config.members[..]) {
        (Some(_), _) => (UNKNOWN_RING_VERSION, vec![me.clone()]),
        (None, []) => (STATIC_RING_VERSION, vec![me.clone()]),
        (None, members) => (STATIC_RING_VERSION, members.to_vec()),
    };
    let ring = Ring::new(version, members)?.with_replicas(config.replicas.unwrap_or(1))?;
    Ok((me, ring))
}

/// Sets the weight of a member: the configured one, else one unit per gibibyte of budget.
fn weighed(me: Member, shared: &Shared) -> Result<Member, Error> {
    let by_memory = (shared.cache.usage().limit_bytes + WEIGHT_UNIT_BYTES / 2) / WEIGHT_UNIT_BYTES;
    let by_memory = u32::try_from(by_memory.max(1)).unwrap_or(limits::RING_WEIGHT_MAX);
    let weight = shared.config.weight.unwrap_or(by_memory);
    let me = Member { weight, ..me };
    Ring::new(UNKNOWN_RING_VERSION, vec![me.clone()])?;
    Ok(me)
}

/// Returns the URL under which other nodes and clients reach the control port.
fn control_address(config: &Config, listen: SocketAddr) -> String {
    format!("http://{}:{}", host_of(config, listen), listen.port())
}

fn host_of(config: &Config, listen: SocketAddr) -> String {
    if let Some(host) = config.advertise.as_deref() {
        return host.to_owned();
    }
    match listen.ip() {
        ip if ip.is_unspecified() => config.host.clone(),
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

/// Says why an address can't be bound, and which step helps.
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
