//! Drops old copies. A drop cannot be undone, so it has the most conditions.
//!
//! An old copy is dropped when all of these hold:
//!
//! - the ring that gives the shard to another owner is committed and in use here,
//! - the new owner announces *now* that it has everything, without gaps,
//! - no change in flight brings the shard back,
//! - the record was the newest within `drop_freshness`.
//!
//! Otherwise the copy stays. It gives way like a replica when the node needs memory.

use super::{
    Agent, Effect, Shard,
    rules::{Rule, Rules},
};
use crate::{BlobId, RingPlan, announcement::Settled};

/// Most drops that one event leads to. The next event goes on.
const DROPS_AT_ONCE_MAX: usize = 256;

/// The old copies of one plan that are still to be dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct CopyCleanup {
    plan: Option<BlobId>,
    /// Shards that move away from here, each with its target.
    left: Vec<(Shard, String)>,
}

impl CopyCleanup {
    fn follow(&mut self, id: BlobId, plan: &RingPlan, me: &str) {
        if self.plan != Some(id) {
            self.plan = Some(id);
            let from_here = plan.moves_from(me);
            let left = from_here.map(|step| {
                let shard = Shard { snapshot: step.snapshot, shard: step.shard };
                (shard, plan.name(step.to).to_owned())
            });
            self.left = left.collect();
        }
    }
}

impl<R: Rules> Agent<R> {
    pub(super) fn drop_old(&mut self, out: &mut Vec<Effect>) {
        let Some(settling) = self.plan_to_drop_by() else {
            return;
        };
        let Some(work) = self.transfers.work(settling) else {
            return;
        };
        self.cleanup.follow(settling, &work.plan, &self.me.member.id);
        let ready = self.droppable(settling);
        if ready.is_empty() {
            return;
        }
        if !self.rules.holds(Rule::DropWhenFresh, self.fresh()) {
            self.link.ask_soon();
            return;
        }
        self.cleanup.left.retain(|(shard, _)| !ready.contains(shard));
        out.extend(ready.into_iter().map(Effect::Drop));
    }

    /// Whether no old copy is left here that this plan drops. A target with gaps keeps some here.
    pub(super) fn clean(&self, plan: BlobId) -> bool {
        let CopyCleanup { plan: followed, left } = &self.cleanup;
        let stays = |to: &str| self.settled_by(to, plan).is_some_and(|settled| settled.gaps > 0);
        *followed == Some(plan) && left.iter().all(|(_, to)| stays(to))
    }

    fn plan_to_drop_by(&self) -> Option<BlobId> {
        let record = self.record()?;
        if self.rules.broken(Rule::DropAfterCommit)
            && let Some(change) = &record.change
        {
            return Some(change.plan);
        }
        let installed = self.installed >= record.version;
        record.settling.filter(|_| self.rules.holds(Rule::DropWhenInstalled, installed))
    }

    /// Returns shards that their new owner holds and no change brings back.
    fn droppable(&self, settling: BlobId) -> Vec<Shard> {
        let mut ready = Vec::new();
        for (shard, to) in &self.cleanup.left {
            if ready.len() == DROPS_AT_ONCE_MAX {
                break;
            }
            let settled = self.settled_by(to, settling);
            let verified = self.rules.holds(Rule::DropAfterVerified, settled.is_some());
            let whole = settled.is_none_or(|settled| settled.gaps == 0);
            if verified && self.rules.holds(Rule::DropWithoutGaps, whole) {
                ready.push(*shard);
            }
        }
        ready
            .retain(|shard| self.rules.holds(Rule::KeepWhatComesBack, !self.may_come_back(*shard)));
        ready
    }

    /// Whether the change in flight moves the shard to this node, or its plan is not here yet.
    fn may_come_back(&self, shard: Shard) -> bool {
        let Some(change) = self.record().and_then(|record| record.change.as_ref()) else {
            return false;
        };
        self.transfers.work(change.plan).is_none_or(|work| work.brings(shard))
    }

    /// Returns the announcement of a present node about a plan.
    pub(super) fn settled_by(&self, id: &str, plan: BlobId) -> Option<Settled> {
        if !self.rules.holds(Rule::WordsWhenSteady, self.link.steady()) {
            return None;
        }
        let is_here = self.rules.holds(Rule::CommitByThePresent, self.liveness.here(id));
        let said = self.liveness.said_last(id).filter(|_| is_here);
        let of_plan =
            |settled: &&Settled| self.rules.holds(Rule::CommitThisPlan, settled.plan == plan);
        said?.settled.iter().find(of_plan).copied()
    }
}
