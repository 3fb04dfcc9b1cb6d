//! The ring: owners of shards, and moves when members join and leave.

use std::collections::{HashMap, HashSet};

use crate::ShardId;
use proptest::prelude::*;

use super::*;
use crate::{ErrorKind, limits};

fn member(id: &str, weight: u32) -> Member {
    Member {
        id: id.to_owned(),
        weight,
        control: format!("http://{id}.example:7070"),
        host: id.to_owned(),
        zone: String::new(),
    }
}

fn members(weights: &[u32]) -> Vec<Member> {
    let named = |(index, &weight)| member(&format!("node-{index}"), weight);
    weights.iter().enumerate().map(named).collect()
}

fn ring(weights: &[u32]) -> Ring {
    Ring::new(1, members(weights)).unwrap()
}

/// Returns pseudo-random ids, the same in every run.
fn shards(count: u64) -> impl Iterator<Item = ShardId> {
    let id = |index: u64| xxhash_rust::xxh3::xxh3_128(&index.to_le_bytes()).to_le_bytes();
    (0..count).map(move |index| ShardId::from_bytes(id(index)))
}

/// Returns the share of the shards that each member owns.
fn shares(ring: &Ring) -> HashMap<&str, f64> {
    let mut shares = HashMap::new();
    for shard in shards(20_000) {
        *shares.entry(ring.owner(shard).id.as_str()).or_default() += 1.0 / 20_000.0;
    }
    shares
}

#[test]
fn the_owner_is_where_the_walk_begins() {
    for weights in [&[1][..], &[1, 1], &[5, 1, 3, 100], &[1; 40]] {
        let ring = ring(weights);
        for shard in shards(5_000) {
            assert_eq!(ring.owner(shard), ring.walk(shard).next().unwrap());
        }
    }
}

#[test]
fn a_walk_names_every_member_once() {
    let ring = ring(&[1, 2, 3, 4, 5, 6, 7, 1_000]);
    for shard in shards(2_000) {
        let walk: Vec<&str> = ring.walk(shard).map(|member| member.id.as_str()).collect();
        assert_eq!(walk.len(), 8);
        assert_eq!(walk.iter().collect::<HashSet<_>>().len(), 8);
        let replicas: Vec<&str> = ring.owners(shard, 3).map(|m| m.id.as_str()).collect();
        assert_eq!(replicas, walk[..3]);
        assert_eq!(ring.owners(shard, 100).count(), 8);
    }
}

#[test]
fn members_of_equal_weight_own_similar_shares() {
    let shares = shares_of(&[1; 16]);
    let most = shares.values().fold(0.0_f64, |most, &share| most.max(share));
    assert!(most < 1.35 / 16.0, "the fullest of 16 owns {most}");
    assert_eq!(shares.len(), 16);
}

fn shares_of(weights: &[u32]) -> HashMap<String, f64> {
    let ring = ring(weights);
    shares(&ring).into_iter().map(|(id, share)| (id.to_owned(), share)).collect()
}

#[test]
fn shares_follow_weights_at_any_unit() {
    for unit in [1, 7, 1_000, 250_000] {
        let weights = [unit, 2 * unit, 4 * unit];
        let shares = shares_of(&weights);
        for (index, weight) in weights.into_iter().enumerate() {
            let ideal = f64::from(weight) / f64::from(7 * unit);
            let share = shares[&format!("node-{index}")];
            assert!((0.75..1.3).contains(&(share / ideal)), "unit {unit}: {share} for {ideal}");
        }
    }
}

/// Returns the share of all shards that move when `newcomer` joins `weights`. Fails if a shard
/// moves to another member than the new one.
fn moved_to_newcomer(weights: &[u32], newcomer: u32) -> f64 {
    let before = ring(weights);
    let mut all = members(weights);
    all.push(member("newcomer", newcomer));
    let after = Ring::new(2, all).unwrap();
    let moved = shards(20_000).filter(|&shard| {
        let (old, new) = (before.owner(shard), after.owner(shard));
        assert!(old == new || new.id == "newcomer", "{} to {}", old.id, new.id);
        old != new
    });
    moved.count() as f64 / 20_000.0
}

#[test]
fn joining_member_takes_its_share_and_nothing_else_moves() {
    for (weights, newcomer) in
        [(&[1; 15][..], 1), (&[1; 15], 2), (&[8, 8, 12, 16], 8), (&[512, 512, 768], 640)]
    {
        let ideal = f64::from(newcomer) / f64::from(weights.iter().sum::<u32>() + newcomer);
        let moved = moved_to_newcomer(weights, newcomer);
        assert!((0.7..1.4).contains(&(moved / ideal)), "{moved} moved, ideal is {ideal}");
    }
}

