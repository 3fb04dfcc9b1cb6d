//! The one write that an agent has under way, from its intent to the coordinator's answer.

use super::{
    Agent, Answer, Command, Effect, ProposalOutcome, Steer, Ticket,
    intent::{Action, Intent},
    rules::{Rule, Rules},
};
use crate::{
    BlobId, Now, PlanBlobs, Record, Revision, RingPlan,
    plan::Task,
    record::{Audit, Refused},
};

#[derive(Debug, Clone)]
pub(super) struct Proposal {
    ticket: Ticket,
    since: Now,
    intent: Intent,
    /// The proposal, with the revision it was computed from; none while the planner works.
    proposed: Option<(Option<Revision>, Audit)>,
}

impl<R: Rules> Agent<R> {
    /// Finds the next write, unless one is under way.
    pub(super) fn propose_next(&mut self, out: &mut Vec<Effect>) {
        self.give_up_waiting();
        if self.proposal.is_some() || self.link.unsure || self.now < self.rest_until {
            return;
        }
        if self.rules.holds(Rule::FrozenWhileAway, !self.link.away) {
            self.run_commands(out);
            if self.proposal.is_none() {
                self.own_step(out);
            }
            if self.proposal.is_none() {
                self.serve(out);
            }
        }
    }

    fn give_up_waiting(&mut self) {
        let late = self.proposal.as_ref().is_some_and(|proposal| self.is_late(proposal));
        if let Some(proposal) = self.proposal.take_if(|_| late) {
            self.unknown(proposal);
        }
    }

    fn is_late(&self, proposal: &Proposal) -> bool {
        let waited = self.now.saturating_sub(proposal.since);
        waited >= self.timing.plan_timeout
            || (waited >= self.timing.proposal_timeout && !self.plans_for_duty(proposal))
    }

    /// Whether the planner still works on a step that the cluster needs, and no operator waits.
    /// Then its answer is worth waiting for: asking again would start the planner anew.
    fn plans_for_duty(&self, proposal: &Proposal) -> bool {
        match &proposal.intent {
            Intent::Action(action) if proposal.proposed.is_none() && self.commands.is_empty() => {
                self.find_action().as_ref() == Some(action)
            }
            _ => false,
        }
    }

    /// Asks the planner for the plan of a proposal.
    pub(super) fn ask_planner(&mut self, action: Action, task: Task, out: &mut Vec<Effect>) {
        let ticket = self.ticket();
        let intent = Intent::Action(action);
        self.proposal = Some(Proposal { ticket, since: self.now, intent, proposed: None });
        out.push(Effect::Plan(ticket, task));
    }

    /// Handles the planner's answer.
    pub(super) fn planned(
        &mut self,
        ticket: Ticket,
        planned: Result<PlanBlobs, String>,
        out: &mut Vec<Effect>,
    ) {
        if let Some(asker) = self.shown.remove(&ticket) {
            out.push(Effect::Reply(asker, planned.map(Answer::Planned)));
            return;
        }
        let Some(Proposal { intent: Intent::Action(action), .. }) =
            self.proposal.take_if(|p| p.ticket == ticket && p.proposed.is_none())
        else {
            return;
        };
        let there = self.rules.holds(Rule::FrozenWhileAway, !self.link.away);
        if !there || self.rank().is_none() || self.find_action().as_ref() != Some(&action) {
            // The coordinator is away, this agent slept, an absent node is back, or the cluster
            // needs another step by now.
            return;
        }
        let step = planned.map_err(Refused::new).and_then(|planned| {
            let plan = self.read_plan(&planned)?;
            let record = self.record().ok_or_else(|| Refused::new("there is no record"))?;
            let step = match &action {
                Action::Lose(..) => {
                    record.recast(&plan, planned.id(), &self.me.member.id, &action.words())
                }
                Action::Extend(..) => {
                    record.restaged(&plan, planned.id(), &self.me.member.id, &action.words())
                }
                _ => record.begun(&plan, planned.id(), &self.me.member.id),
            };
            step.map(|audit| (audit, planned))
        });
        match step {
            Ok((audit, planned)) => {
                let blobs = [Some(planned.plan), planned.placement].into_iter().flatten().collect();
                self.propose(Intent::Action(action), audit, blobs, out);
            }
            // The ring moved on, or there is no such plan: look again later.
            Err(why) => {
                self.rest();
                out.push(Effect::Audit(format!("not done: {why}")));
            }
        }
    }

    /// Returns the decoded plan, pinned to the ring it was made for.
    pub(super) fn read_plan(&self, planned: &PlanBlobs) -> Result<RingPlan, Refused> {
        let mut plan =
            RingPlan::decode(&planned.plan).map_err(|why| Refused::new(why.to_string()))?;
        if plan.target != planned.placement.as_deref().map(BlobId::of) {
            return Err(Refused::new("the plan leads to another placement; plan again"));
        }
        if self.rules.broken(Rule::PlanIsPinned)
            && let Some(record) = self.record()
        {
            plan.base = record.version;
        }
        Ok(plan)
    }

