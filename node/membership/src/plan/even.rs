//! The planner of a cluster: even placements with the fewest moves, by `larder-rebalance`.
//!
//! Here a [`Task`] becomes a change of a ring, and what comes of it a [`Plan`] with its [`Tables`]:
//!
//! - Who leaves by a planned change hands its shards over; who leaves an *urgent* one is gone, and
//!   nothing moves between those that stay.
//! - A snapshot has no table as long as the walk says all.
//! - Receivers take turns in the list of moves, so that all of them work from the start. Each goes
//!   snapshot by snapshot in the order of the ring.
//! - Where a change gives shards more owners than before, those that are not asked first bring
//!   their copies after it, where they have room: nobody waits for that, and what nobody reads is
//!   not brought.
//!
//! Deterministic: planners that know the same snapshots make the same plan of the same task.

use std::sync::Arc;

use larder_base::{Placement, Ring, SnapshotId, limits, placement::Exceptions};
use larder_rebalance::{Change, SizedShard, Snapshot, Step};

use super::{Edit, Move, Plan, Planned, Planner, Tables, Task};
use crate::BlobId;

/// Plans by the sizes of all shards.
#[derive(Debug, Clone)]
pub struct EvenPlanner {
    /// The snapshots to be placed, in any order, and all their shards. One that is in place and not
    /// listed here loses its table: it goes by the walk of the next ring.
    pub snapshots: Vec<(SnapshotId, Vec<SizedShard>)>,
}

/// What is in place.
struct Ground {
    ring: Arc<Ring>,
    /// The placement of each of the planner's snapshots, in their order.
    present: Vec<Placement>,
}

impl EvenPlanner {
    /// What a task comes to, with all figures: see [`larder_rebalance::Plan::summary`].
    ///
    /// # Errors
    /// A sentence that says why there is no such plan.
    pub fn work_out(
        &self,
        task: &Task,
        placement: Option<&[u8]>,
    ) -> Result<larder_rebalance::Plan, String> {
        self.decide(task, &self.ground(task, placement)?)
    }

    fn ground(&self, task: &Task, placement: Option<&[u8]>) -> Result<Ground, String> {
        let (count, max) = (self.snapshots.len(), limits::RECORD_DATASETS_MAX);
        if count > max {
            return Err(format!("{count} snapshots are to be placed, the limit is {max}"));
        }
        let ring = Ring::with_scheme(task.base, task.members.clone(), task.scheme);
        let ring = Arc::new(ring.map_err(|why| why.to_string())?);
        let tables = tables_in_place(task, placement)?;
        let present = self.snapshots.iter().map(|(id, _)| match tables.get(*id) {
            Some(table) => Placement::new(ring.clone(), table.clone()),
            None => Ok(Placement::of_ring(ring.clone())),
        });
        let present = present.collect::<Result<_, _>>();
        let present = present.map_err(|why: larder_base::Error| why.to_string())?;
        Ok(Ground { ring, present })
    }

    fn decide(&self, task: &Task, ground: &Ground) -> Result<larder_rebalance::Plan, String> {
        let step = |edit| step(edit, &ground.ring, task.urgent);
        let steps = task.edits.iter().map(step).collect();
        let replicas = (task.replicas != task.scheme.replicas).then_some(task.replicas);
        let change = Change { ring_version: task.base, steps, replicas, at_once: task.urgent };
        let placed = self.snapshots.iter().zip(&ground.present);
        let snapshots: Vec<Snapshot<'_>> = placed
            .map(|((id, shards), present)| Snapshot { id: *id, shards, present: Some(present) })
            .collect();
        larder_rebalance::plan(&ground.ring, change, &snapshots).map_err(|why| why.to_string())
    }
}

impl Planner for EvenPlanner {
    fn plan(&self, task: &Task, placement: Option<&[u8]>) -> Result<Planned, String> {
        let ground = self.ground(task, placement)?;
        let decided = self.decide(task, &ground)?;
        let placement = tables_of(&decided)?;
        let names = names(&decided);
        let moves = moves(&decided, &names);
        let plan = Plan {
            base: task.base,
            edits: task.edits.clone(),
            scheme: decided.next().scheme(),
            target: placement.as_deref().map(BlobId::of),
            names,
            moves,
        };
        let (count, plan) = (plan.moves.len(), plan.encode());
        let (bytes, max) = (plan.len(), limits::BLOB_BYTES_MAX);
        if bytes > max {
            return Err(format!(
                "a plan of {count} moves takes {bytes} bytes, the limit is {max}: change fewer \
                 members at a time"
            ));
        }
        Ok(Planned { plan, placement })
    }
}

/// The tables that the task names.
fn tables_in_place(task: &Task, placement: Option<&[u8]>) -> Result<Tables, String> {
    if placement.map(BlobId::of) != task.placement {
        return Err(format!(
            "the exceptions in place at ring {} are not at hand; try again when they are",
            task.base
        ));
    }
    placement.map_or(Ok(Tables::default()), Tables::decode).map_err(|why| why.to_string())
}

fn step(edit: &Edit, ring: &Ring, urgent: bool) -> Step {
    match edit {
        Edit::Put(member) if ring.member(&member.id).is_some() => Step::Replace(member.clone()),
        Edit::Put(member) => Step::Add(member.clone()),
        Edit::Remove(id) if urgent => Step::Remove { id: id.clone() },
        Edit::Remove(id) => Step::Drain { id: id.clone() },
    }
}

/// The exceptions that a plan leads to, as bytes; none when the ring says all.
fn tables_of(plan: &larder_rebalance::Plan) -> Result<Option<Vec<u8>>, String> {
    let tables = plan.snapshots().iter().filter_map(|part| part.placement.exceptions());
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

/// All members before and after, sorted.
fn names(plan: &larder_rebalance::Plan) -> Vec<String> {
    let members = plan.present().members().iter().chain(plan.next().members());
    let mut names: Vec<String> = members.map(|member| member.id.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// By index among a ring's members: the index among all names.
fn name_indices(ring: &Ring, names: &[String]) -> Vec<u16> {
    let index = |id: &String| names.binary_search(id).expect("names are those of all members");
    let members = ring.members().iter().map(|member| index(&member.id));
    members.map(|index| u16::try_from(index).expect("at most twice 1,024")).collect()
}

/// All moves in the order in which they are to be made.
fn moves(plan: &larder_rebalance::Plan, names: &[String]) -> Vec<Move> {
    let adds_replicas = plan.next().replicas() > plan.present().replicas();
    let (before, after) = (name_indices(plan.present(), names), name_indices(plan.next(), names));
    let mut parts: Vec<_> = plan.snapshots().iter().collect();
    parts.sort_by_key(|part| part.snapshot);
    let mut turns = vec![0_u32; names.len()];
    let mut moves = Vec::new();
    for part in parts {
        for each in &part.moves {
            let from = each.from.map(|from| before[usize::from(from)]);
            let to = after[usize::from(each.to)];
            let owners = part.placement.owners(each.shard);
            let stays = owners.iter().any(|&owner| Some(after[usize::from(owner)]) == from);
            if adds_replicas && stays && owners[0] != each.to {
                continue;
            }
            let (snapshot, shard, bytes) = (part.snapshot, each.shard, each.bytes);
            let turn = &mut turns[usize::from(to)];
            moves.push((*turn, Move { snapshot, shard, bytes, from, stays, to }));
            *turn += 1;
        }
    }
    moves.sort_by_key(|(turn, each)| (*turn, each.to));
    moves.into_iter().map(|(_, each)| each).collect()
}

#[cfg(test)]
mod tests;
