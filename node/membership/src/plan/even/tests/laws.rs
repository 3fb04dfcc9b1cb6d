//! The laws of every plan, on any ring.

use std::collections::HashSet;

use fastrand::Rng;
use larder_base::{Placement, Ring};
use proptest::prelude::*;

use super::{
    super::SKEW_PERCENT_MAX,
    remove,
    support::{Change, Cluster, Sizes, any_edit, exceptions, held, shards, stranger},
};
use crate::{
    plan::{Edit, SizedShard},
    testing::member,
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
    Cluster::new(members, shards, rng.u8(1..=3))
}

/// Several edits about different members, that leave some.
fn any_edits(rng: &mut Rng, ring: &Ring) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..rng.usize(0..=4) {
        let edit = any_edit(rng, ring);
        if edits.iter().all(|other| other.id() != edit.id()) {
            edits.push(edit);
        }
    }
    edits
}

/// Checks that a change agrees with itself and with the placement before it.
fn check(cluster: &Cluster, change: &Change) {
    let next = &change.members.next;
    let replicas = next.spread().owner_count(next.replicas());
    let name = |ring: &Ring, owner: u16| ring.members()[usize::from(owner)].id.clone();
    let mut arrived = HashSet::new();
    for shard in &cluster.shards {
        let owners = change.placement.owners(shard.id);
        assert!(next.spread().keeps_apart(&owners, replicas), "{owners:?}");
        let before = cluster.placement.owners(shard.id);
        let before: HashSet<_> = before.iter().map(|&o| name(&cluster.ring, o)).collect();
        let new = owners.iter().map(|&o| name(next, o)).filter(|id| !before.contains(id));
        arrived.extend(new.map(|id| (shard.id, id)));
    }
    assert_eq!(change.moves.len(), arrived.len());
    for each in &change.moves {
        let (from, to) = change.ends(each);
        assert!(arrived.remove(&(each.shard, to.to_owned())));
        let source = cluster.ring.index(from.expect("all members live")).unwrap();
        let source = u16::try_from(source).unwrap();
        assert!(cluster.placement.owners(each.shard).contains(&source));
    }
    let walked = Placement::of_ring(next.clone());
    let differ = |shard: &&SizedShard| walked.owners(shard.id) != change.placement.owners(shard.id);
    let differing = cluster.shards.iter().filter(differ).count();
    assert_eq!(differing, exceptions(&change.placement));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn plan_is_consistent_and_spreads_copies(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = any_cluster(&mut rng, 400);
        for _ in 0..3 {
            let edits = any_edits(&mut rng, &cluster.ring);
            let change = cluster.plan(edits.clone());
            check(&cluster, &change);
            prop_assert_eq!(&change.moves, &cluster.plan(edits).moves);
            cluster.apply(&change);
        }
    }

    #[test]
    fn empty_change_moves_nothing(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = any_cluster(&mut rng, 400);
        let edits = any_edits(&mut rng, &cluster.ring);
        let first = cluster.plan(edits);
        cluster.apply(&first);
        let second = cluster.plan(Vec::new());
        // A plan may mend a placement that an earlier plan left uneven.
        if first.figures.is_even() {
            prop_assert!(second.moves.is_empty());
            prop_assert_eq!(exceptions(&second.placement), exceptions(&first.placement));
        }
    }

    #[test]
    fn single_copies_of_many_small_shards_are_always_even(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let members = (0..rng.usize(1..=12)).map(|_| { let w = rng.u32(1..=4); stranger(&mut rng, w) });
        let members = members.collect();
        let shards = shards(&mut rng, 2_000, Sizes::Mixed);
        let cluster = Cluster::new(members, shards, 1);
        let figures = cluster.plan(vec![Edit::Put(stranger(&mut rng, 2))]).figures;
        prop_assert!(figures.is_even());
        prop_assert!(figures.skew() <= SKEW_PERCENT_MAX as f64 / 100.0);
    }
}

