//! Finds the next step that the cluster needs, and which agent takes it.

use std::time::Duration;

use larder_base::{Member, Ring};

use super::{
    Agent, Bootstrap, Effect,
    intent::{Action, Intent, task},
    rules::{Rule, Rules},
    view::RecordView,
};
use crate::{
    Now, Record,
    plan::{Edit, edited},
    record::{Change, Entry, State},
};

impl<R: Rules> Agent<R> {
    /// Writes this node's own entry. Two processes with one name must not overwrite each other's
    /// address without end: each write delays the writes of all other agents.
    pub(super) fn own_step(&mut self, out: &mut Vec<Effect>) {
        if self.is_doubled() {
            return;
        }
        let me = &self.me.member;
        let Some(RecordView { record, .. }) = &self.view else {
            if self.link.no_record()
                && let Some(Bootstrap { cluster, replicas }) = self.me.founds
            {
                let ring = Ring::new(1, vec![me.clone()]);
                match ring.and_then(|ring| ring.with_replicas(replicas)) {
                    Ok(ring) => {
                        let record = Record::founded(cluster, me.clone(), ring.scheme());
                        self.propose_first(record, out);
                    }
                    Err(why) => self.refuse(Intent::Own, &why.to_string(), out),
                }
            }
            return;
        };
        let step = match record.entry(&me.id) {
            None if self.left => return,
            None => record.joined(me.clone()),
            Some(entry) if listens_elsewhere(entry, me) && self.may_readdress() => {
                record.readdressed(me)
            }
            Some(_) => return self.tell_opened(out),
        };
        match step {
            Ok(audit) => self.propose(Intent::Own, audit, Vec::new(), out),
            Err(why) => self.refuse(Intent::Own, &why.to_string(), out),
        }
    }

    /// Whether this node's latest write of its own entry was long enough ago.
    fn may_readdress(&self) -> bool {
        self.entered.is_none_or(|at| self.now >= at + self.timing.readdress_interval)
    }

    /// Tells the record of datasets opened here. Datasets that the record has no room for wait, and
    /// delay no other write.
    fn tell_opened(&mut self, out: &mut Vec<Effect>) {
        if !self.opened.is_empty()
            && let Some(RecordView { record, .. }) = &self.view
            && let Ok(audit) = record.opened(&self.opened)
        {
            self.propose(Intent::Opened, audit, Vec::new(), out);
        }
    }

    /// Takes the next step that the cluster needs when it is this agent's turn.
    pub(super) fn serve(&mut self, out: &mut Vec<Effect>) {
        self.look_at_brake(out);
        self.ask_for_the_missing();
        let (Some(action), Some(rank)) = (self.find_action(), self.rank()) else {
            self.action = None;
            return self.sweep(out);
        };
        let since = match &self.action {
            Some((known, since)) if *known == action => *since,
            _ => self.now,
        };
        self.action = Some((action.clone(), since));
        if self.now >= since + self.timing.turn * rank {
            self.fulfil(action, out);
        }
    }

    fn fulfil(&mut self, action: Action, out: &mut Vec<Effect>) {
        let Some(record) = self.record() else {
            return;
        };
        let step = match &action {
            Action::Lose(ids) => {
                if !self.rules.holds(Rule::DeathIsAskedFor, self.fresh()) {
                    return self.link.ask_soon();
                }
                let edits = ids.iter().cloned().map(Edit::Remove).collect();
                let task = task(record, edits, true);
                return self.ask_planner(action, task, out);
            }
            Action::Stage(edits) | Action::Extend(edits) => {
                let mut task = task(record, edits.clone(), false);
                if let Some(change) = &record.change {
                    task.replicas = change.scheme.replicas;
                }
                return self.ask_planner(action, task, out);
            }
            Action::Commit => record.committed(),
            Action::Abort(_) => record.aborted(&action.words(), false),
            Action::Forget(ids) => record.forgotten(ids),
            Action::Settle => record.settled(),
        };
        match step {
            Ok(audit) => self.propose(Intent::Action(action), audit, Vec::new(), out),
            Err(why) => self.refuse(Intent::Action(action), &why.to_string(), out),
        }
    }

    /// Returns the number of agents before this one: the live members by id, then the nodes outside
    /// the ring. None unless an answer since the last doubt shows this agent's own announcement.
    pub(super) fn rank(&self) -> Option<u32> {
        let (record, me) = (self.record()?, self.me.member.id.as_str());
        if !self.rules.holds(Rule::HeardBeforeActing, self.liveness.heard(me)) {
            return None;
        }
        let mut order: Vec<(bool, &str)> = record
            .members
            .iter()
            .map(|entry| (!entry.state.in_ring(), entry.member.id.as_str()))
            .filter(|(_, id)| *id == me || self.liveness.here(id))
            .collect();
        order.sort_unstable();
        let rank = order.iter().position(|(_, id)| *id == me)?;
        u32::try_from(rank).ok()
    }

