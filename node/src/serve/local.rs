//! Shared memory for clients on the same host, over a unix socket.
//!
//! The socket serves to attach and release shards, and to notice crashes. Clients read rows from
//! the mapping without a request. A lease ends with the first of these events:
//!
//! - The client releases it.
//! - The connection ends.
//! - The process that made the connection ends. A forked child keeps a connection open, so the end
//!   of the connection alone does not show that a client is gone.
//!
//! Each connection's thread waits for its socket, for its client's process, and for a wake-up: to
//! recall a shard, or to stop. Non-goal: accounting for memory that a client keeps mapped after its
//! lease ended. The cache asks the kernel for that.

mod clients;
mod connection;
mod socket_file;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use larder_base::{Error, ErrorKind, limits};
use larder_dataset::{OriginUri, Variables};
use larder_wire::data::{Admit, Admitted};
use nix::unistd::geteuid;

use super::Context;
use super::acceptor::{Bounds, Connections, HandshakeSlot, Listener};
use super::peer::Peer;
use crate::catalog::{IdentityId, OWN};
use crate::clock;
use crate::config::MemorySetting;

pub(crate) use clients::Clients;
pub(super) use socket_file::SocketFile;

/// Connections to the unix socket of one node: every loader process of a large host.
const SOCKET_CONNECTIONS_MAX: usize = 4_096;

/// Limits on connections.
pub(super) const BOUNDS: Bounds =
    Bounds { connections: SOCKET_CONNECTIONS_MAX, handshakes: limits::HANDSHAKES_MAX };

/// Starts serving clients on this host.
pub(super) fn start(
    context: &Arc<Context>,
    connections: &Arc<Connections>,
    listener: UnixListener,
) -> io::Result<()> {
    let own = Arc::clone(context);
    let serve = move |peer: &Peer, slot: HandshakeSlot| connection::serve(&own, peer, slot);
    connections.accept("larder-local", Listener::Unix(listener), &context.stop, Box::new(serve))
}

/// Adds the owner's prefix, and takes the variables of the program. `before` is the identity that
/// it had. Returns how to reach the node.
fn admit(
    context: &Context,
    peer: &Peer,
    wanted: &Admit,
    before: Option<IdentityId>,
) -> Result<Admitted, Error> {
    let denied = |message: &str| Err(Error::new(ErrorKind::PermissionDenied, message));
    let private = context.shared.config.private;
    let only_asks = wanted.prefix.is_empty() && wanted.variables.is_empty();
    if !private && !only_asks {
        return denied("this node was given its prefixes at its start; start one with --private");
    }
    if private && peer.user() != Some(geteuid().as_raw()) {
        return denied("this node serves the processes of another user; start one of your own");
    }
    if !wanted.prefix.is_empty() {
        let prefix = OriginUri::parse(&wanted.prefix)
            .map_err(|why| Error::new(ErrorKind::InvalidArgument, why.to_string()))?;
        context.shared.catalog.admit(&prefix, &context.shared.config.origins)?;
        tracing::info!(%prefix, "admitted");
    }
    let identity = identify(context, &wanted.variables, before)?;
    let config = &context.shared.config;
    let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
    Ok(Admitted {
        ticket: context.ticket,
        memory_percent: match config.memory {
            Some(MemorySetting::Share(percent)) => percent,
            Some(MemorySetting::Bytes(_)) | None => 0,
        },
        uptime_seconds: seconds(clock::now().saturating_duration_since(context.started)),
        linger_seconds: seconds(config.exit_when_unused.unwrap_or_default()),
        memory_bytes: context.shared.cache.usage().limit_bytes,
        pid: std::process::id(),
        identity,
        control: context.control_address.clone(),
    })
}

/// Returns the identity of a block of variables. Without any, it is the one before, or the node's.
fn identify(
    context: &Context,
    block: &[u8],
    before: Option<IdentityId>,
) -> Result<IdentityId, Error> {
    if block.is_empty() {
        return Ok(before.unwrap_or(OWN));
    }
    let variables = Variables::from_block(block).ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "the variables of the program can't be read")
    })?;
    let shared = &context.shared;
    shared.runtime.block_on(shared.catalog.take_variables(&variables, before))
}
