//! The store's contents in a stable order, for `node show` and metrics.

use super::Store;
use crate::budget::Budget;
use crate::entry::State;
use crate::holder::HolderId;
use std::hash::Hash;
use std::time::Instant;

/// A shard and its state. A shard that was evicted and requested again appears twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardView<K, G> {
    /// The shard.
    pub id: K,
    /// Its bytes in the budget.
    pub bytes: u64,
    /// The groups it belongs to, in order. None once it is orphaned.
    pub groups: Vec<G>,
    /// Its state.
    pub state: ShardState,
}

/// The state of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardState {
    /// Being filled.
    Filling {
        /// The number of waiters.
        waiters: usize,
        /// When the present filler began.
        since: Instant,
    },
    /// Resident.
    Resident {
        /// The number of clients that lease it.
        holders: usize,
        /// When its fill was completed.
        since: Instant,
        /// When it was last used.
        last_used: Instant,
    },
    /// No longer in the store, and its bytes not yet proved free.
    Orphaned {
        /// When it left the store.
        since: Instant,
    },
}

/// A shard that is resident or filling, for a computation over all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldShard<K> {
    /// The shard.
    pub id: K,
    /// Its bytes in the budget.
    pub bytes: u64,
    /// Whether a client leases it.
    pub is_leased: bool,
    /// When it was last used, or when its fill began.
    pub last_used: Instant,
    /// Whether it was used since it became resident.
    pub was_used: bool,
    /// Whether it is being filled.
    pub is_filling: bool,
    /// Whether it leaves when another shard needs its room, because its groups are idle.
    pub is_idle: bool,
}

/// A group, its shards and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupView<G> {
    /// The group.
    pub group: G,
    /// Shards filling or resident. A shard in several groups counts in each.
    pub shards: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Shards of these with a lease.
    pub leased: usize,
    /// Open sessions.
    pub sessions: usize,
    /// When it was last used.
    pub last_used: Instant,
}

/// A holder and its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderView {
    /// The holder.
    pub holder: HolderId,
    /// Shards it leases.
    pub shards: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl<K, G, F, R> Store<K, G, F, R>
where
    K: Copy + Eq + Hash + Ord,
    G: Copy + Eq + Hash + Ord,
    F: Clone,
    R: Clone,
{
    /// Returns the budget, with counts and bytes by state.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns a holder's quota in bytes.
    pub fn quota_bytes(&self) -> u64 {
        self.quota_bytes
    }

    /// Returns every shard that takes memory, by id; a shard comes before its orphans.
    pub fn shards(&self) -> Vec<ShardView<K, G>> {
        let present = self.entries.iter().map(|(&id, entry)| {
            let mut groups = entry.groups.clone();
            groups.sort_unstable();
            ShardView { id, bytes: entry.bytes, groups, state: entry.state.shown() }
        });
        let orphaned = self.orphans.iter().map(|record| ShardView {
            id: record.id,
            bytes: record.bytes,
            groups: Vec::new(),
            state: ShardState::Orphaned { since: record.since },
        });
        let mut shards: Vec<_> = present.chain(orphaned).collect();
        shards.sort_by_key(|shard| (shard.id, shard.state));
        shards
    }

    /// Returns every shard that is resident or filling, in no order.
    pub fn held(&self, now: Instant) -> impl Iterator<Item = HeldShard<K>> {
        self.entries.iter().map(move |(&id, entry)| {
            let is_filling = entry.state.filling().is_some();
            let (last_used, was_used) = match &entry.state {
                State::Filling(filling) => (filling.since, false),
                State::Resident(resident) => {
                    (resident.last_used, resident.last_used > resident.since)
                }
            };
            let usage = self.groups.usage(&entry.groups);
            let is_idle = !is_filling && usage.is_some_and(|usage| self.policy.is_idle(usage, now));
            let (bytes, is_leased) = (entry.bytes, entry.is_leased());
            HeldShard { id, bytes, is_leased, last_used, was_used, is_filling, is_idle }
        })
    }

    /// Returns how many shards were evicted so far because they were given up.
    pub fn given_up_count(&self) -> u64 {
        self.given_up_count
    }

    /// Returns the bytes of orphans that are not expected to be free soon: some process maps them.
    pub fn mapped_orphan_bytes(&self, now: Instant) -> u64 {
        self.budget.orphaned().bytes.saturating_sub(self.orphans.leaving_bytes(now))
    }

    /// Returns each resident shard, its number of holders and its last use, in no order.
    pub fn residents(&self) -> impl Iterator<Item = (K, usize, Instant)> {
        self.entries.iter().filter_map(|(&id, entry)| {
            let resident = entry.state.resident()?;
            Some((id, resident.holders, resident.last_used))
        })
    }

    /// Returns the handle of every fill that has not ended, in no order.
    pub fn fills(&self) -> impl Iterator<Item = (K, &F)> {
        self.entries.iter().filter_map(|(&id, entry)| Some((id, &entry.state.filling()?.handle)))
    }

    /// Returns every group that has a shard or an open session, in order.
    pub fn groups(&self) -> Vec<GroupView<G>> {
        let views = self.groups.iter().map(|(group, record)| GroupView {
            group,
            shards: record.shards,
            bytes: record.bytes,
            leased: record.leased,
            sessions: record.sessions,
            last_used: record.last_used,
        });
        let mut groups: Vec<_> = views.collect();
        groups.sort_unstable_by_key(|view| view.group);
        groups
    }

    /// Returns every holder of a lease, in order.
    pub fn holders(&self) -> Vec<HolderView> {
        let views = self.holders.iter().map(|(holder, held)| HolderView {
            holder,
            shards: held.leases.len(),
            bytes: held.bytes,
        });
        let mut holders: Vec<_> = views.collect();
        holders.sort_unstable_by_key(|view| view.holder);
        holders
    }
}

impl<F, R> State<F, R> {
    fn shown(&self) -> ShardState {
        match self {
            Self::Filling(filling) => {
                ShardState::Filling { waiters: filling.waiters, since: filling.since }
            }
            Self::Resident(resident) => ShardState::Resident {
                holders: resident.holders,
                since: resident.since,
                last_used: resident.last_used,
            },
        }
    }
}
