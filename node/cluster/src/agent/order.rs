//! In which order the shards of a plan come: what is needed soonest first.
//!
//! Reads go by the old ring until a change is committed, so the order shows when a move is cut short: its giver dies, a
//! deadline ends it, or the giver evicts what nobody has taken yet. What came by then is warm; what did not is read from
//! the origin when it is asked for. So datasets that are read now go before those that rest; of one that is read now the
//! shard that was read longest ago goes first, since epochs go round and come to that one next; and what its giver does
//! not have, which would be a read of the origin, goes last.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use larder_dataset::SnapshotId;
use larder_wire::limits::DATASET_IN_USE;

use super::Shard;

/// That a giver has a shard, and for how long nobody has read it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastUse {
    /// The shard.
    pub shard: Shard,
    /// Since its last read.
    pub idle: Duration,
}

/// How soon a shard is needed: the least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Of a dataset that is read now.
    InUse { idle: Reverse<Duration> },
    /// Of one that rests: the one that was read last first.
    Resting { dataset_idle: Duration, idle: Reverse<Duration> },
    /// Its giver does not have it, or does not say.
    NotThere,
}

/// What givers said, to look shards up in.
#[derive(Debug)]
pub(super) struct Needs {
    shards: BTreeMap<Shard, Duration>,
    datasets: BTreeMap<SnapshotId, Duration>,
}

impl Needs {
    pub(super) fn new(uses: &[LastUse]) -> Self {
        let (mut shards, mut datasets) = (BTreeMap::new(), BTreeMap::new());
        for LastUse { shard, idle } in uses {
            let least = |known: &mut Duration| *known = (*known).min(*idle);
            shards.entry(*shard).and_modify(least).or_insert(*idle);
            datasets.entry(shard.snapshot).and_modify(least).or_insert(*idle);
        }
        Self { shards, datasets }
    }

    pub(super) fn of(&self, shard: Shard) -> Need {
        let (Some(&idle), Some(&dataset_idle)) =
            (self.shards.get(&shard), self.datasets.get(&shard.snapshot))
        else {
            return Need::NotThere;
        };
        let idle = Reverse(idle);
        if dataset_idle < DATASET_IN_USE {
            Need::InUse { idle }
        } else {
            Need::Resting { dataset_idle, idle }
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_dataset::ShardId;

    use super::*;

    fn shard(snapshot: u8, shard: u8) -> Shard {
        Shard {
            snapshot: SnapshotId::from_bytes([snapshot; 16]),
            shard: ShardId::from_bytes([shard; 16]),
        }
    }

    #[test]
    fn what_is_read_now_and_was_read_longest_ago_comes_first_and_what_is_not_there_last() {
        let used = |of, number, secs| LastUse {
            shard: shard(of, number),
            idle: Duration::from_secs(secs),
        };
        // Dataset 3 rests since an hour, 2 since ten minutes; 1 is being read, in its second epoch.
        let uses =
            [used(3, 1, 3_600), used(2, 1, 600), used(2, 2, 900), used(1, 1, 2), used(1, 2, 3_000)];
        let needs = Needs::new(&uses);
        let mut order = [(4, 1), (3, 1), (2, 1), (1, 1), (1, 3), (2, 2), (1, 2)];
        order.sort_by_key(|(of, number)| needs.of(shard(*of, *number)));
        assert_eq!(order, [(1, 2), (1, 1), (2, 2), (2, 1), (3, 1), (4, 1), (1, 3)]);
    }

    #[test]
    fn of_two_that_have_a_shard_the_later_read_counts() {
        let idle = [90, 5].map(Duration::from_secs);
        let needs = Needs::new(&idle.map(|idle| LastUse { shard: shard(1, 1), idle }));
        assert_eq!(needs.of(shard(1, 1)), Need::InUse { idle: Reverse(idle[1]) });
    }
}
