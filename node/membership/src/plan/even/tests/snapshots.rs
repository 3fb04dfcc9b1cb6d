//! Several snapshots in one plan.

use std::sync::Arc;

use fastrand::Rng;
use larder_base::{Placement, Ring, SnapshotId};

use super::{
    super::{
        SizedShard,
        snapshots::{PlacedSnapshot, Snapshot, place},
    },
    support::{Sizes, change_of, shards, stranger},
};
use crate::plan::Edit;

fn snapshot(number: u8, shards: &[SizedShard], present: Placement) -> Snapshot<'_> {
    Snapshot { id: SnapshotId::from_bytes([number; 32]), shards, present }
}

#[test]
fn shared_shards_have_equal_owners_in_both_snapshots() {
    let mut rng = Rng::with_seed(1);
    let members = (0..16).map(|_| stranger(&mut rng, 1)).collect();
    let mut ring = Arc::new(Ring::new(1, members).unwrap());
    let all = shards(&mut rng, 1_500, Sizes::Mixed);
    let (old, new) = (&all[..1_000], &all[500..]);
    let mut present = [Placement::of_ring(ring.clone()), Placement::of_ring(ring.clone())];
    for edits in [vec![], vec![Edit::Put(stranger(&mut rng, 1))]] {
        let change = change_of(&ring, &edits, false).unwrap();
        // The order in which they are given does not count.
        let snapshots =
            vec![snapshot(2, new, present[1].clone()), snapshot(1, old, present[0].clone())];
        let placed = place(&change, false, snapshots).unwrap();
        let [one, two] = &placed[..] else { panic!("two snapshots") };
        let agree =
            |shard: &SizedShard| one.placement.owners(shard.id) == two.placement.owners(shard.id);
        assert!(all[500..1_000].iter().all(agree));
        let moved = |shard: &SizedShard| two.moves.iter().any(|each| each.shard == shard.id);
        assert!(!all[500..1_000].iter().any(moved), "moved by the first snapshot already");
        let added = edits.len();
        assert!(one.moves.len() >= 40 * added && two.moves.len() >= 20 * added);
        present = [one, two].map(|placed: &PlacedSnapshot| placed.placement.clone());
        ring = change.next;
    }
}

#[test]
fn snapshot_that_cannot_be_placed_is_refused() {
    let mut rng = Rng::with_seed(1);
    let members = (0..4).map(|_| stranger(&mut rng, 1)).collect();
    let ring = Arc::new(Ring::new(1, members).unwrap());
    let shards = shards(&mut rng, 10, Sizes::Equal);
    let change = change_of(&ring, &[], false).unwrap();
    let of = |number, shards| snapshot(number, shards, Placement::of_ring(ring.clone()));
    let refused = |snapshots| place(&change, false, snapshots).err().unwrap();
    assert!(refused(vec![of(1, &shards), of(1, &shards)]).contains("named twice"));
    let huge = [SizedShard { bytes: u64::MAX, ..shards[0] }; 2];
    assert!(refused(vec![of(1, &huge)]).contains("too many"));
    assert!(place(&change, false, vec![of(1, &[])]).unwrap()[0].moves.is_empty());
}
