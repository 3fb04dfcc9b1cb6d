//! Every step that the record can take. Each describes itself in words, for the audit log and the
//! history.

use std::{collections::VecDeque, time::Duration};

use larder_base::{Bytes, Counted, Member, Scheme, limits};

use super::{Change, DatasetRecord, Entry, Past, Previous, Record, State, Terms};
use crate::{
    BlobId,
    plan::{Edit, RingPlan, edited, edits_between},
};

/// Changes that the record remembers, for `ring history`; the oldest are forgotten first.
pub(super) const RECORD_HISTORY_MAX: usize = 64;

/// Why a step is refused and what to do about it: a sentence for operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl Refused {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

/// A computed step: the record it leads to, and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The record after the step.
    pub record: Record,
    /// The description of the step.
    pub words: String,
}

type Step = Result<Audit, Refused>;

fn step(mut record: Record, words: impl Into<String>) -> Step {
    record.kept.take_if(|_| !awaits_change(&record.members));
    Ok(Audit { record, words: words.into() })
}

/// Whether agents will begin a change for one of these members.
fn awaits_change(members: &[Entry]) -> bool {
    members.iter().any(|entry| matches!(entry.state, State::Joining | State::Draining { .. }))
}

fn refused<T>(words: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(words))
}

impl Record {
    /// Returns the first record of a cluster: a ring of one member, with this scheme.
    pub fn founded(cluster: [u8; 16], member: Member, scheme: Scheme) -> Self {
        Self {
            cluster,
            generation: 1,
            version: 1,
            members: vec![Entry { member, state: State::Active, since: 1 }],
            scheme,
            placement: None,
            previous: None,
            settling: None,
            change: None,
            kept: None,
            datasets: Vec::new(),
            changes: 0,
            history: Vec::new(),
        }
    }

    /// Adds a node that wants to be in the ring.
    ///
    /// # Errors
    /// [`Refused`] when it is known already or there is no room.
    pub fn joined(&self, member: Member) -> Step {
        let id = member.id.clone();
        let Err(at) = self.members.binary_search_by(|entry| entry.member.id.cmp(&id)) else {
            return refused(format!("a node named '{id}' is known already; names must differ"));
        };
        let max = limits::RING_MEMBERS_MAX;
        if self.members.len() >= max {
            return refused(format!("the cluster has {max} nodes, the limit; remove one first"));
        }
        let mut record = self.clone();
        let since = record.version;
        record.members.insert(at, Entry { member, state: State::Joining, since });
        step(record, format!("{id} wants to join"))
    }

    /// Gives a node another address. The ring and its version stay the same. A member keeps its
    /// host, zone and weight, since placement depends on them and only a plan may change them.
    ///
    /// # Errors
    /// [`Refused`] when the node is unknown.
    pub fn readdressed(&self, member: &Member) -> Step {
        let mut record = self.clone();
        let entry = record.entry_mut(&member.id)?;
        if entry.state.in_ring() {
            entry.member.control.clone_from(&member.control);
        } else {
            entry.member = Member { weight: entry.member.weight, ..member.clone() };
        }
        step(record, format!("{} listens at {}", member.id, member.control))
    }

    /// Begins a planned change: shards move, the ring stays. Active members that the plan removes
    /// drain from now on. They leave for good with the commit, unlike dead members.
    ///
    /// # Errors
    /// [`Refused`] when the ring moved on since the plan was made or a change is in flight.
    pub fn staged(&self, plan: &RingPlan, id: BlobId, asked_by: &str, rate: Option<u64>) -> Step {
        if let Some(change) = &self.change {
            let number = change.number;
            return refused(format!(
                "change {number} is in flight: {}; wait for it, or abort it first",
                self.told(change)
            ));
        }
        self.check_base(plan)?;
        let mut record = self.clone();
        record.changes += 1;
        let change = Change {
            number: record.changes,
            plan: id,
            edits: plan.edits.clone(),
            scheme: plan.scheme,
            target: plan.target,
            paused: false,
            rate,
            moves: plan.moves.len() as u64,
            bytes: plan.bytes(),
            receivers: u32::try_from(plan.receivers().len()).unwrap_or(u32::MAX),
            asked_by: asked_by.to_owned(),
        };
        let words = format!("change {} begins: {}", change.number, self.told(&change));
        record.release(&change.edits);
        (record.change, record.kept) = (Some(change), None);
        record.checked(words)
    }

