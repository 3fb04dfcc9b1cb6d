//! The plan of a change, snapshot by snapshot.

use std::{collections::HashMap, sync::Arc};

use larder_base::{
    Error, ErrorKind, Placement, Ring, ShardId, SnapshotId,
    placement::Exceptions,
    ring::{Owners, place_of},
};

use crate::{
    Change, Plan, SnapshotPlan,
    board::{Board, Lot},
    fill::fill,
    keep::{Present, keep},
    outcome,
    raise::raise,
    shed::shed,
};

/// A shard and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedShard {
    /// The shard.
    pub id: ShardId,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A snapshot to be placed.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The snapshot.
    pub id: SnapshotId,
    /// All its shards, in any order.
    pub shards: &'a [SizedShard],
    /// The present placement; `None` when the snapshot was never placed, so nothing moves.
    pub present: Option<&'a Placement>,
}

/// Most bytes of a snapshot's shards, all copies together: sums of them then fit in 64 bits with
/// room to spare.
const BYTES_MAX: u64 = 1 << 60;

/// Returns the plan for `change` on `ring`.
///
/// Shards that several snapshots share get the same owners in all of them. The first snapshot, by
/// id, decides.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the change cannot be taken on this ring, when a present
/// placement is not on it, when a snapshot is named twice, or has too many shards or bytes.
pub fn plan(ring: &Arc<Ring>, change: Change, snapshots: &[Snapshot<'_>]) -> Result<Plan, Error> {
    let next = Arc::new(change.apply(ring)?);
    let mut sorted = snapshots.to_vec();
    sorted.sort_by_key(|snapshot| snapshot.id);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(invalid(format!("snapshot {} is named twice", pair[0].id)));
    }
    let digest = ring.digest();
    for snapshot in &sorted {
        check(snapshot, ring, digest, next.copies())?;
    }
    let mut settled = HashMap::new();
    let share = sorted.len() > 1;
    let plans = sorted.iter().map(|snapshot| {
        let lots = lots(snapshot, &settled);
        let (plan, decided) = plan_one(&next, ring, &change, snapshot, &lots);
        if share {
            settled.extend(lots.iter().map(|lot| lot.id).zip(decided));
        }
        plan
    });
    let plans = plans.collect();
    Ok(Plan::new(change, ring.clone(), next, plans))
}

fn check(snapshot: &Snapshot<'_>, ring: &Ring, digest: u64, copies: usize) -> Result<(), Error> {
    let (Snapshot { id, shards, present }, version) = (snapshot, ring.version());
    if shards.len() > larder_base::limits::SHARDS_MAX as usize {
        return Err(invalid(format!("snapshot {id} has {} shards: too many", shards.len())));
    }
    let bytes: u128 = shards.iter().map(|shard| u128::from(shard.bytes)).sum();
    if bytes * copies as u128 > u128::from(BYTES_MAX) {
        return Err(invalid(format!("snapshot {id} has {bytes} bytes: too many")));
    }
    let here = |ring: &Ring| ring.version() == version && ring.digest() == digest;
    if present.is_some_and(|present| !here(present.ring())) {
        return Err(invalid(format!("snapshot {id} is placed on another ring than {version}")));
    }
    Ok(())
}

/// Returns the shards of a snapshot in the order of their places, each once.
fn lots(snapshot: &Snapshot<'_>, settled: &HashMap<ShardId, Owners>) -> Vec<Lot> {
    let lot = |&SizedShard { id, bytes }: &SizedShard| {
        let settled = settled.get(&id).copied();
        Lot { place: place_of(id), id, bytes, settled }
    };
    let mut lots: Vec<Lot> = snapshot.shards.iter().map(lot).collect();
    lots.sort_unstable_by_key(|lot| (lot.place, lot.id));
    lots.dedup_by_key(|lot| lot.id);
    lots
}

/// Returns the plan of one snapshot, and the owners of its lots.
fn plan_one(
    next: &Arc<Ring>,
    ring: &Ring,
    change: &Change,
    snapshot: &Snapshot<'_>,
    lots: &[Lot],
) -> (SnapshotPlan, Vec<Owners>) {
    let present = snapshot.present.map(|placement| Present::new(placement, lots, next));
    let mut board = Board::new(next, lots);
    keep(&mut board, present.as_ref());
    fill(&mut board);
    if !change.at_once {
        raise(&mut board, ring);
        shed(&mut board);
    }

    let decided = outcome::decided(&board);
    let exceptions = outcome::exceptions(&board, &decided, snapshot.id);
    let moves = present
        .as_ref()
        .map(|present| outcome::moves(lots, &decided, present, change))
        .unwrap_or_default();
    let before = snapshot.present.and_then(Placement::exceptions).map_or(0, Exceptions::len);
    let counted = (before as u64, exceptions.len() as u64);
    let summary = outcome::summary(board, present.as_ref(), &moves, counted);
    let placement = Placement::new(next.clone(), exceptions).expect("exceptions to this ring");
    (SnapshotPlan { snapshot: snapshot.id, placement, moves, summary }, decided)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
