//! The store: requests for shards, and the evictions that make room.

mod fill;
mod lease;
mod show;
#[cfg(test)]
mod tests;

use crate::budget::Budget;
use crate::entry::{Entry, Filling, Resident, State};
use crate::evict::{Candidate, Foreseen, KeepWhatYouHave};
use crate::group::Groups;
use crate::holder::Holders;
use crate::orphan::{Evicted, Orphan, Orphans, Record};
use crate::token::{FillPermit, OrphanToken, Serials, Waiter};
use larder_base::Bytes;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

pub use fill::{HandOver, StaleComplete, StalePermit};
pub use lease::{LeaseRefused, Released};
pub use show::{GroupView, HeldShard, HolderView, ShardState, ShardView};

/// How long the store remembers that everything is in use. A full cache is asked thousands of times
/// a second for shards that it will not keep. A look through 100,000 shards takes milliseconds.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The shards of one node: `K` names a shard, `G` the group (snapshot) it is wanted for, `F` is the
/// handle of a fill and `R` that of a resident shard. Both handles are light, as an `Arc` is.
#[derive(Debug)]
pub struct Store<K, G, F, R> {
    entries: HashMap<K, Entry<G, F, R>>,
    orphans: Orphans<K>,
    groups: Groups<G>,
    holders: Holders<K>,
    budget: Budget,
    policy: KeepWhatYouHave,
    foreseen: Foreseen<K>,
    /// Shards that were evicted because they were given up.
    given_up_count: u64,
    quota_bytes: u64,
    /// Before this time it is not worth looking for something to evict.
    look_again: Option<Instant>,
    serials: Serials,
}

/// The answer to a request for a shard.
#[must_use]
#[derive(Debug)]
pub enum Outcome<K, F, R> {
    /// It is resident.
    Resident(R),
    /// Another caller fills it. This caller counts as a waiter.
    InFlight {
        /// The fill, to wait on.
        handle: F,
        /// The caller's place, to be returned with `leave` once it no longer waits.
        waiter: Waiter<K>,
    },
    /// Its bytes are taken from the budget, and the caller must see to the fill. A caller that
    /// delegates the fill and waits itself asks again and becomes the first waiter.
    Admitted {
        /// The fill, as `make` made it.
        handle: F,
        /// The right to perform it.
        permit: FillPermit<K>,
    },
    /// It does not fit now.
    NoRoom {
        /// By how much, and what can be done.
        reason: NoRoom,
        /// The shards evicted to make room: free them, then ask again.
        evicted: Vec<Evicted<K, R>>,
    },
}

/// Why a shard does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for a shard of {}, {} are free: {why}", Bytes(*needed_bytes), Bytes(*free_bytes))]
pub struct NoRoom {
    /// The shard's bytes.
    pub needed_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// The reason.
    pub why: Why,
}

/// The reason why a shard cannot be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It will never fit.
    #[error("it is larger than the whole budget of {}; give the node more memory", Bytes(*limit_bytes))]
    LargerThanBudget {
        /// The budget.
        limit_bytes: u64,
    },
    /// Enough was evicted; ask again when it is proved free.
    #[error("enough was evicted but is not proved free yet; ask again shortly")]
    Leaving,
    /// All of it is in use and stays.
    #[error("what is here is in use and stays; read rows from the origin instead")]
    InUse,
    /// There are as many shards as there may be, all in use. Bytes may be free.
    #[error(
        "{shards_max} shards are here and stay, and this process may have no more files open and \
         mapped; raise LimitNOFILE (ulimit -n) and vm.max_map_count"
    )]
    NoPlace {
        /// The most shards there may be.
        shards_max: usize,
    },
}

/// Why a shard can't be evicted on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotEvict {
    /// The shard is not resident.
    #[error("the shard is not resident")]
    NotResident,
    /// Clients lease it.
    #[error("the shard is leased by {holders} clients; recall it first")]
    Leased {
        /// How many holders it has.
        holders: usize,
    },
}

