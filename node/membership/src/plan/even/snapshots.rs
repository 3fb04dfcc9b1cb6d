//! The placements of all snapshots after a change.

use std::collections::HashMap;

use larder_base::{
    Placement, ShardId, SnapshotId, limits,
    ring::{Owners, place_of},
};

use super::{
    change::MemberChange,
    draft::{Draft, UnplacedShard},
    drain_overfull::drain_overfull,
    fill::fill,
    fill_underfull::fill_underfull,
    keep::{Present, keep},
    outcome,
};
use crate::plan::Move;

/// A shard and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedShard {
    /// The shard.
    pub id: ShardId,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A snapshot to be placed.
#[derive(Debug, Clone)]
pub(super) struct Snapshot<'a> {
    pub(super) id: SnapshotId,
    /// All its shards, in any order.
    pub(super) shards: &'a [SizedShard],
    /// The placement on the present ring.
    pub(super) present: Placement,
}

/// A snapshot after the change.
pub(super) struct PlacedSnapshot {
    pub(super) placement: Placement,
    /// By the place of their shard. A shard that several snapshots share is moved by the first of
    /// them only.
    pub(super) moves: Vec<Move>,
}

/// Most bytes of a snapshot's shards, all copies together: sums of them then fit in 64 bits with
/// room to spare.
const BYTES_MAX: u64 = 1 << 60;

/// Places all snapshots, and returns them by id. An *urgent* change moves nothing between members
/// that remain.
///
/// Shards that several snapshots share get the same owners in all of them. The first snapshot, by
/// id, decides.
///
/// # Errors
/// A snapshot is named twice, or has too many shards or bytes.
pub(super) fn place(
    change: &MemberChange,
    is_urgent: bool,
    mut snapshots: Vec<Snapshot<'_>>,
) -> Result<Vec<PlacedSnapshot>, String> {
    snapshots.sort_by_key(|snapshot| snapshot.id);
    if let Some(pair) = snapshots.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(format!("snapshot {} is named twice", pair[0].id));
    }
    snapshots.iter().try_for_each(|snapshot| check(snapshot, change.next.replicas()))?;
    let mut settled = HashMap::new();
    let share = snapshots.len() > 1;
    let placed = snapshots.iter().map(|snapshot| {
        let unplaced = unplaced(snapshot, &settled);
        let (placed, decided) = place_one(change, is_urgent, snapshot, &unplaced);
        if share {
            settled.extend(unplaced.iter().map(|shard| shard.id).zip(decided));
        }
        placed
    });
    Ok(placed.collect())
}

fn check(Snapshot { id, shards, .. }: &Snapshot<'_>, replicas: usize) -> Result<(), String> {
    if shards.len() > limits::SHARDS_MAX as usize {
        return Err(format!("snapshot {id} has {} shards: too many", shards.len()));
    }
    let bytes: u128 = shards.iter().map(|shard| u128::from(shard.bytes)).sum();
    if bytes * replicas as u128 > u128::from(BYTES_MAX) {
        return Err(format!("snapshot {id} has {bytes} bytes: too many"));
    }
    Ok(())
}

/// Returns the shards of a snapshot in the order of their places, each once.
fn unplaced(snapshot: &Snapshot<'_>, settled: &HashMap<ShardId, Owners>) -> Vec<UnplacedShard> {
    let shard = |&SizedShard { id, bytes }: &SizedShard| {
        let settled = settled.get(&id).copied();
        UnplacedShard { place: place_of(id), id, bytes, settled }
    };
    let mut unplaced: Vec<UnplacedShard> = snapshot.shards.iter().map(shard).collect();
    unplaced.sort_unstable_by_key(|shard| (shard.place, shard.id));
    unplaced.dedup_by_key(|shard| shard.id);
    unplaced
}

/// Places one snapshot. Returns the owners of its lots too.
fn place_one(
    change: &MemberChange,
    is_urgent: bool,
    snapshot: &Snapshot<'_>,
    unplaced: &[UnplacedShard],
) -> (PlacedSnapshot, Vec<Owners>) {
    let present = Present::new(&snapshot.present, unplaced, &change.next);
    let mut draft = Draft::new(&change.next, unplaced);
    keep(&mut draft, &present);
    fill(&mut draft);
    if !is_urgent {
        fill_underfull(&mut draft, &change.present);
        drain_overfull(&mut draft);
    }
    let decided = outcome::decided(&draft);
    let exceptions = outcome::exceptions(&draft, &decided, snapshot.id);
    let moves = outcome::moves(change, snapshot.id, unplaced, &decided, &present);
    let placement = Placement::new(change.next.clone(), exceptions);
    let placement = placement.expect("exceptions to this ring");
    (PlacedSnapshot { placement, moves }, decided)
}
