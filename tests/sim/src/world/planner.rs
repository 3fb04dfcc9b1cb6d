//! The planner of a run, with its planted bugs.

use std::collections::BTreeSet;

use larder_membership::{
    PlanBlobs, Planner, RingPlan,
    plan::{EvenPlanner, Move, Task},
};

use super::{Place, World};
use crate::bugs::Mishap;

/// Bytes of a shard.
pub(super) const SHARD_BYTES: u64 = 64 << 20;

impl World {
    /// Returns a node's plan for a task, if it can have the exceptions in place.
    pub(super) fn plan(&mut self, place: Place, task: &Task) -> Result<PlanBlobs, String> {
        let placement = task.placement.map(|id| {
            let here = self.nodes[place].blobs.get(&id).map(|bytes| bytes.as_slice());
            let hub = self.network.coordinator();
            let reached = self.coordinator.up && self.network.both_ways(place, hub);
            here.or_else(|| self.coordinator.blob(id).filter(|_| reached))
                .ok_or("the exceptions in place can't be had")
        });
        let placement = placement.transpose()?;
        let opened = self.opened_snapshots();
        let known = |(past, count, _): &&(Task, usize, PlanBlobs)| past == task && *count == opened;
        if let Some((.., planned)) = self.planned.iter().find(known) {
            return Ok(planned.clone());
        }
        let planner = EvenPlanner { snapshots: self.snapshots[..opened].to_vec() };
        let mut asked = task.clone();
        asked.urgent &= !self.planted.world(Mishap::DeathMovesSurvivors);
        if self.planted.world(Mishap::OneCopyFewer) {
            asked.replicas = 1;
        }
        let planned = self.spoil(planner.plan(&asked, placement)?)?;
        self.planned.push((task.clone(), opened, planned.clone()));
        Ok(planned)
    }

    /// Spoils a plan by the planted bug, if there is one.
    fn spoil(&self, planned: PlanBlobs) -> Result<PlanBlobs, String> {
        let mut plan = RingPlan::decode(&planned.plan).map_err(|why| why.to_string())?;
        if self.planted.world(Mishap::PlanForgetsAShard) {
            plan.moves.pop();
        } else if self.planted.world(Mishap::PlanMovesTooMuch) {
            self.move_too_much(&mut plan);
        } else if self.planted.world(Mishap::KeeperGivesAway) {
            plan.moves.iter_mut().for_each(|step| step.stays = false);
        } else {
            return Ok(planned);
        }
        Ok(PlanBlobs { plan: plan.encode(), ..planned })
    }

    /// Adds a move between two nodes that need no move.
    fn move_too_much(&self, plan: &mut RingPlan) {
        let moved: BTreeSet<_> = plan.moves.iter().map(|step| step.shard).collect();
        let still = self.shards.iter().find(|known| !moved.contains(&known.shard.shard));
        if let Some(still) = still
            && plan.names.len() > 1
        {
            plan.moves.push(Move {
                snapshot: still.shard.snapshot,
                shard: still.shard.shard,
                bytes: SHARD_BYTES,
                from: Some(0),
                stays: false,
                to: 1,
            });
        }
    }
}