    /// Begins a change of the agents' own. It keeps the pause and the rate of a change that a death
    /// ended.
    ///
    /// # Errors
    /// As for [`staged`](Self::staged).
    pub fn begun(&self, plan: &RingPlan, id: BlobId, agent: &str) -> Step {
        let Audit { mut record, words } = self.staged(plan, id, agent, None)?;
        let (Some(Terms { paused, rate }), Some(change)) = (self.kept, &mut record.change) else {
            return step(record, words);
        };
        (change.paused, change.rate) = (paused, rate);
        let terms = Terms { paused, rate };
        step(record, format!("{words}; {terms}, as was said of the change that a death ended"))
    }

    /// Replaces the change in flight by one with the same edits and more. Shards that were moved
    /// for it and belong to both are there already.
    ///
    /// # Errors
    /// [`Refused`] when there is none, and as for [`staged`](Self::staged).
    pub fn restaged(&self, plan: &RingPlan, id: BlobId, asked_by: &str, why: &str) -> Step {
        let change = self.in_flight()?;
        let next = self.changes + 1;
        let words = format!(
            "change {} is aborted for change {next}, as {why}: {}",
            change.number,
            self.told(change)
        );
        let mut record = Self { change: None, ..self.clone() };
        record.remember(change, false, &words);
        let Audit { record, words: begins } = record.staged(plan, id, asked_by, None)?;
        step(record, format!("{words}; {begins}"))
    }

    /// Commits the change in flight.
    ///
    /// # Errors
    /// [`Refused`] when there is none.
    pub fn committed(&self) -> Step {
        let change = self.in_flight()?.clone();
        let before = self.ring_members();
        let mut record = self.clone();
        record.change = None;
        let since = record.version + 1;
        record.cast(&change.edits, since);
        record.advance(&before, change.scheme, change.target);
        record.settling = Some(change.plan);
        let words = format!("change {} is committed: {}", change.number, self.told(&change));
        record.remember(&change, true, &words);
        record.checked(words)
    }

    /// Ends the plan of the committed ring: its shards have moved, and old copies are dropped.
    ///
    /// # Errors
    /// [`Refused`] when the ring has settled already.
    pub fn settled(&self) -> Step {
        if self.settling.is_none() {
            return refused(format!("ring {} has settled already", self.version));
        }
        let record = Self { settling: None, ..self.clone() };
        step(record, format!("ring {} has settled", self.version))
    }

    /// Commits a ring without lost members at once. A change in flight is aborted. Its successor
    /// keeps the pause and the rate.
    ///
    /// # Errors
    /// [`Refused`] when the ring moved on since the plan was made.
    pub fn recast(&self, plan: &RingPlan, id: BlobId, asked_by: &str, why: &str) -> Step {
        self.check_base(plan)?;
        let mut record = self.clone();
        if let Some(change) = record.change.take() {
            let words =
                format!("change {} is aborted, as {why}: {}", change.number, self.told(&change));
            record.remember(&change, false, &words);
            record.kept = change.terms();
        }
        record.changes += 1;
        let (number, since) = (record.changes, record.version + 1);
        record.cast(&plan.edits, since);
        record.advance(&self.ring_members(), plan.scheme, plan.target);
        record.settling = Some(id);
        let words = format!("change {number} is committed at once, as {why}");
        record.push_past(number, id, asked_by, true, &words);
        record.checked(words)
    }

    /// Aborts the change in flight; the committed ring stays. With `hold`, an operator's abort,
    /// agents do not begin the same change again: its nodes wait for a plan or another command.
    ///
    /// # Errors
    /// [`Refused`] when there is none.
    pub fn aborted(&self, why: &str, hold: bool) -> Step {
        let change = self.in_flight()?.clone();
        let mut record = self.clone();
        record.change = None;
        if hold {
            record.hold(&change.edits);
        }
        let words =
            format!("change {} is aborted, as {why}: {}", change.number, self.told(&change));
        record.remember(&change, false, &words);
        step(record, words)
    }

