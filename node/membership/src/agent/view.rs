//! An agent's view of the coordinator: the newest record it saw, how fresh that is, and whether the
//! coordinator answers.

use super::{
    Agent, Alive, Effect, RingOf, StoredRecord, Ticket,
    rules::{Rule, Rules},
};
use crate::{
    Now, Record, Revision, Timing,
    plan::edited,
    record::{Entry, State},
};

/// Alarm operators after this many answers in a row with an older record than the view's. A watch
/// may overtake one or two answers.
const OLDER_ANSWERS_MAX: u32 = 3;

/// The newest record that this agent saw.
#[derive(Debug, Clone)]
pub(super) struct RecordView {
    pub(super) revision: Revision,
    pub(super) record: Record,
    /// Each node of the record: its state, and since when this agent knows of it.
    pub(super) states: Vec<(String, State, Now)>,
}

impl RecordView {
    /// Returns since when this agent knows the node to be in its state.
    pub(super) fn since(&self, id: &str) -> Option<Now> {
        self.states.iter().find(|(known, ..)| known == id).map(|(.., since)| *since)
    }
}

/// Whether the coordinator answers, and when it was asked.
#[derive(Debug, Clone)]
pub(super) struct Link {
    timing: Timing,
    pub(super) away: bool,
    /// The question without an answer so far.
    asked: Option<(Ticket, Now)>,
    /// When the latest answered question was asked, and the revision of the answer.
    answered: Option<(Now, Option<Revision>)>,
    soon: bool,
    /// Questions in a row without an answer.
    failures: u32,
    /// Answers in a row with an older record than the view's.
    older: u32,
    /// After a failure no question is asked before this time.
    pause_until: Now,
    /// Since when the coordinator answers and this agent is awake.
    steady_since: Now,
    /// A proposal had no answer. The agent proposes nothing until a question is answered.
    pub(super) unsure: bool,
}

impl Link {
    /// Creates a link without any answer.
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            away: false,
            asked: None,
            answered: None,
            soon: false,
            failures: 0,
            older: 0,
            pause_until: Now::ZERO,
            steady_since: Now::ZERO,
            unsure: false,
        }
    }

    /// Asks at the next occasion.
    pub(super) fn ask_soon(&mut self) {
        self.soon = true;
    }

    pub(super) fn should_ask(&self, now: Now) -> bool {
        if let Some((_, at)) = self.asked {
            return now >= at + self.timing.turn;
        }
        let last = self.answered.map(|(at, _)| at);
        if now < self.pause_until {
            return false;
        }
        let due = |at: Now| {
            now >= at + self.timing.refresh_interval
                || (at < self.steady_from() && now >= self.steady_from())
        };
        self.soon || last.is_none_or(due)
    }

    pub(super) fn ask(&mut self, ticket: Ticket, now: Now) {
        self.asked = Some((ticket, now));
        self.soon = false;
    }

    /// Notes the answer to a question of this time, with its revision.
    fn answer(&mut self, asked: Now, revision: Option<Revision>) {
        self.answered = Some((asked, revision));
        self.unsure = false;
        self.hope();
    }

    /// Notes a question without a useful answer. Each failure makes the next question wait longer.
    fn fail(&mut self, now: Now) {
        let wait = self.timing.refresh_wait_min * (1 << self.failures.min(8));
        self.pause_until = now + wait.min(self.timing.refresh_interval);
        self.failures += 1;
        self.soon = true;
    }

    /// Lets the next question start at once.
    fn hope(&mut self) {
        (self.failures, self.pause_until) = (0, Now::ZERO);
    }

    /// Whether the record at this revision was the newest within `drop_freshness`.
    pub(super) fn fresh(&self, now: Now, revision: Revision) -> bool {
        self.answered.is_some_and(|(asked, answer)| {
            answer == Some(revision) && now <= asked + self.timing.drop_freshness
        })
    }

    /// Notes the end of an outage in which announcements may have lapsed or outlived their nodes.
    pub(super) fn unsteady(&mut self, now: Now) {
        self.steady_since = now;
    }

    /// Returns the time by which every announcement was renewed or ended since the last outage.
    fn steady_from(&self) -> Now {
        self.steady_since + self.timing.announcement_ttl + self.timing.drop_freshness
    }

    /// Whether an answer since the last outage shows the announcements. An older announcement may
    /// belong to a node that died in the outage, and a watch may have missed its end.
    pub(super) fn steady(&self) -> bool {
        !self.away && self.answered.is_some_and(|(asked, _)| asked >= self.steady_from())
    }

    /// Whether the coordinator said that there is no record.
    pub(super) fn no_record(&self) -> bool {
        self.answered.is_some_and(|(_, revision)| revision.is_none())
    }
}

