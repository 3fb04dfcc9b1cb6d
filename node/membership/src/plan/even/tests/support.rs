//! Rings, shards and edits drawn from a seed.

use std::sync::Arc;

use fastrand::Rng;
use larder_base::{Member, Placement, Ring, ShardId, SnapshotId, placement::Exceptions};

use super::super::{
    SKEW_PERCENT_MAX, SizedShard,
    change::MemberChange,
    draft::percent,
    shares::shares,
    snapshots::{PlacedSnapshot, Snapshot, place},
};
use crate::{
    plan::{Edit, Move, Task},
    testing::member,
};

pub(super) const SNAPSHOT: SnapshotId = SnapshotId::from_bytes([7; 32]);

/// A member with a name never drawn before.
pub(super) fn stranger(rng: &mut Rng, weight: u32) -> Member {
    member(&format!("node-{:016x}", rng.u64(..)), weight)
}

/// How large the shards of a dataset are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sizes {
    /// All 64 MiB, but for the last.
    Equal,
    /// From 16 to 128 MiB.
    Mixed,
}

pub(super) fn shards(rng: &mut Rng, count: usize, sizes: Sizes) -> Vec<SizedShard> {
    let shard = |_| {
        let id = rng.u128(..).to_le_bytes();
        let bytes = match sizes {
            Sizes::Equal => 64 << 20,
            Sizes::Mixed => rng.u64(16 << 20..=128 << 20),
        };
        SizedShard { id: ShardId::from_bytes(id), bytes }
    };
    (0..count).map(shard).collect()
}

/// A cluster with one snapshot in place.
pub(super) struct Cluster {
    pub(super) ring: Arc<Ring>,
    pub(super) shards: Vec<SizedShard>,
    pub(super) placement: Placement,
}

/// The effect of some edits on a cluster.
pub(super) struct Change {
    pub(super) edits: Vec<Edit>,
    pub(super) members: MemberChange,
    pub(super) placement: Placement,
    pub(super) moves: Vec<Move>,
    pub(super) figures: ChangeFigures,
}

/// The figures of a change. Lists are by member of the next ring.
pub(super) struct ChangeFigures {
    pub(super) bytes: u64,
    pub(super) bytes_moved: u64,
    pub(super) bytes_from_origin: u64,
    /// The growth of all shares that grow, added up.
    pub(super) bytes_ideal: u64,
    pub(super) held: Vec<u64>,
    pub(super) shares: Vec<u64>,
}

impl Cluster {
    /// The snapshot placed evenly on a ring of these members.
    pub(super) fn new(members: Vec<Member>, shards: Vec<SizedShard>, replicas: u8) -> Self {
        let ring = Ring::new(1, members).and_then(|ring| ring.with_replicas(replicas));
        let ring = Arc::new(ring.expect("members that make a ring"));
        let placement = Placement::of_ring(ring.clone());
        let mut cluster = Self { ring, shards, placement };
        let change = cluster.plan(Vec::new());
        cluster.apply(&change);
        cluster
    }

    pub(super) fn plan(&self, edits: Vec<Edit>) -> Change {
        self.plan_as(edits, false)
    }

    pub(super) fn plan_as(&self, edits: Vec<Edit>, urgent: bool) -> Change {
        let members = change_of(&self.ring, &edits, urgent).expect("edits that lead to a ring");
        let (shards, present) = (self.shards.as_slice(), self.placement.clone());
        let mut placed = place(&members, urgent, vec![Snapshot { id: SNAPSHOT, shards, present }]);
        let PlacedSnapshot { placement, moves } = placed.as_mut().expect("a plan").remove(0);
        let figures = self.figures(&placement, &moves);
        Change { edits, members, placement, moves, figures }
    }

    fn figures(&self, placement: &Placement, moves: &[Move]) -> ChangeFigures {
        let bytes = self.shards.iter().map(|shard| shard.bytes).sum();
        let next = placement.ring();
        let shares_of = |ring: &Ring| shares(ring, bytes, ring.replicas());
        let (before, shares) = (shares_of(&self.ring), shares_of(next));
        let growth = next.members().iter().zip(&shares).map(|(member, share)| {
            let before = self.ring.index(&member.id).map_or(0, |index| before[index]);
            // Shares are rounded up, by less than a byte.
            share.saturating_sub(before + 1)
        });
        let from_origin = moves.iter().filter(|each| each.from.is_none());
        ChangeFigures {
            bytes: shares.iter().sum(),
            bytes_moved: moves.iter().map(|each| each.bytes).sum(),
            bytes_from_origin: from_origin.map(|each| each.bytes).sum(),
            bytes_ideal: growth.sum(),
            held: held(placement, &self.shards),
            shares,
        }
    }

    /// Carries out a change.
    pub(super) fn apply(&mut self, change: &Change) {
        self.ring = change.members.next.clone();
        self.placement = change.placement.clone();
    }

    /// The share of shards with other owners than the walk's.
    pub(super) fn excepted(&self) -> f64 {
        exceptions(&self.placement) as f64 / self.shards.len() as f64
    }
}

impl Change {
    /// The names of the source and of the target of a move.
    pub(super) fn ends(&self, each: &Move) -> (Option<&str>, &str) {
        let name = |index: u16| self.members.names[usize::from(index)].as_str();
        (each.from.map(name), name(each.to))
    }
}

impl ChangeFigures {
    /// The most that a member holds of its share after the change.
    pub(super) fn skew(&self) -> f64 {
        let each = self.held.iter().zip(&self.shares);
        each.map(|(&held, &share)| held as f64 / share.max(1) as f64).fold(0.0, f64::max)
    }

    pub(super) fn is_even(&self) -> bool {
        let mut each = self.held.iter().zip(&self.shares);
        each.all(|(&held, &share)| held <= percent(share, SKEW_PERCENT_MAX))
    }

    /// The bytes moved in proportion to the ideal, unless that is 0.
    pub(super) fn of_ideal(&self) -> Option<f64> {
        (self.bytes_ideal > 0).then(|| self.bytes_moved as f64 / self.bytes_ideal as f64)
    }
}

pub(super) fn change_of(ring: &Ring, edits: &[Edit], urgent: bool) -> Result<MemberChange, String> {
    MemberChange::of(&Task {
        base: ring.version(),
        members: ring.members().to_vec(),
        scheme: ring.scheme(),
        replicas: ring.scheme().replicas,
        placement: None,
        edits: edits.to_vec(),
        urgent,
    })
}

pub(super) fn exceptions(placement: &Placement) -> usize {
    placement.exceptions().map_or(0, Exceptions::len)
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The value that this percentage of all values do not exceed.
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// The largest of all.
pub(super) fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// An edit drawn at random: a member comes, goes, or gets another weight.
pub(super) fn any_edit(rng: &mut Rng, ring: &Ring) -> Edit {
    let members = ring.members();
    let (weight, member) = (rng.u32(1..=4), members[rng.usize(..members.len())].clone());
    match rng.u32(..3) {
        0 if members.len() < 24 => Edit::Put(stranger(rng, weight)),
        1 if members.len() > 8 => Edit::Remove(member.id),
        _ => Edit::Put(Member { weight, ..member }),
    }
}

/// Each member's bytes by a placement, by member of its ring.
pub(super) fn held(placement: &Placement, shards: &[SizedShard]) -> Vec<u64> {
    let mut held = vec![0; placement.ring().members().len()];
    for shard in shards {
        for &owner in placement.owners(shard.id).iter() {
            held[usize::from(owner)] += shard.bytes;
        }
    }
    held
}