    /// Pauses or resumes the change in flight.
    ///
    /// # Errors
    /// [`Refused`] when there is none.
    pub fn paused(&self, paused: bool) -> Step {
        let mut record = self.clone();
        let change = record.in_flight_mut()?;
        change.paused = paused;
        let words = if paused { "paused" } else { "resumed" };
        let words = format!("change {} is {words}", change.number);
        step(record, words)
    }

    /// Limits the change in flight to this many bytes a second. `None` lifts the limit.
    ///
    /// # Errors
    /// [`Refused`] when there is none, or the rate is zero.
    pub fn rated(&self, rate: Option<u64>) -> Step {
        if rate == Some(0) {
            return refused("a rate of 0 never ends; pause the change instead");
        }
        let mut record = self.clone();
        let change = record.in_flight_mut()?;
        change.rate = rate;
        let words = match rate {
            Some(rate) => format!("change {} moves {}/s", change.number, Bytes(rate)),
            None => format!("change {} moves as fast as reads allow", change.number),
        };
        step(record, words)
    }

    /// Begins to drain a member. If the change in flight removes it already, a deadline ends that
    /// change's pause and rate, and any kept ones: they are older.
    ///
    /// # Errors
    /// [`Refused`] when it is not in the ring or is the last active member.
    pub fn draining(&self, id: &str, deadline: Option<Duration>) -> Step {
        let mut record = self.clone();
        let since = record.version;
        let entry = record.entry_mut(id)?;
        if !matches!(entry.state, State::Active | State::Draining { .. }) {
            let state = entry.state.name();
            return refused(format!("node '{id}' is {state}, not active: nothing to drain"));
        }
        (entry.state, entry.since) = (State::Draining { deadline }, since);
        if !record.members.iter().any(|entry| entry.state == State::Active) {
            return refused(format!("'{id}' is the last active node; add another one first"));
        }
        if deadline.is_some()
            && let Some(change) = record.change.as_mut().filter(|change| change.takes_out(id))
        {
            (change.paused, change.rate) = (false, None);
        }
        record.kept.take_if(|_| deadline.is_some());
        step(record, format!("{id} drains"))
    }

    /// Keeps a draining member in the ring.
    ///
    /// # Errors
    /// [`Refused`] when it does not drain, or when its change is in flight (abort that first).
    pub fn undrained(&self, id: &str) -> Step {
        if let Some(change) = self.change.as_ref().filter(|change| change.takes_out(id)) {
            return refused(format!("change {} removes '{id}'; abort it first", change.number));
        }
        let mut record = self.clone();
        let since = record.version;
        let entry = record.entry_mut(id)?;
        if !matches!(entry.state, State::Draining { .. }) {
            return refused(format!("node '{id}' is {}, it does not drain", entry.state.name()));
        }
        (entry.state, entry.since) = (State::Active, since);
        step(record, format!("{id} drains no more"))
    }

    /// Removes nodes that an operator knows to be dead for good. Members leave the ring at once,
    /// also while the brake holds; other nodes are forgotten.
    ///
    /// # Errors
    /// [`Refused`] when a node is unknown or no member would be left.
    pub fn condemned(&self, ids: &[String]) -> Step {
        let mut record = self.clone();
        let since = record.version;
        for id in ids {
            let entry = record.entry_mut(id)?;
            if entry.state.in_ring() {
                (entry.state, entry.since) = (State::Condemned, since);
            }
        }
        let left = |entry: &Entry| entry.state.in_ring() && entry.state != State::Condemned;
        if !record.members.iter().any(|entry| left(entry) || entry.state == State::Joining) {
            return refused("this would leave no member in the ring; start another node first");
        }
        record.forget(ids);
        step(record, format!("{} removed by an operator's word", ids.join(", ")))
    }

    /// Forgets joiners that are gone again.
    ///
    /// # Errors
    /// [`Refused`] when one of them is in the ring or in the change in flight.
    pub fn forgotten(&self, ids: &[String]) -> Step {
        let mut record = self.clone();
        record.forget(ids);
        record.checked(format!("{} forgotten", ids.join(", ")))
    }

