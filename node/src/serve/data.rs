//! Rows for other hosts, over TCP: one thread per connection, one request after the other.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use larder_base::{Error, ErrorKind, limits};
use larder_wire::data::Hello;

use super::Context;
use super::acceptor::{Bounds, Connections, HandshakeSlot, Listener};
use super::peer::Peer;
use super::session::{Closing, Session};
use super::wait_any;

/// Data connections of one node. Each costs a thread (64 KiB of touched stack) and its buffers; 512
/// loader processes with a couple each fit.
const DATA_CONNECTIONS_MAX: usize = 2_048;

/// Limits on connections.
pub(super) const BOUNDS: Bounds =
    Bounds { connections: DATA_CONNECTIONS_MAX, handshakes: limits::HANDSHAKES_MAX };

/// Starts serving rows.
pub(super) fn start(
    context: &Arc<Context>,
    connections: &Arc<Connections>,
    listener: TcpListener,
) -> io::Result<()> {
    avoid_bbr(&listener);
    let own = Arc::clone(context);
    let serve = move |peer: &Peer, slot: HandshakeSlot| serve(&own, peer, slot);
    connections.accept("larder-data", Listener::Tcp(listener), &context.stop, Box::new(serve))
}

fn serve(context: &Context, peer: &Peer, slot: HandshakeSlot) {
    let opened = Session::open(context, peer, slot, |hello| check_ticket(context, hello));
    let Some(mut session) = opened else { return };
    let closing = loop {
        match turn(context, peer, &mut session) {
            Ok(()) => {}
            Err(closing) => break closing,
        }
    };
    session.close(closing);
}

/// Waits for a request and answers it.
fn turn(context: &Context, peer: &Peer, session: &mut Session<'_>) -> Result<(), Closing> {
    let [came, stopping] =
        wait_any([Some(peer.fd()), Some(context.stop.fd())], session.wait_max())?;
    if stopping {
        return Err(Closing::Silent);
    }
    if came {
        let header = session.header()?;
        return session.answer(&header);
    }
    if session.is_resting() {
        return Err(Closing::Silent);
    }
    session.rest();
    Ok(())
}

fn check_ticket(context: &Context, hello: &Hello) -> Result<(), Error> {
    if context.ticket.is(hello.ticket.as_bytes()) {
        return Ok(());
    }
    let message = "the ticket is not of this start of this node; open the dataset again";
    Err(Error::new(ErrorKind::Unauthenticated, message))
}

/// Replaces the system's default bbr, which halves the throughput between two hosts. Uses cubic, or
/// reno if an unprivileged process may not use cubic.
fn avoid_bbr(listener: &TcpListener) {
    let socket = socket2::SockRef::from(listener);
    let is_bbr = socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr"));
    if is_bbr && socket.set_tcp_congestion(b"cubic").is_err() {
        let set = socket.set_tcp_congestion(b"reno");
        if let Err(why) = set {
            tracing::warn!("the data plane keeps bbr, which is slow here: {why}");
        }
    }
}
