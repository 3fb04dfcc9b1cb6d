//! How a fill goes on, ends, or changes hands.

use super::Store;
use crate::entry::{Entry, State};
use crate::orphan::Orphan;
use crate::token::{FillPermit, Waiter};
use std::hash::Hash;
use std::time::Instant;

/// What becomes of a fill that lost its filler.
#[must_use]
#[derive(Debug)]
pub enum HandOver<K, F> {
    /// Somebody waits, so exactly one more try is made: by whoever gets this permit. The handle is
    /// the same, with the parts that are in already.
    Retry {
        /// The fill.
        handle: F,
        /// The right to go on with it; earlier permits are worth nothing now.
        permit: FillPermit<K>,
        /// How many wait.
        waiters: usize,
    },
    /// Nobody waits, so the shard is absent again.
    Dropped(Orphan<K, F>),
}

/// The permit was taken from its filler meanwhile. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fill was taken from this filler and goes on without it, or has ended")]
pub struct StalePermit;

/// A fill was completed with a permit that had been taken away. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{StalePermit}")]
pub struct StaleComplete<R> {
    /// What was to be made resident, to be dropped by the caller.
    pub handle: R,
}

impl<K, G, F, R> Store<K, G, F, R>
where
    K: Copy + Eq + Hash + Ord,
    G: Copy + Eq + Hash + Ord,
    F: Clone,
    R: Clone,
{
    /// Makes a filled shard resident. Returns the fill's handle: through it the caller wakes
    /// whoever waits, after letting go of its lock.
    pub fn complete(
        &mut self,
        permit: FillPermit<K>,
        handle: R,
        now: Instant,
    ) -> Result<F, StaleComplete<R>> {
        let Ok(id) = self.spend(permit) else {
            return Err(StaleComplete { handle });
        };
        let entry = self
            .entries
            .get_mut(&id)
            .expect("a permit that counts has an entry");
        let resident = State::Resident {
            handle,
            last_used: now,
            holders: 0,
        };
        let State::Filling { handle, .. } = std::mem::replace(&mut entry.state, resident) else {
            unreachable!("a permit fits only a shard that is filling");
        };
        self.budget.settle(entry.bytes);
        Ok(handle)
    }

    /// Ends a try that failed in a way that another might not.
    pub fn fail(
        &mut self,
        permit: FillPermit<K>,
        now: Instant,
    ) -> Result<HandOver<K, F>, StalePermit> {
        let id = self.spend(permit)?;
        self.revoke(id, now).ok_or(StalePermit)
    }

    /// Ends a fill that no further try can save (the data changed at the origin), also when others
    /// wait: they are told through the handle.
    pub fn give_up(
        &mut self,
        permit: FillPermit<K>,
        now: Instant,
    ) -> Result<Orphan<K, F>, StalePermit> {
        let id = self.spend(permit)?;
        self.drop_fill(id, now).ok_or(StalePermit)
    }

    /// Takes a fill from a filler that is thought dead or stuck: its permit is worth nothing from
    /// here on. `None` if the shard is not being filled.
    pub fn revoke(&mut self, id: K, now: Instant) -> Option<HandOver<K, F>> {
        let entry = self.entries.get_mut(&id)?;
        let State::Filling {
            permit,
            handle,
            waiters: waiters @ 1..,
            since,
            ..
        } = &mut entry.state
        else {
            return self.drop_fill(id, now).map(HandOver::Dropped);
        };
        *permit = self.serials.next();
        *since = now;
        let permit = FillPermit {
            id,
            serial: *permit,
        };
        Some(HandOver::Retry {
            handle: handle.clone(),
            permit,
            waiters: *waiters,
        })
    }

    /// A caller waits no more. A fill without waiters still goes on: it has its bytes already.
    pub fn leave(&mut self, waiter: Waiter<K>) {
        let (id, joined) = waiter.spend();
        let state = self.entries.get_mut(&id).map(|entry| &mut entry.state);
        if let Some(State::Filling {
            flight, waiters, ..
        }) = state
            && *flight == joined
        {
            *waiters -= 1;
        }
    }

    /// Looks whether a permit still counts, and uses it up. Returns the shard, which is filling.
    fn spend(&self, permit: FillPermit<K>) -> Result<K, StalePermit> {
        let (id, serial) = permit.spend();
        match self.entries.get(&id).map(|entry| &entry.state) {
            Some(State::Filling { permit, .. }) if *permit == serial => Ok(id),
            _ => Err(StalePermit),
        }
    }

    fn drop_fill(&mut self, id: K, now: Instant) -> Option<Orphan<K, F>> {
        self.entries
            .get(&id)
            .filter(|entry| matches!(entry.state, State::Filling { .. }))?;
        let Entry {
            bytes,
            groups,
            state,
        } = self.entries.remove(&id)?;
        let State::Filling { handle, .. } = state else {
            unreachable!("the shard was just seen to be filling");
        };
        self.budget.drop_fill(bytes);
        self.groups.depart(&groups, bytes);
        Some(self.orphan(id, bytes, handle, now))
    }
}