#[test]
fn next_on_the_walk_inherits_when_a_member_leaves() {
    let all = members(&[1; 8]);
    let before = Ring::new(1, all.clone()).unwrap();
    let after = Ring::new(2, all.into_iter().filter(|m| m.id != "node-3").collect()).unwrap();
    for shard in shards(5_000) {
        let left: Vec<_> = before.walk(shard).filter(|m| m.id != "node-3").collect();
        assert!(left.into_iter().eq(after.walk(shard)));
    }
}

#[test]
fn the_order_in_which_members_are_listed_does_not_matter() {
    let mut listed = members(&[3, 1, 4, 1, 5, 9, 2, 6]);
    let one = Ring::new(1, listed.clone()).unwrap();
    listed.reverse();
    listed.swap(1, 4);
    let other = Ring::new(1, listed).unwrap();
    assert_eq!(one.digest(), other.digest());
    assert_eq!(one.members(), other.members());
    for shard in shards(1_000) {
        assert!(one.walk(shard).eq(other.walk(shard)));
    }
}

#[test]
fn addresses_and_versions_do_not_affect_placement() {
    let mut moved = members(&[1, 2, 3]);
    moved[1].control = "http://10.0.0.9:1".to_owned();
    moved[1].host = "elsewhere".to_owned();
    assert_eq!(Ring::new(9, moved).unwrap().digest(), ring(&[1, 2, 3]).digest());
    assert_ne!(ring(&[1, 2, 4]).digest(), ring(&[1, 2, 3]).digest());
}

#[test]
fn placement_is_the_same_in_every_build() {
    // A change here moves every shard of every cluster: it needs a plan, not a new number.
    let ring = ring(&[1, 1, 2, 3]);
    assert_eq!(format!("{:016x}", ring.digest()), "83d9e5e52fcad9c7");
    let owners: Vec<_> = shards(12).map(|shard| ring.owner(shard).id.clone()).collect();
    assert_eq!(owners.join(" ").replace("node-", ""), "1 2 3 3 1 1 3 2 0 1 3 3");
}

#[test]
fn refuses_invalid_member_lists() {
    let refused = |members: Vec<Member>| {
        let error = Ring::new(1, members).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    let changed = |change: fn(&mut Member)| {
        let mut list = members(&[1, 1]);
        change(&mut list[1]);
        refused(list)
    };
    assert!(refused(Vec::new()).contains("at least one member"));
    assert!(refused(members(&[1; limits::RING_MEMBERS_MAX + 1])).contains("limit is 1024"));
    assert!(changed(|m| m.weight = 0).contains("weight 0"));
    assert!(changed(|m| m.weight = u32::MAX).contains("weight 4294967295"));
    assert!(changed(|m| m.id = "node-0".to_owned()).contains("names must differ"));
    assert!(changed(|m| m.control = "http://node-0.example:7070".to_owned()).contains("share"));
    for id in ["", "a b", "a/b", "é", &"x".repeat(65)] {
        let mut list = members(&[1]);
        list[0].id = id.to_owned();
        assert!(refused(list).contains("member id"));
    }
    for control in [
        "",
        "node:7070",
        "http://node",
        "ftp://node:1",
        "http://node:0",
        "http://n:1/x",
        "http://user@n:1",
        "http://:1",
    ] {
        let mut list = members(&[1]);
        list[0].control = control.to_owned();
        assert!(refused(list).contains("not http://host:port"), "{control}");
    }
    assert!(changed(|m| m.host.clear()).contains("host name"));
    assert!(changed(|m| m.zone = "z".repeat(65)).contains("zone"));
    assert!(changed(|m| m.zone = "rack 1".to_owned()).contains("zone"));
}

#[test]
fn the_largest_ring_with_the_most_uneven_weights_is_built() {
    let mut weights = vec![1; limits::RING_MEMBERS_MAX];
    weights[7] = limits::RING_WEIGHT_MAX;
    let ring = ring(&weights);
    assert_eq!(ring.walk(ShardId::from_bytes([3; 16])).count(), limits::RING_MEMBERS_MAX);
    assert_eq!(ring.member("node-7").unwrap().weight, limits::RING_WEIGHT_MAX);
    assert!(ring.member("node-9999").is_none());
}

#[test]
fn the_next_ring_keeps_the_unit_of_weights_while_it_fits() {
    let before = ring(&[4; 8]);
    assert_eq!(before.scheme().unit, 4);
    for (weights, unit) in [(&[2; 8][..], 4), (&[16; 8], 4), (&[17; 8], 16), (&[1; 8], 1)] {
        let next = before.next(members(weights)).unwrap();
        assert_eq!((next.version(), next.scheme().unit), (2, unit), "{weights:?}");
    }
    let kept = before.next(members(&[7; 8])).unwrap();
    let told = Ring::with_scheme(2, members(&[7; 8]), Scheme::one_replica(4)).unwrap();
    assert_eq!(kept.digest(), told.digest());
    assert_ne!(kept.digest(), Ring::new(2, members(&[7; 8])).unwrap().digest());
}

#[test]
fn a_unit_that_would_make_too_many_points_is_refused() {
    for unit in [0, 1, 3, 1_024, u32::MAX] {
        let scheme = Scheme::one_replica(unit);
        let error = Ring::with_scheme(1, members(&[100; 4]), scheme).unwrap_err();
        assert!(error.to_string().contains("units of"), "{error}");
    }
    assert!(Ring::with_scheme(1, members(&[100; 4]), Scheme::one_replica(32)).is_ok());
}

#[test]
fn next_ring_keeps_the_replica_count() {
    let ring = ring(&[1; 5]);
    let one = ring.digest();
    assert_eq!(ring.replicas(), 1);
    let ring = ring.with_replicas(3).unwrap();
    assert_ne!(ring.digest(), one, "another placement has another digest");
    assert_eq!(ring.next(members(&[1; 6])).unwrap().replicas(), 3);
    for replicas in [0, 9, 255] {
        let error = ring.clone().with_replicas(replicas).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("1 to 8"), "{error}");
    }
}

