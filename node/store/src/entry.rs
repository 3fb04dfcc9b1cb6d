//! The entry of one resident or filling shard.

use std::time::Instant;

/// A shard in one of the two states that have an entry. An absent shard has none, and an orphaned
/// shard is in the table of orphans. A shard may be filled anew beside its own orphan.
#[derive(Debug)]
pub(crate) struct Entry<G, F, R> {
    pub(crate) bytes: u64,
    /// Every group that asked for this shard; mostly one. Two snapshots with the same bytes share
    /// one shard, which stays while either is in use.
    pub(crate) groups: Vec<G>,
    pub(crate) state: State<F, R>,
}

#[derive(Debug)]
pub(crate) enum State<F, R> {
    Filling(Filling<F>),
    Resident(Resident<R>),
}

#[derive(Debug)]
pub(crate) struct Filling<F> {
    /// Serial of the admission; waiters are tied to it, across hand-overs.
    pub(crate) flight: u64,
    /// Serial of the one permit that counts.
    pub(crate) permit: u64,
    pub(crate) handle: F,
    pub(crate) waiters: usize,
    /// When the present permit was given out.
    pub(crate) since: Instant,
}

#[derive(Debug)]
pub(crate) struct Resident<R> {
    pub(crate) handle: R,
    /// When its fill was completed.
    pub(crate) since: Instant,
    pub(crate) last_used: Instant,
    /// Holders with at least one lease.
    pub(crate) holders: usize,
}

impl<G, F, R> Entry<G, F, R> {
    pub(crate) fn is_leased(&self) -> bool {
        self.state.resident().is_some_and(|resident| resident.holders > 0)
    }
}

impl<F, R> State<F, R> {
    pub(crate) fn filling(&self) -> Option<&Filling<F>> {
        match self {
            Self::Filling(filling) => Some(filling),
            Self::Resident(_) => None,
        }
    }

    pub(crate) fn filling_mut(&mut self) -> Option<&mut Filling<F>> {
        match self {
            Self::Filling(filling) => Some(filling),
            Self::Resident(_) => None,
        }
    }

    pub(crate) fn resident(&self) -> Option<&Resident<R>> {
        match self {
            Self::Resident(resident) => Some(resident),
            Self::Filling(_) => None,
        }
    }

    pub(crate) fn resident_mut(&mut self) -> Option<&mut Resident<R>> {
        match self {
            Self::Resident(resident) => Some(resident),
            Self::Filling(_) => None,
        }
    }
}
