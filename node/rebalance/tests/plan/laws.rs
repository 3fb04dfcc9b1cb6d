//! The laws of every plan, on any ring.

use std::collections::HashSet;

use fastrand::Rng;
use larder_base::{Placement, Ring};
use larder_rebalance::{Change, Plan, SKEW_PERCENT_MAX, Snapshot, Step};
use proptest::prelude::*;

use crate::support::{
    Cluster, SNAPSHOT, Sizes, any_step, drain, held, member, ring, shards, stranger,
};

/// A cluster drawn from a seed: few or many members, one to three copies, zones or none.
fn any_cluster(rng: &mut Rng, count: usize) -> Cluster {
    let (zones, hosts) = (rng.u32(1..=4), rng.u32(4..=40));
    let members = (0..rng.usize(4..=20)).map(|_| {
        let weight = rng.u32(1..=4);
        let mut member = stranger(rng, weight);
        member.zone = format!("zone-{}", rng.u32(..zones));
        member.host = format!("host-{}", rng.u32(..hosts));
        member
    });
    let members = members.collect();
    let sizes = if rng.bool() { Sizes::Equal } else { Sizes::Mixed };
    let shards = shards(rng, count, sizes);
    Cluster::new(&ring(members), shards, rng.u8(1..=3))
}

/// Several steps about different members, that leave some.
fn any_steps(rng: &mut Rng, ring: &Ring) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..rng.usize(0..=4) {
        let step = any_step(rng, ring);
        if steps.iter().all(|other| other.id() != step.id()) {
            steps.push(step);
        }
    }
    steps
}

/// Checks that a plan agrees with itself and with the placement before it.
fn check(cluster: &Cluster, plan: &Plan) {
    let part = &plan.snapshots()[0];
    let (spread, replicas) =
        (plan.next().spread(), plan.next().spread().owner_count(plan.next().replicas()));
    let name = |ring: &Ring, owner: u16| ring.members()[usize::from(owner)].id.clone();
    let mut arrived = HashSet::new();
    for shard in &cluster.shards {
        let owners = part.placement.owners(shard.id);
        assert!(spread.keeps_apart(&owners, replicas), "{owners:?}");
        let before = cluster.placement.owners(shard.id);
        let before: HashSet<_> = before.iter().map(|&o| name(&cluster.ring, o)).collect();
        let new = owners.iter().map(|&o| name(plan.next(), o)).filter(|id| !before.contains(id));
        arrived.extend(new.map(|id| (shard.id, id)));
    }
    assert_eq!(part.moves.len(), arrived.len());
    for each in &part.moves {
        assert!(arrived.remove(&(each.shard, plan.target(each).id.clone())));
        let source = each.from.expect("nobody was removed");
        assert!(cluster.placement.owners(each.shard).contains(&source));
    }
    let summary = &part.summary;
    assert_eq!(summary.held, held(&part.placement, &cluster.shards));
    assert_eq!(summary.held_before, held(&cluster.placement, &cluster.shards));
    let exceptions = part.placement.exceptions().expect("a planned snapshot");
    assert_eq!(summary.exceptions, exceptions.len() as u64);
    let walked = Placement::of_ring(plan.next().clone());
    let differ = |shard: &&larder_rebalance::SizedShard| {
        walked.owners(shard.id) != part.placement.owners(shard.id)
    };
    assert_eq!(cluster.shards.iter().filter(differ).count(), exceptions.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn plan_is_consistent_and_spreads_copies(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = any_cluster(&mut rng, 400);
        for _ in 0..3 {
            let steps = any_steps(&mut rng, &cluster.ring);
            let plan = cluster.plan(steps.clone());
            check(&cluster, &plan);
            prop_assert_eq!(plan.id(), cluster.plan(steps).id());
            cluster.apply(&plan);
        }
    }

    #[test]
    fn empty_change_moves_nothing(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = any_cluster(&mut rng, 400);
        let steps = any_steps(&mut rng, &cluster.ring);
        let plan = cluster.plan(steps);
        cluster.apply(&plan);
        let was_even = plan.summary().is_even();
        let plan = cluster.plan(Vec::new());
        // A plan may mend a placement that an earlier plan left uneven.
        if was_even {
            prop_assert!(plan.snapshots()[0].moves.is_empty());
            prop_assert_eq!(plan.summary().exceptions, plan.summary().exceptions_before);
        }
    }

    #[test]
    fn single_copies_of_many_small_shards_are_always_even(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let members = (0..rng.usize(1..=12)).map(|_| { let w = rng.u32(1..=4); stranger(&mut rng, w) });
        let members = members.collect();
        let shards = shards(&mut rng, 2_000, Sizes::Mixed);
        let cluster = Cluster::new(&ring(members), shards, 1);
        let plan = cluster.plan(vec![Step::Add(stranger(&mut rng, 2))]);
        prop_assert!(plan.summary().is_even());
        prop_assert!(plan.summary().skew() <= SKEW_PERCENT_MAX as f64 / 100.0);
    }
}

#[test]
fn shards_held_only_by_a_dead_member_come_from_the_origin() {
    let mut rng = Rng::with_seed(3);
    for (replicas, from_origin) in [(1, true), (2, false)] {
        let members = (0..6).map(|_| stranger(&mut rng, 1)).collect();
        let shards = shards(&mut rng, 600, Sizes::Equal);
        let cluster = Cluster::new(&ring(members), shards, replicas);
        let dead = cluster.ring.members()[2].id.clone();
        let plan = cluster.plan(vec![Step::Remove { id: dead.clone() }]);
        let moves = &plan.snapshots()[0].moves;
        assert!(moves.len() > 50);
        for each in moves {
            let source = plan.source(each).map(|member| member.id.clone());
            assert_eq!(source.is_none(), from_origin);
            assert_ne!(source, Some(dead.clone()));
        }
        let summary = plan.summary();
        assert_eq!(summary.bytes_from_origin, if from_origin { summary.bytes_moved } else { 0 });
    }
}

#[test]
fn urgent_change_takes_no_shard_from_remaining_members() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = any_cluster(&mut rng, 300);
        let steps = any_steps(&mut rng, &cluster.ring);
        let plan = cluster.plan(steps);
        cluster.apply(&plan);
        let dead = cluster.ring.members()[1].id.clone();
        let steps = vec![Step::Remove { id: dead.clone() }];
        let change =
            Change { ring_version: cluster.ring.version(), steps, replicas: None, at_once: true };
        let Cluster { shards, placement, .. } = &cluster;
        let snapshot = Snapshot { id: SNAPSHOT, shards, present: Some(placement) };
        let plan = larder_rebalance::plan(&cluster.ring, change, &[snapshot]).unwrap();
        let after = &plan.snapshots()[0].placement;
        for shard in shards {
            let names = |placement: &Placement| -> HashSet<String> {
                let owners = placement.owners(shard.id);
                let name = |&owner: &u16| placement.ring().members()[usize::from(owner)].id.clone();
                owners.iter().map(name).filter(|id| *id != dead).collect()
            };
            assert!(names(placement).is_subset(&names(after)));
        }
    }
}

