//! Accepts connections: one thread accepts, and each connection gets a thread of its own. All
//! counts are bounded.

mod descriptors;
mod silent;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use larder_base::{ErrorKind, limits};

use super::peer::{Peer, Socket};
use super::{Stop, wait_any};
use crate::clock;
use descriptors::Descriptors;
use silent::{Look, Silent};

/// Data connections that have not sent their HELLO. They take a socket and an entry each, and are
/// watched by one thread. Beyond it, the address with the most of them loses its oldest.
const DATA_SILENT_MAX: usize = 2_048;

/// Time that a node which stops when unused waits for its first user, which may still be starting.
const FIRST_USE_TIMEOUT: Duration = Duration::from_secs(30);

/// A listening socket. Not blocking: a connection that poll(2) reported may be gone at the accept.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_nonblocking(true),
            Self::Unix(unix) => unix.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(tcp) => tcp.accept().map(|(socket, _)| Socket::Tcp(socket)),
            Self::Unix(unix) => unix.accept().map(|(socket, _)| Socket::Unix(socket)),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

/// Why a client is only told to go elsewhere.
pub(super) type Refusal = (ErrorKind, &'static str);
pub(super) const STOPPING: Refusal =
    (ErrorKind::Unavailable, "the node is stopping; ask the next one");
const NO_PLACE: Refusal = (
    ErrorKind::ResourceExhausted,
    "the node has all the connections it takes; ask again, or another node",
);
const NO_DESCRIPTORS: Refusal = (
    ErrorKind::ResourceExhausted,
    "the node has all files open that it may, but for its operators'; its operator may raise \
     LimitNOFILE or ulimit -n; ask again, or another node",
);

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    pub(super) handshakes: usize,
}

/// Serves one connection until it ends. Dropping the [`HandshakeSlot`] ends the handshake.
pub(super) type Serve = Box<dyn Fn(&Peer, HandshakeSlot) + Send + Sync>;

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    bounds: Bounds,
    descriptors: Descriptors,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, Weak<Peer>>,
    handshakes: usize,
    next: u64,
    opens: Opens,
    /// When the last connection ended, except for those with refused opens only.
    used_at: Option<Instant>,
    /// No more connections are accepted.
    closed: bool,
}

/// The outcomes of clients' requests to open a dataset.
#[derive(Debug, Clone, Copy, Default)]
struct Opens {
    granted: u64,
    refused: u64,
}

/// A place among the connections in their handshake.
#[derive(Debug)]
pub(super) struct HandshakeSlot {
    connections: Arc<Connections>,
    /// Set if there is no place among the connections.
    pub(super) refusal: Option<Refusal>,
}

/// A place among the connections.
struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    /// The outcomes before it.
    opens: Opens,
}

