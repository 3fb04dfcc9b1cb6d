//! Shared memory for clients on the same host, over a unix socket.
//!
//! The socket is for attaching and releasing shards and for noticing crashes; rows are then read
//! from the mapping without asking anybody. A lease lasts until it is released, or until the
//! connection ends, or until the process that made the connection ends, whichever comes first: a
//! forked child keeps a connection open, so its end alone does not tell that a client is gone.
//!
//! Each connection's thread waits for its socket, for its client's process, and to be woken: to
//! recall a shard, or to stop. Non-goal: accounting of memory that a client keeps mapped after its
//! lease ended; the kernel knows, and the cache asks it.

mod admit;
mod clients;
mod connection;
mod socket_file;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use larder_base::limits;

use super::Context;
use super::acceptor::{Bounds, Connections, Listener, Slot};
use super::peer::Peer;

pub(crate) use clients::Clients;
pub(super) use socket_file::SocketFile;

/// How many connections there may be.
pub(super) const BOUNDS: Bounds =
    Bounds { connections: limits::SOCKET_CONNECTIONS_MAX, handshakes: limits::HANDSHAKES_MAX };

/// Starts serving clients on this host.
pub(super) fn start(
    context: &Arc<Context>,
    connections: &Arc<Connections>,
    listener: UnixListener,
) -> io::Result<()> {
    let own = Arc::clone(context);
    let serve = move |peer: &Peer, slot: Slot| connection::serve(&own, peer, slot);
    connections.accept("larder-local", Listener::Unix(listener), &context.stop, Box::new(serve))
}
