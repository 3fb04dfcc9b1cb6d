//! Dropping old copies: the one thing that can't be taken back, so the one with the most
//! conditions.
//!
//! A copy goes when the ring that gives the shard to another is committed and in use here, when the
//! new owner says *now* that it has everything, when no change in flight brings the shard back, and
//! when the record that says so was the newest a moment ago. Whatever is missing, the copy stays:
//! it is then a foreign shard like any other, the first to be evicted when room is needed.

use super::{
    Agent, Effect, Shard,
    rules::{Rule, Rules},
};
use crate::{BlobId, Plan, announcement::Settled};

/// Drops that one event leads to, at most; the next event goes on.
const DROPS_AT_ONCE_MAX: usize = 256;

/// What is left to drop of one plan.
#[derive(Debug, Clone, Default)]
pub(super) struct CopyCleanup {
    plan: Option<BlobId>,
    /// Shards that were to move from here, and to whom.
    left: Vec<(Shard, String)>,
}

impl CopyCleanup {
    fn follow(&mut self, id: BlobId, plan: &Plan, me: &str) {
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

    /// Whether no old copy is left here that is to go by this plan, but for those that may stay as
    /// a new owner could not take everything.
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

    /// Shards that a new owner holds and nobody brings back.
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

    /// Whether the change in flight gives the shard to this node, or may, for all we know.
    fn may_come_back(&self, shard: Shard) -> bool {
        let Some(change) = self.record().and_then(|record| record.change.as_ref()) else {
            return false;
        };
        self.transfers.work(change.plan).is_none_or(|work| work.brings(shard))
    }

    /// What a node that is here says of a plan.
    pub(super) fn settled_by(&self, id: &str, plan: BlobId) -> Option<Settled> {
        if !self.rules.holds(Rule::WordsWhenSteady, self.link.steady()) {
            return None;
        }
        let mut said = self.liveness.said(id);
        if self.rules.broken(Rule::CommitByThePresent) {
            said = self.liveness.said_last(id);
        }
        let of_plan =
            |settled: &&Settled| self.rules.holds(Rule::CommitThisPlan, settled.plan == plan);
        said?.settled.iter().find(of_plan).copied()
    }
}
