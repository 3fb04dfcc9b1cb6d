//! How a fill goes on, ends, or changes hands.

use super::Store;
use crate::entry::{Entry, Resident, State};
use crate::orphan::Orphan;
use crate::token::{FillPermit, Waiter};
use std::hash::Hash;
use std::time::Instant;

/// The state of a fill that lost its filler.
#[must_use]
#[derive(Debug)]
pub enum HandOver<K, F> {
    /// Callers wait, so exactly one more try is made, by the caller that gets this permit. The
    /// handle is the same, with the parts that are in already.
    Retry {
        /// The fill.
        handle: F,
        /// The right to go on with it; earlier permits are void.
        permit: FillPermit<K>,
        /// The number of waiters.
        waiters: usize,
    },
    /// No caller waits, so the shard is absent again.
    Dropped(Orphan<K, F>),
}

/// The permit was revoked. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fill was taken from this filler and goes on without it, or has ended")]
pub struct StalePermit;

/// A fill was completed with a revoked permit. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{StalePermit}")]
pub struct StaleComplete<R> {
    /// The handle of the filled shard, to be dropped by the caller.
    pub handle: R,
}

impl<K, G, F, R> Store<K, G, F, R>
where
    K: Copy + Eq + Hash + Ord,
    G: Copy + Eq + Hash + Ord,
    F: Clone,
    R: Clone,
{
    /// Makes a filled shard resident. Returns the fill's handle, through which the caller wakes the
    /// waiters after it has released its lock.
    pub fn complete(
        &mut self,
        permit: FillPermit<K>,
        handle: R,
        now: Instant,
    ) -> Result<F, StaleComplete<R>> {
        let Ok(entry) = self.spend(permit) else {
            return Err(StaleComplete { handle });
        };
        let resident = State::Resident(Resident { handle, since: now, last_used: now, holders: 0 });
        let State::Filling(filling) = std::mem::replace(&mut entry.state, resident) else {
            unreachable!("a permit counts only for a shard that is filling");
        };
        let bytes = entry.bytes;
        self.budget.settle(bytes);
        Ok(filling.handle)
    }

    /// Ends a try with a failure that another try may not have.
    pub fn fail(
        &mut self,
        permit: FillPermit<K>,
        now: Instant,
    ) -> Result<HandOver<K, F>, StalePermit> {
        let id = permit.id();
        self.spend(permit)?;
        self.revoke(id, now).ok_or(StalePermit)
    }

    /// Ends a fill that no further try can save (the data changed at the origin), also when callers
    /// wait: the handle tells them.
    pub fn give_up(
        &mut self,
        permit: FillPermit<K>,
        now: Instant,
    ) -> Result<Orphan<K, F>, StalePermit> {
        let id = permit.id();
        self.spend(permit)?;
        self.drop_fill(id, now).ok_or(StalePermit)
    }

    /// Takes a fill from a filler that is thought dead or stuck, and voids its permit. `None` if
    /// the shard is not being filled.
    pub fn revoke(&mut self, id: K, now: Instant) -> Option<HandOver<K, F>> {
        let entry = self.entries.get_mut(&id)?;
        let filling = entry.state.filling_mut()?;
        if filling.waiters == 0 {
            return self.drop_fill(id, now).map(HandOver::Dropped);
        }
        let serial = self.serials.next();
        (filling.permit, filling.since) = (serial, now);
        Some(HandOver::Retry {
            handle: filling.handle.clone(),
            permit: FillPermit { id, serial },
            waiters: filling.waiters,
        })
    }

    /// Removes a waiter. A fill without waiters still goes on: it has its bytes already.
    pub fn leave(&mut self, waiter: Waiter<K>) {
        let (id, flight) = waiter.spend();
        let filling = self.entries.get_mut(&id).and_then(|entry| entry.state.filling_mut());
        if let Some(filling) = filling.filter(|filling| filling.flight == flight) {
            filling.waiters -= 1;
        }
    }

    /// Uses a permit up. If it is valid, its shard is filling.
    fn spend(&mut self, permit: FillPermit<K>) -> Result<&mut Entry<G, F, R>, StalePermit> {
        let (id, serial) = permit.spend();
        let counts = |entry: &&mut Entry<G, F, R>| {
            entry.state.filling().is_some_and(|filling| filling.permit == serial)
        };
        self.entries.get_mut(&id).filter(counts).ok_or(StalePermit)
    }

    /// Turns a fill into an orphan.
    fn drop_fill(&mut self, id: K, now: Instant) -> Option<Orphan<K, F>> {
        let handle = self.entries.get(&id)?.state.filling()?.handle.clone();
        let entry = self.entries.remove(&id)?;
        self.budget.drop_fill(entry.bytes);
        self.groups.depart(&entry.groups, entry.bytes);
        Some(self.orphan(id, entry.bytes, handle, now))
    }
}