#[test]
fn shards_held_only_by_a_dead_member_come_from_the_origin() {
    let mut rng = Rng::with_seed(3);
    for (replicas, from_origin) in [(1, true), (2, false)] {
        let members = (0..6).map(|_| stranger(&mut rng, 1)).collect();
        let shards = shards(&mut rng, 600, Sizes::Equal);
        let cluster = Cluster::new(members, shards, replicas);
        let dead = cluster.ring.members()[2].id.clone();
        let change = cluster.plan_as(vec![remove(&dead)], true);
        assert!(change.moves.len() > 50);
        for each in &change.moves {
            let (source, _) = change.ends(each);
            assert_eq!(source.is_none(), from_origin);
            assert_ne!(source, Some(dead.as_str()));
        }
        let figures = change.figures;
        assert_eq!(figures.bytes_from_origin, if from_origin { figures.bytes_moved } else { 0 });
    }
}

#[test]
fn urgent_change_takes_no_shard_from_remaining_members() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut cluster = any_cluster(&mut rng, 300);
        let edits = any_edits(&mut rng, &cluster.ring);
        let change = cluster.plan(edits);
        cluster.apply(&change);
        let dead = cluster.ring.members()[1].id.clone();
        let change = cluster.plan_as(vec![remove(&dead)], true);
        let (before, after) = (&cluster.placement, &change.placement);
        for shard in &cluster.shards {
            let names = |placement: &Placement| -> HashSet<String> {
                let owners = placement.owners(shard.id);
                let name = |&owner: &u16| placement.ring().members()[usize::from(owner)].id.clone();
                owners.iter().map(name).filter(|id| *id != dead).collect()
            };
            assert!(names(before).is_subset(&names(after)));
        }
    }
}

#[test]
fn draining_member_is_the_source_of_its_shards() {
    let mut rng = Rng::with_seed(3);
    let members = (0..6).map(|_| stranger(&mut rng, 1)).collect();
    let shards = shards(&mut rng, 600, Sizes::Equal);
    let cluster = Cluster::new(members, shards, 2);
    let leaver = cluster.ring.members()[2].id.clone();
    let change = cluster.plan(vec![remove(&leaver)]);
    assert!(change.moves.iter().all(|each| change.ends(each).0 == Some(leaver.as_str())));
}

#[test]
fn few_large_shards_are_spread_and_reported_as_uneven() {
    let mut rng = Rng::with_seed(5);
    for count in [1, 10, 16, 17, 40, 100] {
        let members = (0..16).map(|_| stranger(&mut rng, 1)).collect();
        let shards = shards(&mut rng, count, Sizes::Equal);
        let cluster = Cluster::new(members, shards, 1);
        let most = held(&cluster.placement, &cluster.shards).into_iter().max().unwrap() >> 26;
        assert_eq!(most, count.div_ceil(16) as u64, "{count} shards");
        let change = cluster.plan(Vec::new());
        assert_eq!((change.moves.len(), change.figures.is_even()), (0, count % 16 == 0));
    }
}

#[test]
fn second_zone_gets_a_copy_of_all_shards() {
    let mut rng = Rng::with_seed(8);
    let members = (0..4).map(|index| member(&format!("west-{index}"), 1)).collect();
    let shards = shards(&mut rng, 400, Sizes::Equal);
    let bytes: u64 = shards.iter().map(|shard| shard.bytes).sum();
    let cluster = Cluster::new(members, shards, 2);
    let east = |index: u32| {
        let mut member = member(&format!("east-{index}"), 1);
        member.zone = "east".to_owned();
        Edit::Put(member)
    };
    let change = cluster.plan((0..4).map(east).collect());
    check(&cluster, &change);
    assert_eq!(change.figures.bytes_ideal, bytes - 4);
    // One copy of everything goes east. The other is evened out in the west.
    assert!((1.0..1.05).contains(&change.figures.of_ideal().unwrap()));
    assert!(change.figures.is_even());
}