    /// Adds snapshots that were opened; known ones stay as they are. Without room it forgets those
    /// opened longest ago, but not while shards move. A node that still uses one tells it again.
    ///
    /// # Errors
    /// [`Refused`] when there is no room for any of them.
    pub fn opened(&self, datasets: &[DatasetRecord]) -> Step {
        let mut shelf = Shelf::new(&self.datasets, self.is_at_rest());
        for dataset in datasets {
            shelf.add(dataset);
        }
        let (added, forgotten) = (shelf.added.len(), shelf.forgotten);
        if added == 0 {
            return refused("the record knows the datasets already, or has no room for them now");
        }
        let datasets = shelf.known.iter().chain(&shelf.added).copied().cloned().collect();
        let words = match forgotten {
            0 => format!("{added} datasets opened"),
            _ => format!("{added} datasets opened, {forgotten} forgotten for them"),
        };
        step(Self { datasets, ..self.clone() }, words)
    }

    /// Whether nothing is to be moved or dropped.
    fn is_at_rest(&self) -> bool {
        self.change.is_none() && self.settling.is_none()
    }

    /// Returns a description of a change of this record's ring.
    fn told(&self, change: &Change) -> String {
        let Change { moves, bytes, asked_by, .. } = change;
        let replicas = change.replicas(self).map(|replicas| {
            format!(
                "{replicas} {} of each shard",
                if replicas == 1 { "replica" } else { "replicas" }
            )
        });
        let edits = change.edits.iter().map(|edit| match edit {
            Edit::Put(Member { id, weight, .. }) => format!("{id} with weight {weight}"),
            Edit::Remove(id) => format!("without {id}"),
        });
        let what: Vec<String> = replicas.into_iter().chain(edits).collect();
        let (moves, bytes) = (Counted(*moves, "shard"), Bytes(*bytes));
        format!("{} ({moves}, {bytes}), asked by {asked_by}", what.join(", "))
    }

    fn in_flight(&self) -> Result<&Change, Refused> {
        self.change.as_ref().ok_or_else(no_change)
    }

    fn in_flight_mut(&mut self) -> Result<&mut Change, Refused> {
        self.change.as_mut().ok_or_else(no_change)
    }

    fn entry_mut(&mut self, id: &str) -> Result<&mut Entry, Refused> {
        let found = self.members.iter_mut().find(|entry| entry.member.id == id);
        found.ok_or_else(|| {
            Refused::new(format!("no node is named '{id}'; see 'larder ring status'"))
        })
    }

    fn check_base(&self, plan: &RingPlan) -> Result<(), Refused> {
        if plan.base != self.version {
            return refused(format!(
                "the plan is for ring {}, the ring is at {} by now; plan again",
                plan.base, self.version
            ));
        }
        if edited(&self.ring_members(), &plan.edits).is_empty() {
            return refused("this would leave no member in the ring; start another node first");
        }
        Ok(())
    }

    /// Applies the edits of a plan to the entries.
    fn cast(&mut self, edits: &[Edit], since: u64) {
        for edit in edits {
            let Ok(entry) = self.entry_mut(edit.id()) else {
                continue;
            };
            match edit {
                Edit::Put(member) => {
                    // As planned, but for the address, which may be newer than the plan.
                    let control = std::mem::take(&mut entry.member.control);
                    entry.member = Member { control, ..member.clone() };
                    if !entry.state.in_ring() {
                        (entry.state, entry.since) = (State::Active, since);
                    }
                }
                // A draining or condemned member is gone for good; a dead one may return.
                Edit::Remove(_) if entry.state == State::Active => {
                    (entry.state, entry.since) = (State::Down, since);
                }
                Edit::Remove(id) => self.members.retain(|entry| entry.member.id != *id),
            }
        }
    }

    /// Drains active members that a plan removes.
    fn release(&mut self, edits: &[Edit]) {
        let since = self.version;
        for edit in edits {
            if let Edit::Remove(id) = edit
                && let Ok(entry) = self.entry_mut(id)
                && entry.state == State::Active
            {
                (entry.state, entry.since) = (State::Draining { deadline: None }, since);
            }
        }
    }

