//! The servers of a node: rows over TCP, shared memory over a unix socket, control and metrics over
//! HTTP.
//!
//! ```text
//! data ── session ── gather ── staging        one thread per connection, blocking sockets
//! local ────┘           │
//! control ── http       ▼                     tokio tasks
//!                cache, flights, catalog
//! ```
//!
//! Thread rule: data plane threads block. Each waits in poll(2) for its socket and for the stop
//! event. The control plane runs on the node's runtime. Every resource that a client can make this
//! module hold is bounded: connections, handshakes, requests, staging memory and leases.
//!
//! Non-goals: deciding which shards to keep (the cache), reading the origin (fills), encryption.

mod acceptor;
mod activity;
mod byte_pool;
mod peer;
mod slow_reader;
mod stop;

mod data;
mod gather;
mod part;
mod session;
mod staging;

mod local;
mod metrics;

mod control;
mod http;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::{BootId, Error, ErrorKind, Ticket, limits};
use tokio::sync::Semaphore;

use crate::clock;
use crate::shared::Shared;
use acceptor::Connections;
use byte_pool::BytePool;
use local::Clients;
use stop::Stop;

pub(crate) use activity::Activity;

/// How long connections may take to end after they were told to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sockets of a node, bound before anything else starts, so that the ring names the bound
/// ports.
#[derive(Debug)]
pub struct Listeners {
    /// For gRPC, `/metrics` and `/healthz`.
    pub control: TcpListener,
    /// For rows.
    pub data: TcpListener,
}

/// The state that all servers share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) activity: Activity,
    pub(crate) stop: Arc<Stop>,
    pub(crate) data: Arc<Connections>,
    pub(crate) local: Arc<Connections>,
    pub(crate) clients: Arc<Clients>,
    /// Sent with every opened dataset, and required on the data plane. Proves that a client found
    /// this boot of this node.
    ticket: Ticket,
    staging: Arc<BytePool>,
    requests: Arc<BytePool>,
    /// Limits the datasets being opened.
    opening: Arc<Semaphore>,
    /// Limits the walks over all shards.
    listing: Arc<Semaphore>,
    /// Limits the nodes that are answered about last uses.
    last_uses: Semaphore,
    started: Instant,
    /// The address for rows, as told to clients.
    data_address: String,
    /// The address for control: `http://host:port`.
    control_address: String,
    socket_path: PathBuf,
}

/// The servers of a node.
#[derive(Debug)]
pub struct Servers {
    context: Arc<Context>,
    socket: local::SocketFile,
    http: http::Server,
}

impl Servers {
    /// Starts all servers.
    ///
    /// # Errors
    /// The unix socket can't be created, or the system refuses a thread.
    pub fn start(shared: &Arc<Shared>, listeners: Listeners) -> Result<Self, Error> {
        let failed = |what: &'static str| {
            move |why: std::io::Error| {
                Error::new(ErrorKind::Unavailable, format!("{what}: {why}")).with_source(why)
            }
        };
        let (socket, unix) = local::SocketFile::bind(shared.config.socket())?;
        let bound = listeners.data.local_addr().map_err(failed("--data-listen"))?;
        let advertised = shared.config.data_advertise().map(str::to_owned);
        let data_address = advertised.unwrap_or_else(|| bound.to_string());
        let control = listeners.control.local_addr().map_err(failed("--listen"))?;
        let socket_path = socket.path().to_owned();
        let context = Context::new(shared, data_address, format!("http://{control}"), socket_path)
            .map_err(failed("the servers"))?;
        let context = Arc::new(context);
        data::start(&context, &context.data, listeners.data).map_err(failed("--data-listen"))?;
        local::start(&context, &context.local, unix).map_err(failed("--socket"))?;
        let http = http::Server::start(&context, listeners.control).map_err(failed("--listen"))?;
        Ok(Self { context, socket, http })
    }

    /// Runs `then` on a thread of its own once no client has been connected to the unix socket for
    /// `span`. From then on no client is admitted. The first client may take longer to connect.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn when_unused(
        &self,
        span: Duration,
        then: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let connections = Arc::clone(&self.context.local);
        let wait = move || {
            connections.close_when_unused(span);
            then();
        };
        std::thread::Builder::new().name("larder-unused".to_owned()).spawn(wait).map(drop)
    }

    /// Stops accepting, and waits at most `grace` for requests in flight. Blocks.
    pub fn drain(&self, grace: Duration) {
        let deadline = clock::now() + grace;
        let left = || deadline.saturating_duration_since(clock::now());
        self.socket.remove();
        self.context.stop.give();
        self.context.local.close();
        self.http.stop();
        for connections in [&self.context.data, &self.context.local] {
            if !connections.wait_empty(left()) {
                connections.close_all();
                connections.wait_empty(CLOSE_TIMEOUT);
            }
        }
        self.http.wait(left());
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
    }
}

impl Context {
    fn new(
        shared: &Arc<Shared>,
        data_address: String,
        control_address: String,
        socket_path: PathBuf,
    ) -> std::io::Result<Self> {
        let clients = Arc::new(Clients::default());
        let recalled = Arc::clone(&clients);
        shared.cache.on_recall(Box::new(move |shard| recalled.recall(shard)));
        Ok(Self {
            shared: Arc::clone(shared),
            activity: Activity::default(),
            stop: Arc::new(Stop::new()?),
            data: Connections::new(data::BOUNDS),
            local: Connections::new(local::BOUNDS),
            clients,
            ticket: new_ticket()?,
            staging: BytePool::new(limits::STAGING_BYTES_TOTAL),
            requests: BytePool::new(limits::REQUEST_BYTES_TOTAL),
            opening: Arc::new(Semaphore::new(limits::OPENINGS_MAX)),
            listing: Arc::new(Semaphore::new(limits::LISTINGS_MAX)),
            last_uses: Semaphore::new(limits::LAST_USES_ANSWERED_MAX),
            started: clock::now(),
            data_address,
            control_address,
            socket_path,
        })
    }

    fn boot_id(&self) -> BootId {
        BootId::from_bytes(self.shared.boot_id)
    }
}

fn new_ticket() -> std::io::Result<Ticket> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| std::io::Error::other("the system gives no random bytes"))?;
    Ok(Ticket::from_bytes(bytes))
}

#[cfg(test)]
mod tests;