#[test]
fn draining_member_is_the_source_of_its_shards() {
    let mut rng = Rng::with_seed(3);
    let members = (0..6).map(|_| stranger(&mut rng, 1)).collect();
    let shards = shards(&mut rng, 600, Sizes::Equal);
    let cluster = Cluster::new(&ring(members), shards, 2);
    let leaver = cluster.ring.members()[2].id.clone();
    let plan = cluster.plan(vec![drain(&leaver)]);
    assert!(plan.snapshots()[0].moves.iter().all(|each| plan.source(each).unwrap().id == leaver));
}

#[test]
fn few_large_shards_are_spread_and_reported_as_uneven() {
    let mut rng = Rng::with_seed(5);
    for count in [1, 10, 16, 17, 40, 100] {
        let members = (0..16).map(|_| stranger(&mut rng, 1)).collect();
        let shards = shards(&mut rng, count, Sizes::Equal);
        let cluster = Cluster::new(&ring(members), shards, 1);
        let most = held(&cluster.placement, &cluster.shards).into_iter().max().unwrap() >> 26;
        assert_eq!(most, count.div_ceil(16) as u64, "{count} shards");
        let summary = cluster.plan(Vec::new()).summary();
        assert_eq!((summary.moves, summary.is_even()), (0, count % 16 == 0));
    }
}

#[test]
fn second_zone_gets_a_copy_of_all_shards() {
    let mut rng = Rng::with_seed(8);
    let members = (0..4).map(|index| member(&format!("west-{index}"), 1)).collect();
    let shards = shards(&mut rng, 400, Sizes::Equal);
    let bytes: u64 = shards.iter().map(|shard| shard.bytes).sum();
    let cluster = Cluster::new(&ring(members), shards, 2);
    let east = |index: u32| {
        let mut member = member(&format!("east-{index}"), 1);
        member.zone = "east".to_owned();
        Step::Add(member)
    };
    let plan = cluster.plan((0..4).map(east).collect());
    check(&cluster, &plan);
    let summary = plan.summary();
    assert_eq!(summary.bytes_ideal, bytes - 4);
    // One copy of everything goes east. The other is evened out in the west.
    assert!((1.0..1.05).contains(&summary.share_of_ideal().unwrap()));
    assert!(summary.is_even());
}

#[test]
fn plan_id_depends_on_its_effect() {
    let mut rng = Rng::with_seed(4);
    let mut cluster = any_cluster(&mut rng, 300);
    let guest = stranger(&mut rng, 2);
    let plan = cluster.plan(vec![Step::Add(guest.clone())]);
    assert_eq!(plan.id(), cluster.plan(vec![Step::Add(guest.clone())]).id());
    let mut elsewhere = guest.clone();
    elsewhere.control = "http://elsewhere:1".to_owned();
    let mut heavier = guest;
    heavier.weight = 3;
    assert_ne!(plan.id(), cluster.plan(vec![Step::Add(elsewhere)]).id());
    assert_ne!(plan.id(), cluster.plan(vec![Step::Add(heavier)]).id());
    let leaver = cluster.ring.members()[0].id.clone();
    let gone = cluster.plan(vec![Step::Remove { id: leaver.clone() }]).id();
    assert_ne!(cluster.plan(vec![drain(&leaver)]).id(), gone);

    assert!(plan.check_present(&cluster.ring).is_ok());
    cluster.apply(&plan);
    let error = plan.check_present(&cluster.ring).unwrap_err().to_string();
    assert!(error.contains(&plan.id().to_string()) && error.contains("plan it anew"), "{error}");
    let stale = Change { ring_version: 1, steps: Vec::new(), replicas: None, at_once: false };
    assert!(larder_rebalance::plan(&cluster.ring, stale, &[]).is_err());
}