/// Returns the ring that a record commits, and the one before.
pub(super) fn rings(record: &Record, rules: &impl Rules) -> (RingOf, Option<RingOf>) {
    let members = record.ring_members();
    let (version, scheme, placement) = (record.version, record.scheme, record.placement);
    let mut ring = RingOf { version, members, scheme, placement };
    if rules.broken(Rule::InstallCommittedOnly)
        && let Some(change) = &record.change
    {
        let members = edited(&ring.members, &change.edits);
        let (version, scheme, placement) = (version + 1, change.scheme, change.target);
        ring = RingOf { version, members, scheme, placement };
    }
    let previous = record.previous.as_ref().map(|previous| RingOf {
        version: previous.version,
        members: record.previous_members().unwrap_or_default(),
        scheme: previous.scheme,
        placement: previous.placement,
    });
    (ring, previous)
}

impl<R: Rules> Agent<R> {
    /// Handles a record from the coordinator, old or new.
    pub(super) fn see(&mut self, stored: &StoredRecord, out: &mut Vec<Effect>) {
        if self.is_of_another_cluster(stored, out) {
            return;
        }
        if self.view.as_ref().is_some_and(|view| view.revision == stored.revision) {
            return;
        }
        match Record::decode(&stored.bytes) {
            Ok(record) => self.accept(stored.revision, record, out),
            Err(why) => out.push(Effect::Alarm(why.to_string())),
        }
    }

    /// Whether the record belongs to another cluster. If so, alarms operators.
    fn is_of_another_cluster(&self, stored: &StoredRecord, out: &mut Vec<Effect>) -> bool {
        let (Some(RecordView { record, .. }), Some(cluster)) =
            (&self.view, Record::cluster_of(&stored.bytes))
        else {
            return false;
        };
        let same = self.rules.holds(Rule::OneCluster, record.cluster == cluster);
        if !same {
            let [ours, theirs] = [record.cluster, cluster].map(u128::from_be_bytes);
            out.push(Effect::Alarm(format!(
                "the coordinator keeps the record of cluster {theirs:032x}, this node is one of \
                 cluster {ours:032x}: nothing of it is taken; give the node the address of its own \
                 coordinator, or start it anew to join the other cluster"
            )));
        }
        !same
    }

    /// Takes this record as the view, if it is newer.
    pub(super) fn accept(&mut self, revision: Revision, record: Record, out: &mut Vec<Effect>) {
        let mut states = Vec::new();
        if let Some(view) = &self.view {
            let older = record.generation < view.record.generation;
            if !self.rules.holds(Rule::GenerationFence, !older) {
                out.push(Effect::Alarm(format!(
                    "a coordinator of generation {} was taken over by generation {}; stop it",
                    record.generation, view.record.generation
                )));
                return;
            }
            let newer = record.generation > view.record.generation || revision > view.revision;
            if !self.rules.holds(Rule::RecordsGrow, newer) {
                return;
            }
            states.clone_from(&view.states);
        }
        self.note_departures(&record);
        self.liveness.expect(self.now, &record);
        let known = std::mem::take(&mut states);
        for Entry { member, state, .. } in &record.members {
            let known = known.iter().find(|(id, was, _)| *id == member.id && was == state);
            let since = known.map_or(self.now, |(.., since)| *since);
            states.push((member.id.clone(), *state, since));
        }
        if record.change.as_ref().is_some_and(|change| self.rehouses(&change.edits)) {
            self.rehoused = Some(record.version);
        }
        let change = record.change.as_ref().map(|change| change.plan);
        let plans: Vec<_> = [record.settling, change].into_iter().flatten().collect();
        self.transfers.want(&plans, self.now);
        self.opened.retain(|dataset| record.dataset(dataset.snapshot).is_none());
        self.view = Some(RecordView { revision, record, states });
    }

