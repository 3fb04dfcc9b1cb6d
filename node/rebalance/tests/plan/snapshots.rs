//! Several snapshots in one plan.

use fastrand::Rng;
use larder_base::{Placement, SnapshotId};
use larder_rebalance::{Change, SizedShard, Snapshot, Step, plan};

use crate::support::{Sizes, ring, shards, stranger};

fn id(number: u8) -> SnapshotId {
    SnapshotId::from_bytes([number; 32])
}

fn unplaced(number: u8, shards: &[SizedShard]) -> Snapshot<'_> {
    Snapshot { id: id(number), shards, present: None }
}

#[test]
fn shared_shards_have_equal_owners_in_both_snapshots() {
    let mut rng = Rng::with_seed(1);
    let ring = ring((0..16).map(|_| stranger(&mut rng, 1)).collect());
    let all = shards(&mut rng, 1_500, Sizes::Mixed);
    let (old, new) = (&all[..1_000], &all[500..]);
    let change = |ring: &larder_base::Ring, steps| Change {
        ring_version: ring.version(),
        steps,
        replicas: None,
        at_once: false,
    };
    let first = plan(&ring, change(&ring, vec![]), &[unplaced(2, new), unplaced(1, old)]).unwrap();
    let agree = |first: &Placement, second: &Placement| {
        all[500..1_000].iter().all(|shard| first.owners(shard.id) == second.owners(shard.id))
    };
    let [one, two] = first.snapshots() else { panic!("two snapshots") };
    assert_eq!((one.snapshot, two.snapshot), (id(1), id(2)));
    assert!(agree(&one.placement, &two.placement));
    assert!(one.summary.is_even() && two.summary.is_even());

    let steps = vec![Step::Add(stranger(&mut rng, 1))];
    let placed = |number, shards, placement| Snapshot {
        present: Some(placement),
        ..unplaced(number, shards)
    };
    let snapshots = [placed(1, old, &one.placement), placed(2, new, &two.placement)];
    let second = plan(first.next(), change(first.next(), steps), &snapshots).unwrap();
    let [one, two] = second.snapshots() else { panic!("two snapshots") };
    assert!(agree(&one.placement, &two.placement));
    let moved = |shard: &SizedShard| two.moves.iter().any(|each| each.shard == shard.id);
    assert!(!all[500..1_000].iter().any(moved), "moved by the first snapshot already");
    assert!(two.summary.is_even() && second.summary().is_even());
    assert!(second.summary().share_of_ideal().unwrap() < 1.10);
    assert_eq!(second.summary().moves, (one.moves.len() + two.moves.len()) as u64);
}

#[test]
fn snapshot_that_cannot_be_placed_is_refused() {
    let mut rng = Rng::with_seed(1);
    let ring = ring((0..4).map(|_| stranger(&mut rng, 1)).collect());
    let shards = shards(&mut rng, 10, Sizes::Equal);
    let refused = |snapshots: &[Snapshot<'_>]| {
        let change = Change { ring_version: 1, steps: Vec::new(), replicas: None, at_once: false };
        plan(&ring, change, snapshots).unwrap_err().to_string()
    };
    assert!(refused(&[unplaced(1, &shards), unplaced(1, &shards)]).contains("named twice"));
    let huge = [SizedShard { bytes: u64::MAX, ..shards[0] }; 2];
    assert!(refused(&[unplaced(1, &huge)]).contains("too many"));
    let other = std::sync::Arc::new(ring.next(ring.members().to_vec()).unwrap());
    let elsewhere = Placement::of_ring(other);
    let snapshot = Snapshot { present: Some(&elsewhere), ..unplaced(1, &shards) };
    assert!(refused(&[snapshot]).contains("another ring"));
    let change = Change { ring_version: 1, steps: Vec::new(), replicas: None, at_once: false };
    let none = plan(&ring, change, &[unplaced(1, &[])]).unwrap();
    assert_eq!((none.summary().shards, none.summary().skew()), (0, 0.0));
    assert!(none.summary().is_even());
}