impl<K, G, F, R> Store<K, G, F, R>
where
    K: Copy + Eq + Hash + Ord,
    G: Copy + Eq + Hash + Ord,
    F: Clone,
    R: Clone,
{
    /// Creates an empty store. One holder may lease at most `quota_bytes`.
    pub fn new(budget: Budget, policy: KeepWhatYouHave, quota_bytes: u64) -> Self {
        Self {
            entries: HashMap::new(),
            orphans: Orphans::new(),
            groups: Groups::new(),
            holders: Holders::new(),
            budget,
            policy,
            foreseen: Foreseen::default(),
            given_up_count: 0,
            quota_bytes,
            look_again: None,
            serials: Serials::default(),
        }
    }

    /// Replaces the known future. Returns the one before.
    pub fn foresee(&mut self, foreseen: Foreseen<K>) -> Foreseen<K> {
        std::mem::replace(&mut self.foreseen, foreseen)
    }

    /// Requests a shard of `bytes` on behalf of `group`. `make` runs once the bytes are admitted.
    /// It runs under the caller's lock, so it makes the handle and allocates later.
    pub fn request(
        &mut self,
        id: K,
        group: G,
        bytes: u64,
        now: Instant,
        make: impl FnOnce() -> F,
    ) -> Outcome<K, F, R> {
        self.groups.touch(group, now);
        if let Some(entry) = self.entries.get_mut(&id) {
            join(&mut self.groups, entry, group, now);
            return answer(id, entry, now);
        }
        if !self.budget.admit(bytes) {
            return self.make_room(id, bytes, now);
        }
        self.groups.join(group, bytes, false, now);
        let (flight, handle) = (self.serials.next(), make());
        let filling =
            Filling { flight, permit: flight, handle: handle.clone(), waiters: 0, since: now };
        let entry = Entry { bytes, groups: vec![group], state: State::Filling(filling) };
        self.entries.insert(id, entry);
        Outcome::Admitted { handle, permit: FillPermit { id, serial: flight } }
    }

    /// Returns a resident shard, without asking for a fill of another.
    pub fn get(&mut self, id: K, group: G, now: Instant) -> Option<R> {
        let entry = self.entries.get_mut(&id)?;
        let resident = entry.state.resident_mut()?;
        resident.last_used = now;
        let handle = resident.handle.clone();
        self.groups.touch(group, now);
        join(&mut self.groups, entry, group, now);
        Some(handle)
    }

    /// Returns the handle of a resident shard, for the caller to note something in it. Does not
    /// count as a use.
    pub fn handle_mut(&mut self, id: K) -> Option<&mut R> {
        self.entries.get_mut(&id)?.state.resident_mut().map(|resident| &mut resident.handle)
    }

    /// Opens a session on a group. Until the session is closed, the group's shards stay.
    pub fn open_group(&mut self, group: G, now: Instant) {
        self.groups.open(group, now);
    }

    /// Closes a session. Returns whether there was one.
    pub fn close_group(&mut self, group: G, now: Instant) -> bool {
        self.groups.close(group, now)
    }

    /// Evicts one shard without asking the policy, unless a client leases it.
    pub fn evict(&mut self, id: K, now: Instant) -> Result<Evicted<K, R>, CannotEvict> {
        let entry = self.entries.get(&id).ok_or(CannotEvict::NotResident)?;
        match entry.state.resident().map(|resident| resident.holders) {
            Some(holders @ 1..) => Err(CannotEvict::Leased { holders }),
            Some(0) => self.let_go(id, now).ok_or(CannotEvict::NotResident),
            None => Err(CannotEvict::NotResident),
        }
    }

    /// Evicts the longest unused shards until `bytes` will fit, whatever the policy keeps. Spares
    /// those that are leased, and those of a group for which `may_go` is false.
    pub fn evict_oldest(
        &mut self,
        bytes: u64,
        may_go: impl Fn(&G) -> bool,
        now: Instant,
    ) -> Vec<Evicted<K, R>> {
        let leaving = self.orphans.leaving_bytes(now);
        let mut missing = self.budget.missing_bytes(bytes).saturating_sub(leaving);
        let mut residents: Vec<(Instant, K, u64)> = Vec::new();
        for (&id, entry) in &self.entries {
            let idle = entry.state.resident().filter(|resident| resident.holders == 0);
            if let Some(resident) = idle.filter(|_| entry.groups.iter().all(&may_go)) {
                residents.push((resident.last_used, id, entry.bytes));
            }
        }
        residents.sort_unstable();
        let mut evicted = Vec::new();
        for (_, id, bytes) in residents {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(bytes);
            evicted.extend(self.let_go(id, now));
        }
        evicted
    }

    /// Takes back the bytes of this token, proved free. The only way back into the budget.
    pub fn freed(&mut self, token: OrphanToken) {
        let bytes = self.orphans.take(token).expect("a token is made once, by its own store");
        self.budget.free(bytes);
    }

    fn make_room(&mut self, id: K, bytes: u64, now: Instant) -> Outcome<K, F, R> {
        let (limit_bytes, free_bytes) = (self.budget.limit_bytes(), self.budget.free_bytes());
        let missing = self.budget.missing_bytes(bytes);
        let leaving = self.orphans.leaving_bytes(now);
        let mut evicted = Vec::new();
        let why = if bytes > limit_bytes {
            Why::LargerThanBudget { limit_bytes }
        } else if leaving >= missing {
            Why::Leaving
        } else {
            evicted = self.evict_idle(missing - leaving, now);
            if evicted.is_empty() && self.foreseen.fetches.contains(&id) {
                evicted = self.evict_given_up(missing - leaving, now);
            }
            match (evicted.is_empty(), self.budget.has_place()) {
                (false, _) => Why::Leaving,
                (true, true) => Why::InUse,
                (true, false) => Why::NoPlace { shards_max: self.budget.shards_max() },
            }
        };
        let reason = NoRoom { needed_bytes: bytes, free_bytes, why };
        Outcome::NoRoom { reason, evicted }
    }

    /// Evicts the shards that the policy chooses for `needed` bytes, mostly none. Only this looks
    /// at every entry, so not while idle groups are too small, nor soon after a vain look.
    fn evict_idle(&mut self, needed: u64, now: Instant) -> Vec<Evicted<K, R>> {
        if self.look_again.is_some_and(|then| now < then) {
            return Vec::new();
        }
        let chosen = if self.groups.idle_bytes(&self.policy, now) < needed {
            Vec::new()
        } else {
            self.policy.choose(self.candidates(), needed, now)
        };
        self.look_again = chosen.is_empty().then(|| now + LOOK_AGAIN_AFTER);
        let evicted = chosen.into_iter().filter_map(|id| self.let_go(id, now));
        evicted.collect()
    }

    /// Evicts shards that are given up, enough for `needed` bytes or none.
    fn evict_given_up(&mut self, needed: u64, now: Instant) -> Vec<Evicted<K, R>> {
        let entries = &self.entries;
        let bytes_of = |id| {
            let entry = entries.get(&id)?;
            entry.state.resident().filter(|resident| resident.holders == 0)?;
            Some(entry.bytes)
        };
        let chosen = self.foreseen.make_room(needed, bytes_of);
        self.given_up_count += chosen.len() as u64;
        chosen.into_iter().filter_map(|id| self.let_go(id, now)).collect()
    }

    fn candidates(&self) -> Vec<Candidate<K>> {
        let candidate = |(&id, entry): (&K, &Entry<G, F, R>)| {
            let last_used = entry.state.resident()?.last_used;
            let group = self.groups.usage(&entry.groups)?;
            Some(Candidate { id, bytes: entry.bytes, last_used, group })
        };
        self.entries.iter().filter_map(candidate).collect()
    }

    /// Turns a resident shard without a lease into an orphan.
    fn let_go(&mut self, id: K, now: Instant) -> Option<Evicted<K, R>> {
        let entry = self.entries.remove(&id)?;
        let State::Resident(Resident { handle, holders: 0, since, last_used }) = entry.state else {
            unreachable!("only resident shards without leases are let go");
        };
        self.budget.evict(entry.bytes);
        self.groups.depart(&entry.groups, entry.bytes);
        let orphan = self.orphan(id, entry.bytes, handle, now);
        Some(Orphan { was_used: last_used > since, ..orphan })
    }

    fn orphan<H>(&mut self, id: K, bytes: u64, handle: H, now: Instant) -> Orphan<K, H> {
        let record = Record { id, bytes, since: now };
        let token = self.orphans.add(self.serials.next(), record);
        Orphan { id, bytes, handle, was_used: false, token }
    }
}

/// Adds a shard to one more group, once.
fn join<G, F, R>(groups: &mut Groups<G>, entry: &mut Entry<G, F, R>, group: G, now: Instant)
where
    G: Copy + Eq + Hash,
{
    if !entry.groups.contains(&group) {
        groups.join(group, entry.bytes, entry.is_leased(), now);
        entry.groups.push(group);
    }
}

/// Returns the answer to a request for a shard that has an entry.
fn answer<K, G, F, R>(id: K, entry: &mut Entry<G, F, R>, now: Instant) -> Outcome<K, F, R>
where
    F: Clone,
    R: Clone,
{
    match &mut entry.state {
        State::Resident(resident) => {
            resident.last_used = now;
            Outcome::Resident(resident.handle.clone())
        }
        State::Filling(filling) => {
            filling.waiters += 1;
            let (handle, flight) = (filling.handle.clone(), filling.flight);
            Outcome::InFlight { handle, waiter: Waiter { id, flight } }
        }
    }
}