    fn note_departures(&mut self, record: &Record) {
        let Some(view) = &self.view else {
            return;
        };
        for entry in view.record.in_ring() {
            let id = &entry.member.id;
            match record.entry(id) {
                Some(now) if now.state == State::Down => {
                    self.liveness.fell(self.now, entry.member.weight);
                }
                None if *id == self.me.member.id => {
                    self.left = self.rules.demands(Rule::LeaversStayOut, true);
                }
                _ => {}
            }
        }
    }

    pub(super) fn refreshed(
        &mut self,
        ticket: Ticket,
        answer: Option<(Option<StoredRecord>, Alive)>,
        out: &mut Vec<Effect>,
    ) {
        let Some((_, asked)) = self.link.asked.take_if(|(expected, _)| *expected == ticket) else {
            return;
        };
        let strange = |stored: &StoredRecord, out: &mut _| self.is_of_another_cluster(stored, out);
        let ours = answer.filter(|(stored, _)| !stored.as_ref().is_some_and(|it| strange(it, out)));
        let Some((stored, alive)) = ours else {
            return self.link.fail(self.now);
        };
        if let Some(stored) = &stored {
            self.see(stored, out);
            if self.is_behind(stored.revision, out) {
                return self.link.fail(self.now);
            }
        }
        self.link.answer(asked, stored.map(|stored| stored.revision));
        self.liveness.update(self.now, &alive);
        self.liveness.answered(self.now, asked);
    }

    /// Whether the coordinator answered with an older record than it had. Alarms operators when
    /// this persists: the view takes no record until the coordinator has made as many writes again.
    fn is_behind(&mut self, answered: Revision, out: &mut Vec<Effect>) -> bool {
        let Some(seen) = self.revision().filter(|seen| answered < *seen) else {
            self.link.older = 0;
            return false;
        };
        self.link.older = self.link.older.saturating_add(1);
        if self.link.older >= OLDER_ANSWERS_MAX {
            out.push(Effect::Alarm(format!(
                "the coordinator has write {} of the record where this node saw write {}: it was put back, as from a \
                 backup, and membership is frozen; restart the nodes, one after the other, to go on from there",
                answered.0, seen.0
            )));
        }
        true
    }

    /// Returns the revision of the view.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.view.as_ref().map(|view| view.revision)
    }

    /// Whether the view was the newest record within `drop_freshness`.
    pub(super) fn fresh(&self) -> bool {
        let newest = |view: &RecordView| self.link.fresh(self.now, view.revision);
        !self.link.away && self.view.as_ref().is_some_and(newest)
    }

    pub(super) fn away(&mut self, out: &mut Vec<Effect>) {
        if !self.link.away {
            self.link.away = true;
            out.push(Effect::Alarm(
                "the coordinator does not answer: membership is frozen, reads go on".to_owned(),
            ));
        }
        self.refuse_commands("the coordinator does not answer; try again when it does", out);
    }

    pub(super) fn back(&mut self) {
        let was_away = std::mem::take(&mut self.link.away);
        self.link.unsteady(self.now);
        self.link.hope();
        self.link.ask_soon();
        self.action = None;
        // Leases ended while no node could renew them: those absences prove nothing.
        if self.rules.demands(Rule::DoubtAfterAway, was_away) {
            self.liveness.restart(self.now);
        }
    }
}
