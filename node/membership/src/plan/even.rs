//! The planner of a cluster: from the placement in place to an even one, with the fewest bytes
//! moved.
//!
//! **Even** means: no member holds more than 1.10 times its *share* of a snapshot's bytes
//! ([`SKEW_PERCENT_MAX`]). Shares follow the weights, within the bounds that replicas set: no
//! member holds a shard twice, and no zone or host does while there are enough of them. Where
//! shards are too large for their number, the plan comes as near as single moves can.
//!
//! **Ideal** is the fewest bytes that a change moves if placement is perfectly even before and
//! after: the growth of all shares that grow, added up. A node that joins `n` equal nodes takes one
//! (n+1)-th of the bytes; one that leaves `n` gives one n-th.
//!
//! Each snapshot is planned by itself. The shard's place and the member's index break all ties:
//!
//! 1. *Keep*: a copy stays, unless its holder leaves or copies would be too close.
//! 2. *Fill*: a copy without a holder goes to the owner by the next ring's walk, while that stays
//!    below 1.05 of its share; else to the emptiest member.
//! 3. *Raise*: a new or heavier member takes shards up to its share. Those that the walk gives it
//!    come first, then shards of the fullest members.
//! 4. *Shed*: a member above 1.10 of its share gives shards away until it is not.
//!
//! So only the fourth step moves shards between members that the change does not name. An *urgent*
//! change leaves out the third and fourth step, as it does not wait for moves: it is as even as
//! fills make it. Of shards that would serve alike, the plan moves those that the walk places
//! elsewhere, so that exceptions heal along the way.
//!
//! - A member that leaves by a planned change hands its shards over. A member that leaves by an
//!   urgent change is gone.
//! - A snapshot has no table if the walk of the ring gives every owner.
//! - Targets take turns in the list of moves, so that all work from the start. Each pulls one
//!   snapshot after the other, in the order of the ring.
//! - Where a change adds owners to shards, the plan leaves out the added replicas. They follow
//!   after the change, for shards that clients read and where there is room.
//!
//! Deterministic: planners that know the same snapshots make the same plan of the same task.
//!
//! Thread rule: pure functions of their arguments. Non-goals: rates and times; judgement of which
//! members are alive.

mod change;
mod draft;
mod drain_overfull;
mod fill;
mod fill_underfull;
mod keep;
mod outcome;
mod shares;
mod snapshots;

use std::collections::HashMap;

use larder_base::{Placement, SnapshotId, limits, placement::Exceptions};

use super::{Move, PlanBlobs, Planner, RingPlan, Tables, Task};
use crate::BlobId;
use change::MemberChange;
use snapshots::{PlacedSnapshot, Snapshot, place};

pub use snapshots::SizedShard;

/// Most bytes that a member may hold, in percent of its share.
const SKEW_PERCENT_MAX: u64 = 110;

/// Plans by the sizes of all shards.
#[derive(Debug, Clone)]
pub struct EvenPlanner {
    /// The snapshots to be placed, in any order, and all their shards. A snapshot in place that is
    /// not listed loses its table: it follows the walk of the next ring.
    pub snapshots: Vec<(SnapshotId, Vec<SizedShard>)>,
}

impl EvenPlanner {
    /// Returns the snapshots with their placements in place.
    fn in_place(
        &self,
        change: &MemberChange,
        task: &Task,
        placement: Option<&[u8]>,
    ) -> Result<Vec<Snapshot<'_>>, String> {
        let (count, max) = (self.snapshots.len(), limits::RECORD_DATASETS_MAX);
        if count > max {
            return Err(format!("{count} snapshots are to be placed, the limit is {max}"));
        }
        let tables = tables_in_place(task, placement)?;
        let placed = self.snapshots.iter().map(|(id, shards)| {
            let ring = change.present.clone();
            let present = match tables.get(*id) {
                Some(table) => {
                    Placement::new(ring, table.clone()).map_err(|why| why.to_string())?
                }
                None => Placement::of_ring(ring),
            };
            Ok(Snapshot { id: *id, shards, present })
        });
        placed.collect()
    }
}

impl Planner for EvenPlanner {
    fn plan(&self, task: &Task, placement: Option<&[u8]>) -> Result<PlanBlobs, String> {
        let change = MemberChange::of(task)?;
        let placed = place(&change, task.urgent, self.in_place(&change, task, placement)?)?;
        let placement = tables_of(&placed)?;
        let plan = RingPlan {
            base: task.base,
            edits: task.edits.clone(),
            scheme: change.next.scheme(),
            target: placement.as_deref().map(BlobId::of),
            names: change.names,
            moves: in_turns(placed),
        };
        let (count, plan) = (plan.moves.len(), plan.encode());
        let (bytes, max) = (plan.len(), limits::BLOB_BYTES_MAX);
        if bytes > max {
            return Err(format!(
                "a plan of {count} moves takes {bytes} bytes, the limit is {max}: change fewer \
                 members at a time"
            ));
        }
        Ok(PlanBlobs { plan, placement })
    }
}

/// Decodes the tables that the task names.
fn tables_in_place(task: &Task, placement: Option<&[u8]>) -> Result<Tables, String> {
    if placement.map(BlobId::of) != task.placement {
        return Err(format!(
            "the exceptions in place at ring {} are not at hand; try again when they are",
            task.base
        ));
    }
    placement.map_or(Ok(Tables::default()), Tables::decode).map_err(|why| why.to_string())
}

/// Returns the exceptions that a plan leads to, as bytes; none when the ring alone decides.
fn tables_of(placed: &[PlacedSnapshot]) -> Result<Option<Vec<u8>>, String> {
    let tables = placed.iter().filter_map(|snapshot| snapshot.placement.exceptions());
    let tables: Vec<_> = tables.filter(|table| !table.is_empty()).cloned().collect();
    if tables.is_empty() {
        return Ok(None);
    }
    let count: usize = tables.iter().map(Exceptions::len).sum();
    let encoded = Tables::new(tables).map_err(|why| why.to_string())?.encode();
    let (bytes, max) = (encoded.len(), limits::BLOB_BYTES_MAX);
    if bytes > max {
        return Err(format!(
            "{count} exceptions take {bytes} bytes, the limit is {max}: index datasets with \
             larger shards, or give members weights nearer to those they had"
        ));
    }
    Ok(Some(encoded))
}

/// Returns all moves in the order in which they are to be made.
fn in_turns(placed: Vec<PlacedSnapshot>) -> Vec<Move> {
    let mut turns = HashMap::new();
    let moves = placed.into_iter().flat_map(|snapshot| snapshot.moves);
    let mut moves: Vec<(u32, Move)> = moves
        .map(|each| {
            let turn = turns.entry(each.to).or_insert(0);
            *turn += 1;
            (*turn, each)
        })
        .collect();
    moves.sort_by_key(|(turn, each)| (*turn, each.to));
    moves.into_iter().map(|(_, each)| each).collect()
}

#[cfg(test)]
mod tests;