    /// Takes back the states that led agents to a change.
    fn hold(&mut self, edits: &[Edit]) {
        let since = self.version;
        for entry in &mut self.members {
            if !edits.iter().any(|edit| edit.id() == entry.member.id) {
                continue;
            }
            let held = match entry.state {
                State::Joining | State::Down => State::Held,
                State::Draining { .. } => State::Active,
                other => other,
            };
            (entry.state, entry.since) = (held, since);
        }
    }

    /// Gives the ring its next version.
    fn advance(&mut self, before: &[Member], scheme: Scheme, placement: Option<BlobId>) {
        let undo = edits_between(&self.ring_members(), before);
        let (version, placement_before) = (self.version, self.placement);
        let previous = Previous { version, undo, scheme: self.scheme, placement: placement_before };
        self.previous = Some(previous);
        (self.scheme, self.placement) = (scheme, placement);
        self.version += 1;
    }

    fn forget(&mut self, ids: &[String]) {
        self.members.retain(|entry| entry.state.in_ring() || !ids.contains(&entry.member.id));
    }

    /// Says when the changes were over that are not in the record `before`: now.
    pub fn date_history(&mut self, before: Option<&Self>, now_ms: u64) {
        let known = before.and_then(|before| before.history.last()).map_or(0, |past| past.number);
        let ended = self.history.iter_mut().rev().take_while(|past| past.number > known);
        ended.for_each(|past| past.at_ms = now_ms);
    }

    fn remember(&mut self, change: &Change, committed: bool, words: &str) {
        self.push_past(change.number, change.plan, &change.asked_by, committed, words);
    }

    fn push_past(
        &mut self,
        number: u64,
        plan: BlobId,
        asked_by: &str,
        committed: bool,
        words: &str,
    ) {
        let cut = words.floor_char_boundary(limits::RECORD_WORDS_BYTES_MAX);
        let (words, asked_by) = (words[..cut].to_owned(), asked_by.to_owned());
        let (version, at_ms) = (self.version, 0);
        self.history.push(Past { number, plan, version, committed, words, asked_by, at_ms });
        let surplus = self.history.len().saturating_sub(RECORD_HISTORY_MAX);
        self.history.drain(..surplus);
    }

    fn checked(self, words: impl Into<String>) -> Step {
        self.check().map_err(Refused)?;
        step(self, words)
    }
}

/// The record's room for datasets.
struct Shelf<'a> {
    /// The datasets from before, the longest open first.
    known: VecDeque<&'a DatasetRecord>,
    added: Vec<&'a DatasetRecord>,
    /// The bytes of all, and of those added.
    bytes: usize,
    bytes_added: usize,
    forgets: bool,
    forgotten: usize,
}

impl<'a> Shelf<'a> {
    fn new(known: &'a [DatasetRecord], forgets: bool) -> Self {
        let bytes = known.iter().map(DatasetRecord::encoded_bytes).sum();
        let known = known.iter().collect();
        Self { known, added: Vec::new(), bytes, bytes_added: 0, forgets, forgotten: 0 }
    }

    fn add(&mut self, dataset: &'a DatasetRecord) {
        let mut all = self.known.iter().chain(&self.added);
        if all.any(|other| other.snapshot == dataset.snapshot) {
            return;
        }
        let size = dataset.encoded_bytes();
        let may_enter = match self.forgets {
            true => fits(self.added.len(), self.bytes_added, size),
            false => self.has_room(size),
        };
        if !may_enter {
            return;
        }
        while !self.has_room(size) {
            self.forget_oldest();
        }
        self.bytes += size;
        self.bytes_added += size;
        self.added.push(dataset);
    }

    /// Whether a dataset of this size has room beside all others.
    fn has_room(&self, size: usize) -> bool {
        fits(self.known.len() + self.added.len(), self.bytes, size)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.known.pop_front();
        self.bytes -= oldest.map_or(0, DatasetRecord::encoded_bytes);
        self.forgotten += 1;
    }
}

/// Whether a dataset of this size has room beside this many with this many bytes.
fn fits(count: usize, bytes: usize, size: usize) -> bool {
    count < limits::RECORD_DATASETS_MAX && bytes + size <= limits::RECORD_DATASETS_BYTES_MAX
}

fn no_change() -> Refused {
    Refused::new("no change is in flight")
}