    pub(super) fn find_action(&self) -> Option<Action> {
        let RecordView { record, .. } = self.view.as_ref()?;
        let lost = self.lost(record);
        if !lost.is_empty() {
            return Some(Action::Lose(lost));
        }
        if let Some(change) = &record.change {
            return self
                .action_of_change(record, change)
                .or_else(|| self.extension(record, change));
        }
        let dead = record.members.iter().filter(|entry| self.dead_joiner(entry));
        let dead: Vec<String> = dead.map(|entry| entry.member.id.clone()).collect();
        if self.rules.demands(Rule::ForgetDeadJoiners, !dead.is_empty()) {
            return Some(Action::Forget(dead));
        }
        let edits = self.due_edits(record);
        if !edits.is_empty() {
            return Some(Action::Stage(edits));
        }
        self.has_settled(record).then_some(Action::Settle)
    }

    /// Whether all members announce that nothing is left to move or to drop by the ring's plan.
    /// Members that left the ring do not count: their copies go with them.
    fn has_settled(&self, record: &Record) -> bool {
        let Some(plan) = record.settling else {
            return false;
        };
        record.in_ring().all(|entry| match self.settled_by(&entry.member.id, plan) {
            Some(said) => self.rules.holds(Rule::SettleWhenClean, said.clean),
            None => self.rules.holds(Rule::SettleWhenAllSaySo, false),
        })
    }

    fn dead(&self, entry: &Entry) -> bool {
        self.liveness.dead(self.now, &entry.member.id, &self.rules)
    }

    /// Whether a joiner is dead, and was known for at least a grace period.
    fn dead_joiner(&self, entry: &Entry) -> bool {
        let known = || {
            self.known_for(&entry.member.id).is_some_and(|known| known >= self.timing.death_grace)
        };
        entry.state == State::Joining && self.dead(entry) && known()
    }

    /// Returns dead and condemned members to remove, unless no member would remain.
    fn lost(&self, record: &Record) -> Vec<String> {
        let braked = self.rules.demands(Rule::BrakeOnMassLoss, self.braked);
        let lost =
            |entry: &&Entry| entry.state == State::Condemned || (!braked && self.dead(entry));
        let lost: Vec<String> =
            record.in_ring().filter(lost).map(|entry| entry.member.id.clone()).collect();
        if lost.len() < record.in_ring().count() { lost } else { Vec::new() }
    }

    fn action_of_change(&self, record: &Record, change: &Change) -> Option<Action> {
        let outside = |edit: &&Edit| match edit {
            Edit::Put(member) => record.entry(&member.id).is_some_and(|e| !e.state.in_ring()),
            Edit::Remove(_) => false,
        };
        let mut newcomers = change.edits.iter().filter(outside).map(Edit::id);
        let gone = newcomers.clone().find(|id| self.liveness.dead(self.now, id, &self.rules));
        if let Some(id) = gone
            && self.rules.demands(Rule::DeadJoinersAbort, true)
        {
            return Some(Action::Abort(id.to_owned()));
        }
        let there = newcomers.all(|id| self.liveness.here(id));
        let moved = self.rules.holds(Rule::CommitAfterMoves, self.moved(change));
        let go = self.rules.holds(Rule::CommitUnlessPaused, !change.paused);
        (there && go && (moved || self.overdue(record, change))).then_some(Action::Commit)
    }

    /// Returns a change that also removes members with a deadline, unless the current one does.
    fn extension(&self, record: &Record, change: &Change) -> Option<Action> {
        let waits =
            |entry: &&Entry| entry.state.is_pressed() && !change.takes_out(&entry.member.id);
        let leaving: Vec<&str> =
            record.members.iter().filter(waits).map(|entry| entry.member.id.as_str()).collect();
        if !self.rules.demands(Rule::DeadlinesDoNotWait, !leaving.is_empty()) {
            return None;
        }
        let before = change.edits.iter().filter(|edit| !leaving.contains(&edit.id())).cloned();
        let edits = before.chain(leaving.iter().map(|id| Edit::Remove((*id).to_owned())));
        let edits: Vec<Edit> = edits.collect();
        let somebody_stays = !edited(&record.ring_members(), &edits).is_empty();
        (somebody_stays && self.all_are_there(record)).then_some(Action::Extend(edits))
    }

    /// Whether all active members are announced, so that a plan can count on them.
    fn all_are_there(&self, record: &Record) -> bool {
        let away =
            |entry: &Entry| entry.state == State::Active && !self.liveness.here(&entry.member.id);
        self.rules.holds(Rule::StageWhenAllAreThere, !record.in_ring().any(away))
    }

    /// Whether all targets have announced that they have their shards.
    fn moved(&self, change: &Change) -> bool {
        let Some(work) = self.transfers.work(change.plan) else {
            return false;
        };
        work.plan.receivers().iter().all(|id| self.settled_by(id, change.plan).is_some())
    }

    /// Whether a leaving member's deadline is over.
    fn overdue(&self, record: &Record, change: &Change) -> bool {
        let is_overdue = change.edits.iter().any(|edit| self.overdue_one(record, edit.id()));
        self.rules.demands(Rule::DeadlineCommits, is_overdue)
    }

