//! Tests that a cluster's plans match the placements before and after them.

mod drift;
mod goals;
mod laws;
mod snapshots;
mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fastrand::Rng;
use larder_base::{Member, Ring, Scheme, ShardId};
use proptest::prelude::*;

use super::*;
use crate::{
    plan::{Edit, edited, edits_between},
    testing::member,
};

/// A cluster as its record would have it, without the record.
#[derive(Clone)]
struct Cluster {
    planner: EvenPlanner,
    version: u64,
    members: Vec<Member>,
    scheme: Scheme,
    replicas: u8,
    placement: Option<Vec<u8>>,
}

/// By snapshot and shard: the owners' names.
type Owners = BTreeMap<(SnapshotId, ShardId), BTreeSet<String>>;

impl Cluster {
    fn new(rng: &mut Rng, ids: &[&str], shards: &[usize], replicas: u8) -> Self {
        let mut snapshot = |(number, &count): (u8, &usize)| {
            let shard = |_| SizedShard {
                id: ShardId::from_bytes(rng.u128(..).to_le_bytes()),
                bytes: rng.u64(16 << 20..=128 << 20),
            };
            (SnapshotId::from_bytes([number; 32]), (0..count).map(shard).collect())
        };
        let snapshots = (1..).zip(shards).map(&mut snapshot).collect();
        let planner = EvenPlanner { snapshots };
        let members = ids.iter().map(|id| member(id, 1)).collect();
        let scheme = Scheme { replicas, ..Scheme::one_replica(1) };
        Self { planner, version: 1, members, scheme, replicas, placement: None }
    }

    fn task(&self, edits: &[Edit], urgent: bool) -> Task {
        Task {
            base: self.version,
            members: self.members.clone(),
            scheme: self.scheme,
            replicas: self.replicas,
            placement: self.placement.as_deref().map(BlobId::of),
            edits: edits.to_vec(),
            urgent,
        }
    }

    fn plan(&self, edits: &[Edit], urgent: bool) -> Result<PlanBlobs, String> {
        self.planner.plan(&self.task(edits, urgent), self.placement.as_deref())
    }

    /// Makes a plan and carries it out.
    fn change(&mut self, edits: &[Edit], urgent: bool) -> RingPlan {
        let PlanBlobs { plan, placement } = self.plan(edits, urgent).unwrap();
        let plan = RingPlan::decode(&plan).unwrap();
        assert_eq!(plan.target, placement.as_deref().map(BlobId::of));
        self.version += 1;
        self.members = edited(&self.members, edits);
        (self.scheme, self.placement) = (plan.scheme, placement);
        plan
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::new(Ring::with_scheme(self.version, self.members.clone(), self.scheme).unwrap())
    }

    fn placement_of(&self, snapshot: SnapshotId) -> Placement {
        let tables = self.placement.as_deref().map(|bytes| Tables::decode(bytes).unwrap());
        match tables.unwrap_or_default().get(snapshot) {
            Some(table) => Placement::new(self.ring(), table.clone()).unwrap(),
            None => Placement::of_ring(self.ring()),
        }
    }

    fn owners(&self) -> Owners {
        let mut owners = Owners::new();
        for (snapshot, shards) in &self.planner.snapshots {
            let placement = self.placement_of(*snapshot);
            for shard in shards {
                let name = |&owner: &u16| self.members[usize::from(owner)].id.clone();
                let named = placement.owners(shard.id).iter().map(name).collect();
                owners.insert((*snapshot, shard.id), named);
            }
        }
        owners
    }
}

fn remove(id: &str) -> Edit {
    Edit::Remove(id.to_owned())
}

fn put(id: &str, weight: u32) -> Edit {
    Edit::Put(member(id, weight))
}

/// The moves are those between the placements before and after, each from where a copy is.
fn check(plan: &RingPlan, before: &Owners, after: &Owners) {
    let mut due = BTreeSet::new();
    for (shard, owners) in after {
        due.extend(owners.difference(&before[shard]).map(|to| (*shard, to.clone())));
    }
    for step in &plan.moves {
        let shard = (step.snapshot, step.shard);
        assert!(due.remove(&(shard, plan.name(step.to).to_owned())), "{step:?}");
        if let Some(from) = step.from {
            let from = plan.name(from);
            assert!(before[&shard].contains(from));
            assert_eq!(step.stays, after[&shard].contains(from));
        }
    }
    assert!(due.is_empty(), "not moved: {due:?}");
}

