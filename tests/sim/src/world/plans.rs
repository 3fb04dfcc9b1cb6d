//! The checks of plans, and of the placements they lead to.

use std::{collections::BTreeSet, rc::Rc, time::Duration};

use larder_membership::{
    BlobId, Record, RingPlan,
    agent::{RingOf, Shard},
    plan::edited,
};

use super::{Place, Placed, ShardNo, World};
use crate::placed::committed;

/// The longest time from the planner's question to the record: an operator looks at a plan for
/// twenty seconds, and an agent tries for a minute to begin it.
const PLANNING: Duration = Duration::from_secs(100);

impl World {
    /// Checks that a plan names the shards that have to move, and no others.
    pub(super) fn check_plan(&mut self, before: &Record, record: &Record, id: BlobId) {
        self.check_all_are_there(record);
        let Some(plan) = self.plan_of(id) else {
            return self.wrong(format!("plan {id} is not there"));
        };
        if plan.base > record.version {
            return self.wrong(format!("a plan for ring {}, not yet there", plan.base));
        }
        let target = RingOf {
            version: record.version + 1,
            members: edited(&record.ring_members(), &plan.edits),
            scheme: plan.scheme,
            placement: plan.target,
        };
        let to = match self.placed(&target) {
            Ok(placed) => placed,
            Err(why) => return self.wrong(format!("the plan leads to no ring: {why}")),
        };
        let Some(from) = self.checks.ring(record.version).map(|ring| Rc::clone(&ring.placed))
        else {
            return;
        };
        let was = before.change.as_ref().map_or(before.scheme, |change| change.scheme).replicas;
        if (plan.scheme.replicas == was) == plan.edits.is_empty() {
            self.wrong(format!("a plan for {} copies of each shard", plan.scheme.replicas));
        }
        self.check_copies(&to, usize::from(plan.scheme.replicas).min(target.members.len()));
        self.check_moves(&plan, &from, &to);
    }

    /// Checks that every shard has its number of owners, and that they keep apart.
    fn check_copies(&mut self, placed: &Placed, copies: usize) {
        let planned = (0..self.shards.len()).filter(|shard| self.was_open(*shard));
        let few = planned.into_iter().find(|shard| placed.owners(*shard).len() != copies);
        if let Some(shard) = few {
            let owners = placed.owners(shard).len();
            self.wrong(format!("shard {shard} is to have {owners} owners, not {copies}"));
        }
        if !placed.keeps_apart {
            self.wrong("copies stand closer together than they have to");
        }
    }

    /// Whether planners certainly knew the shard's snapshot.
    fn was_open(&self, shard: ShardNo) -> bool {
        let early = self.shards[shard].of + 1 < self.snapshots.len().max(2);
        early || self.now > self.scene.opened + PLANNING
    }

    /// Checks that moves are the difference of two placements, each from a node with a copy.
    fn check_moves(&mut self, plan: &RingPlan, from: &Placed, to: &Placed) {
        let planned = (0..self.shards.len()).filter(|shard| self.was_open(*shard));
        let new = |shard: ShardNo| {
            let owners = to.owners(shard).iter().filter(move |to| !from.owns(**to, shard));
            owners.map(move |to| (shard, *to))
        };
        let mut due: BTreeSet<(ShardNo, Place)> = planned.flat_map(new).collect();
        for step in &plan.moves {
            let shard = self.by_id[&Shard { snapshot: step.snapshot, shard: step.shard }];
            let Some(receiver) = self.place_of(plan.name(step.to)) else {
                continue;
            };
            if !due.remove(&(shard, receiver)) && self.was_open(shard) {
                return self.wrong(format!("the plan moves shard {shard}, which need not move"));
            }
            let giver = step.from.and_then(|from| self.place_of(plan.name(from)));
            let from_there = giver
                .is_none_or(|giver| from.owns(giver, shard) && to.owns(giver, shard) == step.stays);
            if !from_there {
                return self
                    .wrong(format!("the plan moves shard {shard} from who does not give it"));
            }
        }
        // Where shards get more owners, a change waits only for the primary owner.
        let adds = |shard: ShardNo| to.owners(shard).len() > from.owners(shard).len();
        due.retain(|(shard, place)| !adds(*shard) || to.owners(*shard)[0] == *place);
        if let Some((shard, place)) = due.first() {
            self.wrong(format!("the plan does not move shard {shard} to n{place}"));
        }
    }

    /// Checks that survivors keep their shards at a death, since its commit waits for no moves.
    pub(super) fn check_survivors(&mut self, before: &Record, after: &Record) {
        let Some(owned) = self.checks.ring(before.version).map(|ring| Rc::clone(&ring.placed))
        else {
            return;
        };
        // An impossible ring is reported when it is taken.
        let Ok(owns) = self.placed(&committed(after)) else {
            return;
        };
        let stays = |place: Place| {
            let entry = after.entry(&self.nodes[place].id);
            entry.is_some_and(|entry| entry.state.in_ring())
        };
        for shard in 0..self.shards.len() {
            let moved = owned.owners(shard).iter().find(|o| stays(**o) && !owns.owns(**o, shard));
            if let Some(place) = moved {
                return self.wrong(format!("shard {shard} was taken from n{place}, which lives"));
            }
        }
    }

    /// Checks that a node's ring is the committed one, with its exceptions.
    pub(super) fn check_in_use(&mut self, place: Place, version: u64, placed: &Placed) {
        let truth = self.checks.ring(version);
        if truth.is_some_and(|truth| !truth.placed.agrees(placed)) {
            self.wrong(format!("n{place} goes by other owners than ring {version} has"));
        }
    }
}
