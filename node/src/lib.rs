//! The cache node: a daemon that keeps dataset shards in shared memory and serves their rows.
//!
//! - [`config`]: the settings as typed, and as validated.
//! - [`node`]: assembles and starts the parts. Start reading here.
//! - `cluster`: the cluster and its record, and the owners of shards that follow from it.
//!   `driver` is the shell around this node's agent.
//! - `plans`: the read orders that loaders announced.
//! - `background`: fetches the shards that announced plans need soonest, and copies replicas here.
//! - `catalog`: the open datasets, and the prefixes that they must lie under.
//! - `cache`: the shards in memory, their holders and eviction, and the fills in flight.
//! - `fill`: reads shards and single rows from the origin, and shards from other nodes.
//! - `serve`: the servers; `shared` is the state that they share.
//!
//! Thread rule: threads that block serve rows. Fills, indexing and the control plane are tokio
//! tasks. The two meet in `cache`: in its lock, held for microseconds, and in the condition
//! variable of a fill in flight. Non-goals: placement (clients route), durability (the origin holds
//! the data).

mod background;
mod cache;
mod catalog;
mod cluster;
pub mod config;
mod dataset;
mod driver;
mod fill;
pub mod node;
mod plans;
mod serve;
mod shared;
#[cfg(test)]
mod testing;

use std::sync::atomic::AtomicU64;

use larder_base::{Error, ErrorKind};
use tokio::task;

/// The log lines that this program could not write. Nodes show them among their metrics.
pub static LOG_LINES_DROPPED: AtomicU64 = AtomicU64::new(0);

/// The one place where the node reads the clock. Other code receives `now` as an argument.
mod clock {
    use std::time::Instant;

    /// Returns the current time of the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "the shell's one reading of the clock")]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }
}

/// Runs work on a blocking thread. Returns `Internal` if it dies.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let worked = task::spawn_blocking(work).await;
    worked.unwrap_or_else(|death| Err(Error::new(ErrorKind::Internal, death.to_string())))
}
