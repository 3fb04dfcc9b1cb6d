//! Keeps the client informed during waits, and notices when the client is gone.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use larder_base::limits;
use larder_wire::data::Pong;

use crate::serve::peer::Peer;

/// Tells the client that its request is in progress.
///
/// # Errors
/// The client is gone.
pub(super) fn tick(peer: &Peer, request: u64) -> io::Result<()> {
    peer.check_alive()?;
    let mut frame = Vec::new();
    Pong.encode(request, &mut frame);
    peer.send(&frame)
}

/// Runs blocking work, and ticks meanwhile.
///
/// # Errors
/// The client is gone when the work is done.
pub(super) fn while_alive<T>(peer: &Peer, request: u64, work: impl FnOnce() -> T) -> io::Result<T> {
    thread::scope(|scope| {
        let (done, waiting) = sync_channel::<()>(1);
        let ticks = move || {
            while let Err(RecvTimeoutError::Timeout) =
                waiting.recv_timeout(limits::KEEPALIVE_INTERVAL)
            {
                tick(peer, request)?;
            }
            io::Result::Ok(())
        };
        let ticking = thread::Builder::new().name("larder-alive".to_owned());
        let ticking = ticking.spawn_scoped(scope, ticks)?;
        let worked = work();
        drop(done);
        ticking.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(worked)
    })
}
