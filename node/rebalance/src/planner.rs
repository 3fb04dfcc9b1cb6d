//! The plan of a change, snapshot by snapshot.

use std::{collections::HashMap, sync::Arc};

use larder_base::{
    Error, ErrorKind, Placement, Ring, ShardId, SnapshotId,
    placement::Exceptions,
    ring::{Owners, place_of},
};

use crate::{
    Change, Plan, SnapshotPlan,
    draft::{Draft, UnplacedShard},
    drain_overfull::drain_overfull,
    fill::fill,
    fill_underfull::fill_underfull,
    keep::{Present, keep},
    outcome,
};

/// A shard and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedShard {
    /// Which shard.
    pub id: ShardId,
    /// How large it is.
    pub bytes: u64,
}

/// A snapshot that is to be placed.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// Which snapshot.
    pub id: SnapshotId,
    /// All its shards, in any order.
    pub shards: &'a [SizedShard],
    /// What is in place; `None` when it was never placed, so that there is nothing to move.
    pub present: Option<&'a Placement>,
}

/// Most bytes of a snapshot's shards, all copies together: sums of them then fit in 64 bits with
/// room to spare.
const BYTES_MAX: u64 = 1 << 60;

/// The plan for `change` on `ring`.
///
/// Shards that several snapshots share get the same owners in all of them, which the first (by id)
/// decides.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the change can't be taken on this ring, when a present placement
/// is not on it, when a snapshot is named twice, or has too many shards or bytes.
pub fn plan(ring: &Arc<Ring>, change: Change, snapshots: &[Snapshot<'_>]) -> Result<Plan, Error> {
    let next = Arc::new(change.apply(ring)?);
    let mut sorted = snapshots.to_vec();
    sorted.sort_by_key(|snapshot| snapshot.id);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(invalid(format!("snapshot {} is named twice", pair[0].id)));
    }
    let digest = ring.digest();
    for snapshot in &sorted {
        check(snapshot, ring, digest, next.replicas())?;
    }
    let mut settled = HashMap::new();
    let share = sorted.len() > 1;
    let plans = sorted.iter().map(|snapshot| {
        let unplaced = unplaced(snapshot, &settled);
        let (plan, decided) = plan_one(&next, ring, &change, snapshot, &unplaced);
        if share {
            settled.extend(unplaced.iter().map(|shard| shard.id).zip(decided));
        }
        plan
    });
    let plans = plans.collect();
    Ok(Plan::new(change, ring.clone(), next, plans))
}

fn check(snapshot: &Snapshot<'_>, ring: &Ring, digest: u64, replicas: usize) -> Result<(), Error> {
    let (Snapshot { id, shards, present }, version) = (snapshot, ring.version());
    if shards.len() > larder_base::limits::SHARDS_MAX as usize {
        return Err(invalid(format!("snapshot {id} has {} shards: too many", shards.len())));
    }
    let bytes: u128 = shards.iter().map(|shard| u128::from(shard.bytes)).sum();
    if bytes * replicas as u128 > u128::from(BYTES_MAX) {
        return Err(invalid(format!("snapshot {id} has {bytes} bytes: too many")));
    }
    let here = |ring: &Ring| ring.version() == version && ring.digest() == digest;
    if present.is_some_and(|present| !here(present.ring())) {
        return Err(invalid(format!("snapshot {id} is placed on another ring than {version}")));
    }
    Ok(())
}

/// The shards of a snapshot in the order of their places, each once.
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

/// The plan of one snapshot, and the owners of its unplaced.
fn plan_one(
    next: &Arc<Ring>,
    ring: &Ring,
    change: &Change,
    snapshot: &Snapshot<'_>,
    unplaced: &[UnplacedShard],
) -> (SnapshotPlan, Vec<Owners>) {
    let present = snapshot.present.map(|placement| Present::new(placement, unplaced, next));
    let mut draft = Draft::new(next, unplaced);
    keep(&mut draft, present.as_ref());
    fill(&mut draft);
    if !change.at_once {
        fill_underfull(&mut draft, ring);
        drain_overfull(&mut draft);
    }

    let decided = outcome::decided(&draft);
    let exceptions = outcome::exceptions(&draft, &decided, snapshot.id);
    let moves = present
        .as_ref()
        .map(|present| outcome::moves(unplaced, &decided, present, change))
        .unwrap_or_default();
    let before = snapshot.present.and_then(Placement::exceptions).map_or(0, Exceptions::len);
    let counted = (before as u64, exceptions.len() as u64);
    let summary = outcome::summary(draft, present.as_ref(), &moves, counted);
    let placement = Placement::new(next.clone(), exceptions).expect("exceptions to this ring");
    (SnapshotPlan { snapshot: snapshot.id, placement, moves, summary }, decided)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
