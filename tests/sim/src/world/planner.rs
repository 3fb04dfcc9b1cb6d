//! The planner of a run, with the two bugs that can be planted in it.

use std::collections::BTreeMap;

use larder_cluster::{
    Plan, Planned, Planner,
    plan::{Move, RingOnly, Task},
};

use super::{SNAPSHOT, World};
use crate::bugs::Mishap;

/// Bytes of a shard.
pub(super) const SHARD_BYTES: u64 = 64 << 20;

impl World {
    pub(super) fn plan(&mut self, task: &Task) -> Result<Planned, String> {
        let shards = self.shards.iter().map(|id| (SNAPSHOT, *id, SHARD_BYTES)).collect();
        let planned = RingOnly { shards }.plan(task, None)?;
        let mut plan = Plan::decode(&planned.plan).map_err(|why| why.to_string())?;
        if self.planted.world(Mishap::PlanForgetsAShard) {
            plan.moves.pop();
        } else if self.planted.world(Mishap::PlanMovesTooMuch) {
            self.move_too_much(&mut plan);
        } else {
            return Ok(planned);
        }
        Ok(Planned { plan: plan.encode(), placement: None })
    }

    /// Adds a move between two that nothing has to move between.
    fn move_too_much(&mut self, plan: &mut Plan) {
        let moved: BTreeMap<_, _> = plan.moves.iter().map(|step| (step.shard, ())).collect();
        let still = self.shards.iter().find(|shard| !moved.contains_key(*shard));
        if let Some(shard) = still
            && plan.names.len() > 1
        {
            let step = Move {
                snapshot: SNAPSHOT,
                shard: *shard,
                bytes: SHARD_BYTES,
                from: Some(0),
                to: 1,
                stays: false,
            };
            plan.moves.push(step);
        }
    }
}