#[test]
fn refuses_schemes_without_unit_or_replicas() {
    for (unit, replicas) in [(0, 1), (u32::MAX, 1), (1, 0), (1, 16), (1, u8::MAX)] {
        let scheme = Scheme { unit, replicas };
        assert!(Ring::with_scheme(1, members(&[1]), scheme).is_err(), "{scheme:?}");
    }
}

/// Makes members in the zones and on the hosts named, as in "west/one".
fn placed(places: &[&str]) -> Ring {
    let mut all = members(&vec![1; places.len()]);
    for (member, place) in all.iter_mut().zip(places) {
        let (zone, host) = place.split_once('/').unwrap();
        (member.zone, member.host) = (zone.to_owned(), host.to_owned());
    }
    Ring::new(1, all).unwrap()
}

#[test]
fn replicas_are_spread_over_zones_then_hosts_then_members() {
    let places = ["a/1", "a/1", "a/2", "a/3", "b/1", "b/1", "c/1", "c/2", "c/2"];
    let ring = placed(&places);
    let distinct = |words: Vec<String>| words.into_iter().collect::<HashSet<_>>().len();
    for shard in shards(3_000) {
        assert_eq!(ring.owners(shard, 1).next(), ring.walk(shard).next());
        for count in 1..=8 {
            let chosen: Vec<&Member> = ring.owners(shard, count).collect();
            assert_eq!(chosen[0], ring.owner(shard));
            let of =
                |word: fn(&Member) -> String| distinct(chosen.iter().map(|m| word(m)).collect());
            assert_eq!(of(|m| m.zone.clone()), count.min(3));
            assert_eq!(of(|m| format!("{}/{}", m.zone, m.host)), count.min(6));
            assert_eq!(of(|m| m.id.clone()), count);
        }
    }
}

#[test]
fn sharing_a_host_changes_the_digest_and_names_of_hosts_do_not() {
    let digest = |places: &[&str]| placed(places).digest();
    assert_eq!(digest(&["/1", "/2", "/3"]), digest(&["/x", "/y", "/z"]));
    assert_eq!(digest(&["/1", "/1", "/3"]), digest(&["/x", "/x", "/z"]));
    assert_ne!(digest(&["/1", "/2", "/3"]), digest(&["/1", "/1", "/3"]));
    assert_ne!(digest(&["a/1", "a/2", "a/3"]), digest(&["a/1", "b/2", "a/3"]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lookup_and_walk_agree_on_any_ring(
        weights in prop::collection::vec(1..1_000_u32, 1..24),
        ids in prop::collection::vec(any::<[u8; 16]>(), 50),
    ) {
        let ring = ring(&weights);
        for shard in ids.into_iter().map(ShardId::from_bytes) {
            let walk: Vec<_> = ring.walk(shard).map(|member| &member.id).collect();
            prop_assert_eq!(&ring.owner(shard).id, walk[0]);
            prop_assert_eq!(walk.iter().collect::<HashSet<_>>().len(), weights.len());
            prop_assert_eq!(walk.len(), weights.len());
        }
    }
}
