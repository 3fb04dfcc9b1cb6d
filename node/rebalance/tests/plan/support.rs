//! Rings, shards and changes drawn from a seed.

use std::sync::Arc;

use fastrand::Rng;
use larder_base::{Member, Placement, Ring, ShardId, SnapshotId};
use larder_rebalance::{Change, Plan, SizedShard, Snapshot, Step, plan};

pub(crate) const SNAPSHOT: SnapshotId = SnapshotId::from_bytes([7; 32]);

pub(crate) fn member(id: &str, weight: u32) -> Member {
    Member {
        id: id.to_owned(),
        weight,
        control: format!("http://{id}:7070"),
        host: id.to_owned(),
        zone: String::new(),
    }
}

/// A member with a name never drawn before.
pub(crate) fn stranger(rng: &mut Rng, weight: u32) -> Member {
    member(&format!("node-{:016x}", rng.u64(..)), weight)
}

pub(crate) fn ring(members: Vec<Member>) -> Arc<Ring> {
    Arc::new(Ring::new(1, members).expect("members that make a ring"))
}

/// How large the shards of a dataset are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sizes {
    /// All 64 MiB, but for the last.
    Equal,
    /// From 16 to 128 MiB.
    Mixed,
}

pub(crate) fn shards(rng: &mut Rng, count: usize, sizes: Sizes) -> Vec<SizedShard> {
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
pub(crate) struct Cluster {
    pub(crate) ring: Arc<Ring>,
    pub(crate) shards: Vec<SizedShard>,
    pub(crate) placement: Placement,
}

impl Cluster {
    /// The snapshot placed evenly on a ring where it was not before.
    pub(crate) fn new(ring: &Arc<Ring>, shards: Vec<SizedShard>, replicas: u8) -> Self {
        let (ring_version, steps, replicas) = (ring.version(), Vec::new(), Some(replicas));
        let change = Change { ring_version, steps, replicas, at_once: false };
        let snapshot = Snapshot { id: SNAPSHOT, shards: &shards, present: None };
        let plan = plan(ring, change, &[snapshot]).expect("a plan");
        let (ring, placement) = (plan.next().clone(), plan.snapshots()[0].placement.clone());
        Self { ring, shards, placement }
    }

    pub(crate) fn plan(&self, steps: Vec<Step>) -> Plan {
        let change =
            Change { ring_version: self.ring.version(), steps, replicas: None, at_once: false };
        let Self { shards, placement, .. } = self;
        let snapshot = Snapshot { id: SNAPSHOT, shards, present: Some(placement) };
        plan(&self.ring, change, &[snapshot]).expect("a plan")
    }

    /// Carries out a plan.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        self.ring = plan.next().clone();
        self.placement = plan.snapshots()[0].placement.clone();
    }
}

pub(crate) fn drain(id: &str) -> Step {
    Step::Drain { id: id.to_owned() }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The value that this percentage of all values do not exceed.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// The largest of all.
pub(crate) fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// A change drawn at random: a member comes, goes, or gets another weight.
pub(crate) fn any_step(rng: &mut Rng, ring: &Ring) -> Step {
    let members = ring.members();
    let (weight, victim) = (rng.u32(1..=4), rng.usize(..members.len()));
    match rng.u32(..3) {
        0 if members.len() < 24 => Step::Add(stranger(rng, weight)),
        1 if members.len() > 8 => drain(&members[victim].id),
        _ => Step::Reweight { id: members[victim].id.clone(), weight },
    }
}

/// Each member's bytes by a placement, by member of its ring.
pub(crate) fn held(placement: &Placement, shards: &[SizedShard]) -> Vec<u64> {
    let mut held = vec![0; placement.ring().members().len()];
    for shard in shards {
        for &owner in placement.owners(shard.id).iter() {
            held[usize::from(owner)] += shard.bytes;
        }
    }
    held
}
