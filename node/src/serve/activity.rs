//! Plain counts of the activity of a node's servers. The metrics and `Describe` show them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::Counter;

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
pub(super) struct Ongoing<'a>(&'a Gauge);

impl Gauge {
    pub(super) fn begin(&self) -> Ongoing<'_> {
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
