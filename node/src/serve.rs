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
mod address;
mod peer;

mod data;
mod gather;
mod session;
mod staging;

mod local;
mod metrics;

mod control;
mod http;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_base::{BootId, Error, ErrorKind, Ticket, limits, root_cause};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::Semaphore;

use crate::cache::Counter;
use crate::clock;
use crate::shared::Shared;
use acceptor::Connections;
use local::Clients;
use staging::BytePool;

/// Questions about last uses that a node answers at once. The others wait, at most
/// [`limits::LAST_USES_TIMEOUT`].
const LAST_USES_ANSWERED_MAX: usize = 4;

/// Listings that walk over all shards at once; each has a thread and takes the cache's lock in
/// turn.
const LISTINGS_MAX: usize = 4;

/// How long connections may take to end after they were told to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sockets of a node, bound before anything else starts, so that the ring names the bound
/// ports.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// For gRPC, `/metrics` and `/healthz`.
    pub(crate) control: TcpListener,
    /// For rows.
    pub(crate) data: TcpListener,
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
pub(crate) struct Servers {
    context: Arc<Context>,
    socket: local::SocketFile,
    http: http::Server,
}

impl Servers {
    /// Starts all servers.
    ///
    /// # Errors
    /// The unix socket can't be created, or the system refuses a thread.
    pub(crate) fn start(shared: &Arc<Shared>, listeners: Listeners) -> Result<Self, Error> {
        let (socket, unix) = local::SocketFile::bind(&shared.config.socket)?;
        let bound = listeners.data.local_addr().map_err(io_error("--data-listen"))?;
        let advertised = shared.config.data_advertise.clone();
        let data_address = advertised.unwrap_or_else(|| bound.to_string());
        let control = listeners.control.local_addr().map_err(io_error("--listen"))?;
        let socket_path = socket.path().to_owned();
        let context = Context::new(shared, data_address, format!("http://{control}"), socket_path)
            .map_err(io_error("the servers"))?;
        let context = Arc::new(context);
        data::start(&context, &context.data, listeners.data).map_err(io_error("--data-listen"))?;
        local::start(&context, &context.local, unix).map_err(io_error("--socket"))?;
        let http =
            http::Server::start(&context, listeners.control).map_err(io_error("--listen"))?;
        Ok(Self { context, socket, http })
    }

    /// Runs `then` on a thread of its own once no client has been connected to the unix socket for
    /// `span`. From then on no client is admitted.
    ///
    /// - The first client may take longer to connect.
    /// - A client with refused opens only does not count.
    /// - Until an open succeeds, the node ends with its last client: its credentials may be wrong.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn when_unused(
        &self,
        span: Duration,
        then: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let connections = Arc::clone(&self.context.local);
        let wait = move || {
            connections.close_when_unused(span);
            then();
        };
        std::thread::Builder::new().name("larder-unused".to_owned()).spawn(wait).map(drop)
    }

    /// Stops accepting, and waits at most `grace` for requests in flight. Blocks.
    pub(crate) fn drain(&self, grace: Duration) {
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
    ) -> io::Result<Self> {
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
            listing: Arc::new(Semaphore::new(LISTINGS_MAX)),
            last_uses: Semaphore::new(LAST_USES_ANSWERED_MAX),
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

fn new_ticket() -> io::Result<Ticket> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(Ticket::from_bytes(bytes))
}

/// The counts of one node's servers.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Gathers answered, failed ones included.
    pub(crate) gathers: Counter,
    /// Gathers that ended in an error.
    pub(crate) gathers_failed: Counter,
    /// Rows sent that were resident at the request.
    pub(crate) rows_memory: Counter,
    /// Rows sent after a wait for a fill, or after a read by range.
    pub(crate) rows_origin: Counter,
    /// Payload sent.
    pub(crate) sent_bytes: Counter,
    /// Bytes of shards sent to other nodes.
    pub(crate) peer_bytes: Counter,
    /// Descriptors handed out.
    pub(crate) attaches: Counter,
    /// Times a client was asked to drop a mapping.
    pub(crate) recalls: Counter,
    /// Clients that lost their leases at the end of their process instead of their connection.
    pub(crate) reaped: Counter,
    /// Refused connections: too many, a bad handshake, or no permission.
    pub(crate) refused: Counter,
    /// Gathers in progress.
    pub(crate) gathering: Gauge,
}

/// The number of activities in progress.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

/// One activity that a [`Gauge`] counts, until dropped.
#[derive(Debug)]
struct Ongoing<'a>(&'a Gauge);

impl Gauge {
    fn begin(&self) -> Ongoing<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ongoing(self)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Ongoing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Maps an error of the system to the error for the operator. `what` names the setting, or the
/// thing that failed.
pub(crate) fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |why| {
        let message = format!("{what}: {}", root_cause(&why));
        Error::new(ErrorKind::Unavailable, message).with_source(why)
    }
}

/// A stop event that is given once: a descriptor that becomes readable and is never read.
#[derive(Debug)]
pub(crate) struct Stop {
    event: EventFd,
    given: AtomicBool,
}

impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self { event: event()?, given: AtomicBool::new(false) })
    }

    fn give(&self) {
        self.given.store(true, Ordering::Relaxed);
        // Refused only when the counter is full, and then it is readable already.
        let _ = self.event.write(1);
    }

    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Relaxed)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Creates a descriptor that wakes another thread out of poll(2).
fn event() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// Waits until one of `fds` is readable or has ended, or `timeout` has passed. Returns which are.
fn wait_any<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> io::Result<[bool; N]> {
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let mut polled: Vec<_> =
        fds.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match poll(&mut polled, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut ready = polled.iter().map(|fd| fd.any().unwrap_or(false));
    Ok(fds.map(|fd| fd.is_some() && ready.next().unwrap_or(false)))
}

#[cfg(test)]
mod tests;
