//! The order in which the shards of a plan move: the soonest needed first.
//!
//! Reads use the old ring until the commit. So the order matters only when a move is cut short: the
//! source dies, a deadline ends the move, or the source evicts shards that no target has pulled.
//! Shards that moved by then are warm; the others are read from the origin on demand. The order is:
//!
//! 1. shards of datasets in use, the longest unread first, as an epoch comes back to it next,
//! 2. shards of other datasets, the most recently read dataset first,
//! 3. shards that their source does not have, since they cost a read of the origin.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use larder_base::SnapshotId;

use super::Shard;

/// How soon a shard is needed. The least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// The dataset is in use.
    InUse { idle: Reverse<Duration> },
    /// The dataset is not in use. The most recently read dataset comes first.
    Resting { dataset_idle: Duration, idle: Reverse<Duration> },
    /// The source does not have the shard, or did not answer.
    NotThere,
}

/// The sources' answers about one plan: for each shard that a source has, the time since its last
/// read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastUses {
    shards: BTreeMap<Shard, Duration>,
    /// The shortest such time among all shards of a snapshot, including shards that stay.
    snapshots: BTreeMap<SnapshotId, Duration>,
}

impl LastUses {
    /// Notes a source's answer about one shard. A shard that is not `wanted` counts only for its
    /// snapshot, so this is no larger than the plan.
    pub fn note(&mut self, shard: Shard, idle: Duration, wanted: &BTreeMap<Shard, usize>) {
        keep_least(&mut self.snapshots, shard.snapshot, idle);
        if wanted.contains_key(&shard) {
            keep_least(&mut self.shards, shard, idle);
        }
    }

    /// Adds another source's answers.
    pub fn merge(&mut self, other: Self) {
        for (shard, idle) in other.shards {
            keep_least(&mut self.shards, shard, idle);
        }
        for (snapshot, idle) in other.snapshots {
            keep_least(&mut self.snapshots, snapshot, idle);
        }
    }

    /// Ranks a shard. A dataset read from within `in_use` comes before the others.
    pub(super) fn need(&self, shard: Shard, in_use: Duration) -> Need {
        let (Some(&idle), Some(&dataset_idle)) =
            (self.shards.get(&shard), self.snapshots.get(&shard.snapshot))
        else {
            return Need::NotThere;
        };
        let idle = Reverse(idle);
        if dataset_idle < in_use {
            Need::InUse { idle }
        } else {
            Need::Resting { dataset_idle, idle }
        }
    }
}

fn keep_least<K: Ord>(known: &mut BTreeMap<K, Duration>, key: K, idle: Duration) {
    known.entry(key).and_modify(|known| *known = (*known).min(idle)).or_insert(idle);
}

#[cfg(test)]
mod tests {
    use larder_base::ShardId;

    use super::*;
    use crate::Timing;

    fn shard(snapshot: u8, shard: u8) -> Shard {
        Shard {
            snapshot: SnapshotId::from_bytes([snapshot; 32]),
            shard: ShardId::from_bytes([shard; 16]),
        }
    }

    #[test]
    fn sorts_datasets_in_use_first_and_unknown_shards_last() {
        let order = [(4, 1), (3, 1), (2, 1), (1, 1), (1, 3), (2, 2), (1, 2)];
        let wanted = order.map(|(of, number)| (shard(of, number), 0)).into();
        let mut uses = LastUses::default();
        // Dataset 3 was last read an hour ago, 2 ten minutes ago; 1 is in its second epoch.
        let said = [(3, 1, 3_600), (2, 1, 600), (2, 2, 900), (1, 1, 40), (1, 2, 3_000), (1, 9, 2)];
        for (of, number, secs) in said {
            uses.note(shard(of, number), Duration::from_secs(secs), &wanted);
        }
        assert_eq!(uses.shards.len(), 5, "of what stays only the dataset is noted");
        let mut order = order;
        order.sort_by_key(|(of, number)| {
            uses.need(shard(*of, *number), Timing::REAL.dataset_in_use)
        });
        assert_eq!(order, [(1, 2), (1, 1), (2, 2), (2, 1), (3, 1), (4, 1), (1, 3)]);
    }

    #[test]
    fn later_read_of_two_sources_counts() {
        let (idle, wanted) = ([90, 5].map(Duration::from_secs), [(shard(1, 1), 0)].into());
        let [mut first, mut second] = [LastUses::default(), LastUses::default()];
        first.note(shard(1, 1), idle[0], &wanted);
        second.note(shard(1, 1), idle[1], &wanted);
        first.merge(second);
        assert_eq!(
            first.need(shard(1, 1), Timing::REAL.dataset_in_use),
            Need::InUse { idle: Reverse(idle[1]) }
        );
    }
}