impl Connections {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        let descriptors = Descriptors::of_process();
        Arc::new(Self { bounds, descriptors, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Returns the number of connections, including those in their handshake.
    pub(crate) fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// Starts the accepting thread. It ends at the stop event.
    pub(super) fn accept(
        self: &Arc<Self>,
        name: &'static str,
        listener: Listener,
        stop: &Arc<Stop>,
        serve: Serve,
    ) -> io::Result<()> {
        listener.prepare()?;
        let (connections, stop, serve) = (Arc::clone(self), Arc::clone(stop), Arc::new(serve));
        let silent = match &listener {
            Listener::Tcp(tcp) => {
                let most = DATA_SILENT_MAX;
                Some(Silent::new(most, self.descriptors, tcp.as_fd(), stop.fd())?)
            }
            // Its clients passed the folder's permissions.
            Listener::Unix(_) => None,
        };
        let hand_over = move |socket| connections.hand_over(name, socket, &serve);
        let connections = Arc::clone(self);
        let run = move || match (listener, silent) {
            (Listener::Tcp(tcp), Some(silent)) => connections.hear(&tcp, silent, &stop, hand_over),
            (listener, _) => {
                while connections.wait_for_slot(&stop) {
                    next_socket(&listener, &stop).into_iter().for_each(&hand_over);
                }
            }
        };
        thread::Builder::new().name(format!("{name}-accept")).spawn(run).map(drop)
    }

    /// Accepts connections, and hands over those that have sent their HELLO. Returns at the stop
    /// event.
    fn hear(
        &self,
        listener: &TcpListener,
        mut silent: Silent,
        stop: &Stop,
        hand_over: impl Fn(Socket),
    ) {
        loop {
            let seen = silent.look().unwrap_or_else(|why| {
                tracing::warn!("connections could not be watched: {why}");
                let _ = wait_any([Some(stop.fd())], limits::KEEPALIVE_INTERVAL);
                Look::default()
            });
            for socket in seen.ready {
                if self.wait_for_slot(stop) {
                    hand_over(Socket::Tcp(socket));
                }
            }
            if seen.stops || stop.is_given() {
                return;
            }
            if seen.can_accept {
                accept_all(listener, &mut silent, stop);
            }
        }
    }

    /// Waits until one more handshake may begin. Returns false at the stop event.
    fn wait_for_slot(&self, stop: &Stop) -> bool {
        let mut state = self.lock();
        while state.handshakes >= self.bounds.handshakes && !stop.is_given() {
            let waited = self.changed.wait_timeout(state, limits::KEEPALIVE_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !stop.is_given()
    }

    /// Starts a thread for a connection. Closes the connection if there is none.
    fn hand_over(self: &Arc<Self>, name: &str, socket: Socket, serve: &Arc<Serve>) {
        let Ok(peer) = Peer::new(socket).map(Arc::new) else { return };
        let place = self.take_place(&peer);
        self.lock().handshakes += 1;
        let (place, refusal) =
            place.map_or_else(|why| (None, Some(why)), |place| (Some(place), None));
        let slot = HandshakeSlot { connections: Arc::clone(self), refusal };
        let serve = Arc::clone(serve);
        let run = move || {
            // Dropped last, even if serving panics: a drain waits for it.
            let _place = place;
            serve(&peer, slot);
        };
        if let Err(why) = thread::Builder::new().name(name.to_owned()).spawn(run) {
            tracing::warn!("no thread for a connection: {why}");
        }
    }

    fn take_place(self: &Arc<Self>, peer: &Arc<Peer>) -> Result<ConnectionSlot, Refusal> {
        if self.descriptors.are_short(peer.fd()) {
            return Err(NO_DESCRIPTORS);
        }
        let mut state = self.lock();
        if state.closed {
            return Err(STOPPING);
        }
        if state.open.len() >= self.bounds.connections {
            return Err(NO_PLACE);
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Arc::downgrade(peer));
        Ok(ConnectionSlot { connections: Arc::clone(self), number, opens: state.opens })
    }

    /// Notes that a client opened a dataset, or was refused.
    pub(super) fn note_open(&self, granted: bool) {
        let opens = &mut self.lock().opens;
        *(if granted { &mut opens.granted } else { &mut opens.refused }) += 1;
    }

    /// Refuses further connections.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until there was no connection for `span`, and refuses all connections from then on.
    /// Without an open that succeeded there is no data to keep: the wait then ends with the last
    /// connection. Also returns when it was closed meanwhile.
    pub(super) fn close_when_unused(&self, span: Duration) {
        let begun = clock::now();
        let mut state = self.lock();
        while !state.closed {
            if !state.open.is_empty() || state.handshakes > 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (since, span) = match (state.next, state.opens.granted) {
                (0, _) => (begun, span.max(FIRST_USE_TIMEOUT)),
                (_, 0) => (begun, Duration::ZERO),
                _ => (state.used_at.unwrap_or(begun), span),
            };
            let left = (since + span).saturating_duration_since(clock::now());
            if left.is_zero() {
                state.closed = true;
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all connections have ended. Returns whether they have.
    pub(super) fn wait_empty(&self, grace: Duration) -> bool {
        let busy = |state: &mut State| !state.open.is_empty() || state.handshakes > 0;
        let waited = self.changed.wait_timeout_while(self.lock(), grace, busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !busy(&mut state)
    }

    /// Shuts down the sockets of all connections.
    pub(super) fn close_all(&self) {
        let open: Vec<_> = self.lock().open.values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|peer| peer.close());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts the connections that wait in the kernel's queue, as many as are looked at together.
fn accept_all(listener: &TcpListener, silent: &mut Silent, stop: &Stop) {
    for _ in 0..limits::HANDSHAKES_MAX {
        match listener.accept() {
            Ok((socket, from)) => {
                if let Err(why) = silent.add(socket, from.ip()) {
                    tracing::warn!("a connection could not be watched: {why}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                // Probably no descriptors are left. The listener stays readable, so wait a moment.
                tracing::warn!("a connection could not be accepted: {error}");
                let _ = wait_any([Some(stop.fd())], limits::KEEPALIVE_INTERVAL);
                return;
            }
        }
    }
}

/// Waits for the next connection. Returns `None` when the caller must check its state first.
fn next_socket(listener: &Listener, stop: &Stop) -> Option<Socket> {
    let woken = wait_any([Some(listener.fd()), Some(stop.fd())], limits::HANDSHAKE_TIMEOUT);
    if !matches!(woken, Ok([true, false])) {
        return None;
    }
    match listener.accept() {
        Ok(socket) => Some(socket),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => {
            // Probably no descriptors are left. The listener stays readable, so wait a moment.
            tracing::warn!("a connection could not be accepted: {error}");
            let _ = wait_any([Some(stop.fd())], limits::KEEPALIVE_INTERVAL);
            None
        }
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.connections.lock().handshakes -= 1;
        self.connections.changed.notify_all();
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        state.open.remove(&self.number);
        // Another client may have been refused meanwhile. Then this client's use counts by its own
        // open.
        let only_refused =
            state.opens.refused > self.opens.refused && state.opens.granted == self.opens.granted;
        if !only_refused {
            state.used_at = Some(clock::now());
        }
        drop(state);
        self.connections.changed.notify_all();
    }
}

/// Returns the deadline for a frame that has begun to arrive.
pub(super) fn frame_deadline() -> Instant {
    clock::now() + limits::SEND_STALL_TIMEOUT
}