/// Edits about different members, that leave some.
fn any_edits(rng: &mut Rng, cluster: &Cluster) -> Vec<Edit> {
    let mut after = cluster.members.clone();
    for _ in 0..rng.usize(1..=3) {
        let at = rng.usize(..after.len());
        match rng.u32(..4) {
            0 if after.len() > 2 => drop(after.remove(at)),
            1 => after[at].weight = rng.u32(1..=4),
            2 => after[at].zone = format!("zone-{}", rng.u32(..3)),
            _ => after.push(member(&format!("new-{:08x}", rng.u32(..)), rng.u32(1..=4))),
        }
    }
    after.sort_by(|a, b| a.id.cmp(&b.id));
    edits_between(&cluster.members, &after)
}

/// The primary owner of each shard.
fn first_owners(cluster: &Cluster) -> BTreeMap<ShardId, String> {
    let mut first = BTreeMap::new();
    for (snapshot, shards) in &cluster.planner.snapshots {
        let placement = cluster.placement_of(*snapshot);
        first.extend(shards.iter().map(|shard| (shard.id, placement.owner(shard.id).id.clone())));
    }
    first
}

#[test]
fn replica_change_moves_only_what_new_primaries_lack() {
    let mut rng = Rng::with_seed(7);
    let mut cluster = Cluster::new(&mut rng, &["a", "b", "c", "d"], &[90, 0, 7, 40], 1);
    cluster.change(&[put("e", 2)], false);
    for replicas in [2, 3, 1] {
        let (before, asked) = (cluster.owners(), first_owners(&cluster));
        cluster.replicas = replicas;
        let plan = cluster.change(&[], false);
        let (after, asks) = (cluster.owners(), first_owners(&cluster));
        assert_eq!(plan.scheme.replicas, replicas);
        assert!(after.values().all(|owners| owners.len() == usize::from(replicas)));
        for step in &plan.moves {
            let (shard, to) = ((step.snapshot, step.shard), plan.name(step.to));
            assert!(!before[&shard].contains(to) && after[&shard].contains(to));
        }
        let moved: BTreeSet<_> =
            plan.moves.iter().map(|step| (step.shard, plan.name(step.to))).collect();
        for ((_, shard), owners) in &before {
            let first = asks[shard].as_str();
            assert!(owners.contains(first) || moved.contains(&(*shard, first)), "{shard}");
        }
        let turned = asked.iter().filter(|(shard, id)| asks[shard] != **id).count();
        assert!(turned.max(plan.moves.len()) < asked.len() / 8, "{turned}, {}", plan.moves.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn moves_equal_the_difference_of_two_placements(seed in any::<u64>(), replicas in 1..=3_u8) {
        let mut rng = Rng::with_seed(seed);
        let ids = ["a", "b", "c", "d"];
        let mut cluster = Cluster::new(&mut rng, &ids, &[90, 0, 7, 40], replicas);
        for _ in 0..4 {
            let before = cluster.owners();
            let edits = any_edits(&mut rng, &cluster);
            let plan = cluster.change(&edits, false);
            let after = cluster.owners();
            check(&plan, &before, &after);
            let replicas = usize::from(replicas).min(cluster.members.len());
            prop_assert!(after.values().all(|owners| owners.len() == replicas));
            prop_assert!(plan.moves.iter().all(|step| step.from.is_some()));
        }
    }

    #[test]
    fn removal_of_a_dead_member_moves_nothing_off_survivors(seed in any::<u64>(), replicas in 1..=2_u8) {
        let mut rng = Rng::with_seed(seed);
        let ids = ["a", "b", "c", "d", "e"];
        let mut cluster = Cluster::new(&mut rng, &ids, &[60, 20], replicas);
        cluster.change(&[put("f", 2)], false);
        let before = cluster.owners();
        let dead = ids[rng.usize(..ids.len())];
        let plan = cluster.change(&[remove(dead)], true);
        let after = cluster.owners();
        check(&plan, &before, &after);
        for (shard, owners) in &before {
            prop_assert!(owners.iter().all(|id| id == dead || after[shard].contains(id)));
        }
        // The only copy has no source; of two copies the other one remains.
        prop_assert!(plan.moves.iter().all(|step| step.from.is_some() == (replicas > 1)));
        prop_assert!(plan.moves.iter().all(|step| step.stays == (replicas > 1)));
    }
}

#[test]
fn plan_of_a_task_is_the_same_each_time() {
    let mut rng = Rng::with_seed(1);
    let mut cluster = Cluster::new(&mut rng, &["a", "b", "c", "d"], &[1_000], 1);
    cluster.change(&[put("e", 1)], false);
    let same = cluster.plan(&[remove("b")], false).unwrap();
    assert_eq!(same, cluster.plan(&[remove("b")], false).unwrap());
}

#[test]
fn moves_alternate_receivers_and_group_by_snapshot() {
    let mut rng = Rng::with_seed(2);
    let mut cluster = Cluster::new(&mut rng, &["a", "b", "c", "d"], &[200], 2);
    cluster.change(&[put("e", 1)], false);
    // Opened since: it has no table.
    let mut opened = Cluster::new(&mut rng, &["a"], &[0, 200], 1).planner.snapshots;
    cluster.planner.snapshots.push(opened.remove(1));
    let plan = cluster.change(&[remove("a")], false);
    let receivers = plan.receivers().len();
    assert_eq!(receivers, 4);
    let first: BTreeSet<u16> = plan.moves[..receivers].iter().map(|step| step.to).collect();
    assert_eq!(first.len(), receivers);
    for id in plan.receivers() {
        let snapshots: Vec<u8> =
            plan.moves_to(id).map(|step| step.snapshot.as_bytes()[0]).collect();
        assert!(snapshots.contains(&1) && snapshots.contains(&2));
        assert!(snapshots.is_sorted(), "{snapshots:?}");
    }
}

#[test]
fn no_table_is_made_where_the_ring_suffices() {
    let mut rng = Rng::with_seed(3);
    let mut cluster = Cluster::new(&mut rng, &["a", "b"], &[50], 1);
    cluster.change(&[remove("b")], false);
    assert_eq!(cluster.placement, None);
    let mut copied = Cluster::new(&mut rng, &["a", "b", "c"], &[50], 2);
    copied.change(&[remove("b")], false);
    let snapshot = copied.planner.snapshots[0].0;
    assert_eq!(copied.placement_of(snapshot).replicas(), 2, "both have everything by the walk");
}

#[test]
fn new_address_keeps_tables_valid() {
    let mut rng = Rng::with_seed(4);
    let mut cluster = Cluster::new(&mut rng, &["a", "b", "c"], &[100], 1);
    cluster.change(&[put("d", 1)], false);
    assert!(cluster.placement.is_some());
    let owners = cluster.owners();
    cluster.members[1].control = "http://elsewhere.example:1".to_owned();
    assert_eq!(cluster.owners(), owners);
    assert!(cluster.plan(&[remove("a")], false).is_ok());
    // The host of another member does not count: only a plan changes that.
    cluster.members[1].host = cluster.members[0].host.clone();
    assert!(cluster.plan(&[remove("c")], false).unwrap_err().contains("exceptions of snapshot"));
}

#[test]
fn impossible_plans_are_refused_with_a_reason() {
    let mut rng = Rng::with_seed(5);
    let mut cluster = Cluster::new(&mut rng, &["a", "b", "c"], &[100], 1);
    cluster.change(&[put("d", 1)], false);
    let refused = |cluster: &Cluster, edits: &[Edit]| cluster.plan(edits, false).unwrap_err();
    assert!(refused(&cluster, &[remove("x")]).contains("'x' is no member"));
    let all = ["a", "b", "c", "d"].map(remove);
    assert!(refused(&cluster, &all).contains("no member"));
    let task = cluster.task(&[remove("a")], false);
    for bytes in [None, Some(&b"another"[..])] {
        assert!(cluster.planner.plan(&task, bytes).unwrap_err().contains("not at hand"));
    }
    let mut stale = cluster.clone();
    stale.version += 1;
    assert!(refused(&stale, &[remove("a")]).contains("to ring version 2"));
    let mut crowd = cluster.clone();
    crowd.planner.snapshots = vec![crowd.planner.snapshots[0].clone(); 1_025];
    assert!(refused(&crowd, &[remove("a")]).contains("the limit is 1024"));
}

#[test]
fn plan_over_the_blob_limit_is_refused() {
    let mut rng = Rng::with_seed(6);
    let count = limits::BLOB_BYTES_MAX / 28 + 1;
    let cluster = Cluster::new(&mut rng, &["a"], &[count], 1);
    let refused = cluster.plan(&[put("b", 1), remove("a")], false).unwrap_err();
    assert!(refused.contains("fewer members at a time"), "{refused}");
}
