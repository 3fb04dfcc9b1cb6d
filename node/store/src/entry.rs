//! One shard that is here or on its way.

use std::time::Instant;

/// A shard the store knows, in one of the two states that have an entry: an absent shard has none,
/// an orphaned one is in the table of orphans, and a shard may be filled anew beside its own orphan.
#[derive(Debug)]
pub(crate) struct Entry<G, F, R> {
    pub(crate) bytes: u64,
    /// Every group that asked for this shard; mostly one. The same bytes in two snapshots are one
    /// shard, and it stays while either of them is in use.
    pub(crate) groups: Vec<G>,
    pub(crate) state: State<F, R>,
}

#[derive(Debug)]
pub(crate) enum State<F, R> {
    Filling {
        /// Serial of the admission; waiters are tied to it, across hand-overs.
        flight: u64,
        /// Serial of the one permit that counts.
        permit: u64,
        handle: F,
        waiters: usize,
        /// When the present permit was given out.
        since: Instant,
    },
    Resident {
        handle: R,
        last_used: Instant,
        /// Holders with at least one lease.
        holders: usize,
    },
}

impl<G, F, R> Entry<G, F, R> {
    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.state, State::Resident { holders: 1.., .. })
    }
}
