//! Groups of shards that are used together: the snapshots. The use of a group protects all of its
//! shards, also those not read for long, because an epoch comes back to each of them.

use crate::evict::{GroupUse, KeepWhatYouHave};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Group {
    /// Open sessions.
    pub(crate) sessions: usize,
    pub(crate) last_used: Instant,
    /// Shards filling or resident; one that two groups share counts in both.
    pub(crate) shards: usize,
    pub(crate) bytes: u64,
    /// Shards with at least one lease.
    pub(crate) leased: usize,
}

impl Group {
    fn new(now: Instant) -> Self {
        Self { sessions: 0, last_used: now, shards: 0, bytes: 0, leased: 0 }
    }

    fn touch(&mut self, now: Instant) {
        self.last_used = self.last_used.max(now);
    }

    fn usage(&self) -> GroupUse {
        GroupUse { engaged: self.sessions > 0 || self.leased > 0, last_used: self.last_used }
    }
}

/// Groups that have a shard or an open session. Others are forgotten.
#[derive(Debug)]
pub(crate) struct Groups<G>(HashMap<G, Group>);

impl<G: Copy + Eq + Hash> Groups<G> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    pub(crate) fn open(&mut self, group: G, now: Instant) {
        let record = self.0.entry(group).or_insert_with(|| Group::new(now));
        record.sessions += 1;
        record.touch(now);
    }

    /// Closes one session, if one is open.
    pub(crate) fn close(&mut self, group: G, now: Instant) -> bool {
        let Some(record) = self.0.get_mut(&group).filter(|record| record.sessions > 0) else {
            return false;
        };
        record.sessions -= 1;
        record.touch(now);
        self.forget_if_empty(group);
        true
    }

    pub(crate) fn touch(&mut self, group: G, now: Instant) {
        if let Some(record) = self.0.get_mut(&group) {
            record.touch(now);
        }
    }

    /// Counts a shard in.
    pub(crate) fn join(&mut self, group: G, bytes: u64, leased: bool, now: Instant) {
        let record = self.0.entry(group).or_insert_with(|| Group::new(now));
        record.touch(now);
        record.shards += 1;
        record.bytes += bytes;
        record.leased += usize::from(leased);
    }

    /// Removes a shard without a lease from each of its groups.
    pub(crate) fn depart(&mut self, groups: &[G], bytes: u64) {
        for &group in groups {
            let record = self.member(group);
            record.shards -= 1;
            record.bytes -= bytes;
            self.forget_if_empty(group);
        }
    }

    /// Notes the first lease of a shard of these groups.
    pub(crate) fn lease_began(&mut self, groups: &[G]) {
        for &group in groups {
            self.member(group).leased += 1;
        }
    }

    /// Notes the end of the last lease of a shard of these groups.
    pub(crate) fn lease_ended(&mut self, groups: &[G]) {
        for &group in groups {
            self.member(group).leased -= 1;
        }
    }

    /// Returns the use of a shard of these groups: that of the busiest.
    pub(crate) fn usage(&self, groups: &[G]) -> Option<GroupUse> {
        let usages = groups.iter().filter_map(|group| self.0.get(group)).map(Group::usage);
        usages.reduce(|one, other| GroupUse {
            engaged: one.engaged || other.engaged,
            last_used: one.last_used.max(other.last_used),
        })
    }

    /// Returns an upper bound of the bytes that could be evicted; shared shards count repeatedly.
    pub(crate) fn idle_bytes(&self, policy: &KeepWhatYouHave, now: Instant) -> u64 {
        let idle = self.0.values().filter(|record| policy.is_idle(record.usage(), now));
        idle.map(|record| record.bytes).fold(0, u64::saturating_add)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (G, &Group)> {
        self.0.iter().map(|(&group, record)| (group, record))
    }

    fn member(&mut self, group: G) -> &mut Group {
        self.0.get_mut(&group).expect("a group is kept while it has a shard")
    }

    fn forget_if_empty(&mut self, group: G) {
        if self.0.get(&group).is_some_and(|record| record.sessions == 0 && record.shards == 0) {
            self.0.remove(&group);
        }
    }
}