    /// Writes the first record of a cluster.
    pub(super) fn propose_first(&mut self, record: Record, out: &mut Vec<Effect>) {
        let words = format!("{} founds a cluster", self.me.member.id);
        self.write(Intent::Own, None, Audit { record, words }, Vec::new(), out);
    }

    /// Writes a step from the current record.
    pub(super) fn propose(
        &mut self,
        intent: Intent,
        audit: Audit,
        blobs: Vec<Vec<u8>>,
        out: &mut Vec<Effect>,
    ) {
        let expected = self.revision();
        self.write(intent, expected, audit, blobs, out);
    }

    fn write(
        &mut self,
        intent: Intent,
        expected: Option<Revision>,
        mut audit: Audit,
        blobs: Vec<Vec<u8>>,
        out: &mut Vec<Effect>,
    ) {
        let since_epoch = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        let now_ms = self.me.epoch_ms.saturating_add(since_epoch);
        audit.record.date_history(self.record(), now_ms);
        match audit.record.encode() {
            Ok(record) => {
                let ticket = self.ticket();
                out.push(Effect::Propose { ticket, blobs, expected, record });
                let proposed = Some((expected, audit));
                self.proposal = Some(Proposal { ticket, since: self.now, intent, proposed });
            }
            Err(why) => self.refuse(intent, &why.to_string(), out),
        }
    }

    /// Handles the coordinator's answer.
    pub(super) fn proposed(
        &mut self,
        ticket: Ticket,
        outcome: ProposalOutcome,
        out: &mut Vec<Effect>,
    ) {
        let Some(proposal) = self.proposal.take_if(|proposal| proposal.ticket == ticket) else {
            return;
        };
        match outcome {
            ProposalOutcome::Done(revision) => self.done(proposal, revision, out),
            ProposalOutcome::Moved(stored) => {
                if let Some(stored) = stored {
                    self.see(&stored, out);
                }
                if proposal.proposed.as_ref().is_some_and(|(from, _)| *from == self.revision()) {
                    // The record is unchanged: the agent would propose the same again at once.
                    self.rest();
                    self.link.ask_soon();
                }
                self.again(proposal.intent);
            }
            ProposalOutcome::Unknown => self.unknown(proposal),
            ProposalOutcome::Refused(why) => self.refuse(proposal.intent, &why, out),
        }
    }

    fn done(&mut self, proposal: Proposal, revision: Revision, out: &mut Vec<Effect>) {
        let Some((_, audit)) = proposal.proposed else {
            return;
        };
        self.accept(revision, audit.record, out);
        out.push(Effect::Audit(audit.words));
        match proposal.intent {
            Intent::Command(waiting) => {
                out.push(Effect::Reply(waiting.ticket, Ok(Answer::Done)));
            }
            Intent::Own => self.entered = Some(self.now),
            Intent::Opened | Intent::Action(_) => {}
        }
    }

    /// Stops proposals until the record was read again, as this one may have been written.
    fn unknown(&mut self, proposal: Proposal) {
        if proposal.proposed.is_some() {
            self.link.unsure = true;
            self.link.ask_soon();
        }
        self.again(proposal.intent);
    }

    /// Tries an operator's command again on the newest record. The agent decides all else anew.
    fn again(&mut self, intent: Intent) {
        if let Intent::Command(waiting) = intent
            && self.rules.demands(Rule::CommandsAreAnswered, true)
        {
            self.commands.push_front(waiting);
        }
    }

    pub(super) fn refuse(&mut self, intent: Intent, why: &str, out: &mut Vec<Effect>) {
        match intent {
            Intent::Command(waiting) => {
                out.push(Effect::Reply(waiting.ticket, Err(why.to_owned())));
            }
            // The dataset is told again when it is next used. Other writes do not wait for that.
            Intent::Opened => {
                self.opened.clear();
                out.push(Effect::Alarm(format!("not done: {why}")));
            }
            Intent::Own | Intent::Action(_) => {
                self.rest();
                out.push(Effect::Alarm(format!("not done: {why}")));
            }
        }
    }

    /// Plans for an operator without changing anything.
    pub(super) fn show_plan(&mut self, asker: Ticket, task: Task, out: &mut Vec<Effect>) {
        let ticket = self.ticket();
        self.shown.insert(ticket, asker);
        out.push(Effect::Plan(ticket, task));
    }

    /// Returns the step of an operator's command.
    pub(super) fn step_for(&self, record: &Record, command: &Command) -> Result<Audit, Refused> {
        match command {
            Command::Plan { .. } => Err(Refused::new("a plan changes nothing")),
            Command::Apply { planned, rate, asked_by } => {
                let plan = self.read_plan(planned)?;
                record.staged(&plan, planned.id(), asked_by, *rate)
            }
            Command::Steer { steer, .. } => match steer {
                Steer::Pause => record.paused(true),
                Steer::Resume => record.paused(false),
                Steer::Abort => record.aborted("an operator asked for it", true),
                Steer::Rate(rate) => record.rated(*rate),
            },
            Command::Drain { id, deadline } => record.draining(id, *deadline),
            Command::Undrain(id) => record.undrained(id),
            Command::Remove(ids) => record.condemned(ids),
        }
    }
}