    fn overdue_one(&self, record: &Record, id: &str) -> bool {
        let deadline = match record.entry(id).map(|entry| entry.state) {
            Some(State::Draining { deadline: Some(deadline) }) => deadline,
            _ => return false,
        };
        self.known_for(id).is_some_and(|known| known >= deadline)
    }

    /// Returns how long this agent has known the node to be in its state.
    fn known_for(&self, id: &str) -> Option<Duration> {
        let since: Now = self.view.as_ref()?.since(id)?;
        Some(self.now.saturating_sub(since))
    }

    /// Returns the edits of the next planned change: joins, returns and departures.
    fn due_edits(&self, record: &Record) -> Vec<Edit> {
        if !self.all_are_there(record) {
            return Vec::new();
        }
        let mut edits = Vec::new();
        let mut waits = Vec::new();
        for entry in &record.members {
            let id = &entry.member.id;
            match entry.state {
                State::Joining if self.liveness.here(id) => {
                    waits.extend(self.known_for(id));
                    edits.push(Edit::Put(entry.member.clone()));
                }
                State::Down if self.liveness.returned(self.now, id, &self.rules) => {
                    edits.push(Edit::Put(entry.member.clone()));
                }
                State::Draining { .. } => edits.push(Edit::Remove(id.clone())),
                _ => {}
            }
        }
        edits.extend(self.own_edit(record));
        if edited(&record.ring_members(), &edits).is_empty() {
            // The last draining member waits for another node to join.
            return Vec::new();
        }
        let only_joins = waits.len() == edits.len();
        let waits_for_more = only_joins && !self.window_closed(&waits);
        if self.rules.demands(Rule::JoinsShareAChange, waits_for_more) {
            edits.clear();
        }
        edits
    }

    /// Whether every joiner has waited for `join_window`, or one of them for `join_wait_max`.
    fn window_closed(&self, waits: &[Duration]) -> bool {
        waits.iter().all(|wait| *wait >= self.timing.join_window)
            || waits.iter().any(|wait| *wait >= self.timing.join_wait_max)
    }

    /// Returns the edit that gives this node its current host and zone, if the ring has others. As
    /// placement depends on them, only a plan changes them. The edit is proposed once in each ring
    /// version, since an operator may abort it.
    fn own_edit(&self, record: &Record) -> Option<Edit> {
        let entry = record.entry(&self.me.member.id)?;
        let put = Edit::Put(Member { weight: entry.member.weight, ..self.me.member.clone() });
        let moved = stands_elsewhere(entry, &self.me.member);
        let asked = self.rehoused == Some(record.version);
        (moved && entry.state == State::Active && !asked).then_some(put)
    }

    /// Whether these edits give this node its current host and zone.
    pub(super) fn rehouses(&self, edits: &[Edit]) -> bool {
        let Member { id, host, zone, .. } = &self.me.member;
        edits.iter().any(|edit| match edit {
            Edit::Put(member) => (&member.id, &member.host, &member.zone) == (id, host, zone),
            Edit::Remove(_) => false,
        })
    }

    /// Alarms operators once when the brake takes hold. The brake stays as it is until the agent
    /// has received announcements.
    fn look_at_brake(&mut self, out: &mut Vec<Effect>) {
        let now = self.now;
        let Some(RecordView { record, .. }) = &self.view else {
            return;
        };
        self.liveness.tidy(now, record);
        if !self.liveness.watches() {
            return;
        }
        let braked = self.liveness.braked(record);
        if braked && !self.braked {
            out.push(Effect::Alarm(
                "more than a quarter of the ring is gone at once: nothing is removed without an \
                 operator's word; see 'larder ring status'"
                    .to_owned(),
            ));
        }
        self.braked = braked;
    }

    /// Asks the coordinator once more before a member is taken to be dead.
    fn ask_for_the_missing(&mut self) {
        let missing =
            |entry: &Entry| self.liveness.worth_asking(self.now, &entry.member.id, &self.rules);
        if self.record().is_some_and(|record| record.members.iter().any(missing)) {
            self.link.ask_soon();
        }
    }

    /// Lets the coordinator delete blobs that the record does not name, once no step is due.
    fn sweep(&mut self, out: &mut Vec<Effect>) {
        let Some(RecordView { record, revision, .. }) = &self.view else {
            return;
        };
        let keep = record.blobs();
        if self.rank() == Some(0) && self.swept.as_ref() != Some(&keep) {
            out.push(Effect::Sweep { at: *revision, keep: keep.clone() });
            self.swept = Some(keep);
        }
    }
}

fn stands_elsewhere(entry: &Entry, me: &Member) -> bool {
    (&entry.member.host, &entry.member.zone) != (&me.host, &me.zone)
}

/// Whether the record needs a new address of this node. The host and zone of a member of the ring
/// do not count.
fn listens_elsewhere(entry: &Entry, me: &Member) -> bool {
    let stands_elsewhere = !entry.state.in_ring() && stands_elsewhere(entry, me);
    entry.member.control != me.control || stands_elsewhere
}
