//! What each node runs: the whole protocol of membership and rebalance, as one pure state machine.
//!
//! [`Agent::handle`] is told what happened and answers with what is to be done. A shell around it
//! feeds the events, performs the effects, and owns everything that waits.
//!
//! ```text
//!   a planned change, seen from the record            who does what
//!
//!   ring 7 ── staged ──▶ ring 7 + change ─────────▶   the agent asks the planner, puts plan and target,
//!                          │      ▲                   and replaces the record; receivers pull,
//!                          │      └ paused, rated     reads go by ring 7
//!                 aborted  │
//!   ring 7 ◀───────────────┤ every receiver has announced that it has everything
//!                          ▼
//!                        ring 8, settling ─────────▶  everybody installs ring 8; old owners drop what
//!                          │                          the receivers have verified
//!                          │ everybody has announced that nothing is left to move or to drop
//!                        ring 8
//!   a death: ring 7 ── recast ──▶ ring 8, settling    at once, when the grace is over
//! ```
//!
//! **Who acts.** Any agent may; the compare-and-set on the record makes that safe. To keep quiet
//! the k-th of the alive members waits k steps longer than the first. Nobody acts that does not see
//! its own announcement, that has just slept, or to whom the coordinator does not answer.
//!
//! **What is never assumed.** A proposal without an answer may have been taken, may yet be, or
//! never will: the record is read again. Whatever was decided before is decided anew from what was
//! read.
//!
//! The safety conditions stand in [`Rule`], each asked for by name where it counts.
//!
//! Thread rule: one owner; nothing locks or waits. Non-goals: sockets, renewing announcements
//! between two of ours, choosing among several holders of a shard, evicting.

mod cleanup;
mod commands;
mod event;
mod intent;
mod liveness;
mod order;
mod proposal;
mod reconcile;
mod rules;
mod shard;
mod transfers;
mod view;

use std::collections::{BTreeMap, VecDeque};

use crate::{
    Announcement, BlobId, BootId, Now, Record, Timing, announcement::Settled, record::Dataset,
};

pub use event::{
    Alive, Answer, Command, Effect, Event, Outcome, Pulled, RingOf, Steer, Stored, Ticket,
};
pub use order::LastUses;
pub use rules::{Rule, Rules, Unbroken};
pub use shard::Shard;
pub use transfers::Progress;

use cleanup::CopyCleanup;
use intent::{Action, Waiting};
use larder_base::{Member, SnapshotId, limits::RECORD_DATASETS_MAX};
use liveness::Liveness;
use proposal::Proposal;
use transfers::{ShardTransfers, TransferPace};
use view::{Link, View};

/// Who an agent is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The node as it wants to be in the ring.
    pub member: Member,
    /// This start of it.
    pub boot: BootId,
    /// The cluster that it founds if there is no record; a node that was told to join one has none.
    pub founds: Option<Bootstrap>,
}

/// A cluster that is to be founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bootstrap {
    /// Its name, for ever.
    pub cluster: [u8; 16],
    /// How many owners each shard is to have.
    pub replicas: u8,
}

/// The state machine of one node.
#[derive(Debug, Clone)]
pub struct Agent<R = Unbroken> {
    me: Identity,
    timing: Timing,
    rules: R,
    now: Now,
    view: Option<View>,
    link: Link,
    liveness: Liveness,
    transfers: ShardTransfers,
    cleanup: CopyCleanup,
    /// What the cluster needs, and since when this agent knows.
    action: Option<(Action, Now)>,
    proposal: Option<Proposal>,
    /// After a refusal nothing is proposed before this.
    rest_until: Now,
    commands: VecDeque<Waiting>,
    /// Plans that operators asked to see: our question, and theirs.
    shown: BTreeMap<Ticket, Ticket>,
    /// Datasets opened here that the record may not know.
    opened: Vec<Dataset>,
    /// Since when these were to be told, for a while after that.
    told: BTreeMap<SnapshotId, Now>,
    announced: Option<(Announcement, Now)>,
    /// The ring version in use here, and the one that was asked to be.
    installed: u64,
    installing: Option<RingOf>,
    /// What was swept for.
    swept: Option<Vec<BlobId>>,
    braked: bool,
    /// This node was in the ring and was taken out for good: it does not come back by itself.
    left: bool,
    /// When this node last wrote its own entry.
    entered: Option<Now>,
    /// This start of the node was announced: another's word under its name is no leftover of an
    /// earlier one.
    heard: bool,
    /// The ring version at which a change was begun that puts this node where it stands now.
    rehoused: Option<u64>,
    stopping: bool,
    tickets: u64,
}

impl Agent {
    /// An agent that knows nothing yet, with all rules in force.
    pub fn new(me: Identity, timing: Timing, now: Now) -> Self {
        Self::with_rules(me, timing, now, Unbroken)
    }
}

impl<R: Rules> Agent<R> {
    /// An agent that knows nothing yet, with rules that may be broken: for simulations.
    pub fn with_rules(me: Identity, timing: Timing, now: Now, rules: R) -> Self {
        let mut liveness = Liveness::new(timing);
        liveness.doubt(now);
        Self {
            me,
            timing,
            rules,
            now,
            view: None,
            link: Link::new(timing),
            liveness,
            transfers: ShardTransfers::new(timing),
            cleanup: CopyCleanup::default(),
            action: None,
            proposal: None,
            rest_until: now,
            commands: VecDeque::new(),
            shown: BTreeMap::new(),
            opened: Vec::new(),
            told: BTreeMap::new(),
            announced: None,
            installed: 0,
            installing: None,
            swept: None,
            braked: false,
            left: false,
            entered: None,
            heard: false,
            rehoused: None,
            stopping: false,
            tickets: 0,
        }
    }

    /// Takes one event in and says what is to be done, in this order. `now` never goes back.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.wake(now);
        self.take(event, &mut out);
        if !self.stopping {
            self.go_on(&mut out);
        }
        out
    }

    /// The newest record that this agent has seen.
    pub fn record(&self) -> Option<&Record> {
        self.view.as_ref().map(|view| &view.record)
    }

    /// The ring version in use here.
    pub fn installed(&self) -> u64 {
        self.installed
    }

    /// How far the change in flight has come, as far as it brings shards here.
    pub fn progress(&self) -> Option<Progress> {
        self.transfers.progress(self.record()?.change.as_ref()?.plan)
    }

    /// When this agent wants a [`Event::Tick`] before the next that it gets anyway: to reach the
    /// rate of a change, which is cut into whole shards.
    pub fn due(&self) -> Option<Now> {
        self.transfers.due()
    }

    /// Whether this node is announced, as far as this agent was told.
    pub fn hears(&self, id: &str) -> bool {
        self.liveness.here(id)
    }

    /// Whether so much is gone at once that nothing is removed without an operator's word.
    pub fn braked(&self) -> bool {
        self.braked
    }

    /// Time passed. After a sleep this agent's own picture is the one that is out of date.
    fn wake(&mut self, now: Now) {
        let slept = now.saturating_sub(self.now) > self.timing.announcement_ttl / 2;
        self.now = self.now.max(now);
        if slept && !self.rules.broken(Rule::DoubtAfterPause) {
            self.liveness.doubt(now);
            self.link.unsteady(now);
            self.link.ask_soon();
            self.action = None;
        }
    }

    fn take(&mut self, event: Event, out: &mut Vec<Effect>) {
        let now = self.now;
        match event {
            Event::Tick => {}
            Event::Record(stored) => self.see(&stored, out),
            Event::Alive(alive) => self.liveness.update(now, &alive),
            Event::Refreshed(ticket, answer) => self.refreshed(ticket, answer, out),
            Event::Away => self.away(out),
            Event::Back => self.back(),
            Event::Proposed(ticket, outcome) => self.proposed(ticket, outcome, out),
            Event::Planned(ticket, planned) => self.planned(ticket, planned, out),
            Event::Blob(id, Some(bytes)) => self.transfers.arrived(id, &bytes, &self.me.member.id),
            Event::Blob(_, None) => {}
            Event::Installed(version) => self.installed = self.installed.max(version),
            Event::Pulled(shard, pulled) => self.transfers.pulled(now, shard, pulled, &self.rules),
            Event::LastUses(plan, uses) => self.transfers.sort(plan, &uses, &self.rules),
            Event::Lost(shard) => self.transfers.lost(now, shard, &self.rules),
            Event::Command(ticket, command) => self.command(ticket, command, out),
            Event::Opened(dataset) => self.open(dataset),
            Event::Stop => {
                self.stopping = true;
                out.push(Effect::Withdraw);
            }
        }
        self.heard |= self.own_word().is_some_and(|word| word.boot == self.me.boot);
    }

    /// What is announced under this node's name.
    fn own_word(&self) -> Option<&Announcement> {
        self.liveness.said(&self.me.member.id)
    }

    /// Whether another process goes by this node's name, and had the last word.
    fn is_doubled(&self) -> bool {
        self.heard && self.own_word().is_some_and(|word| word.boot != self.me.boot)
    }

    fn go_on(&mut self, out: &mut Vec<Effect>) {
        self.install(out);
        self.move_on(out);
        self.drop_old(out);
        self.announce(out);
        self.propose_next(out);
        self.refresh(out);
    }

    /// Brings the committed ring into use.
    fn install(&mut self, out: &mut Vec<Effect>) {
        let Some(View { record, .. }) = &self.view else {
            return;
        };
        let (ring, previous) = view::rings(record, &self.rules);
        if self.installing.as_ref() != Some(&ring) {
            self.installing = Some(ring.clone());
            out.push(Effect::Install { ring, previous });
        }
    }

    fn move_on(&mut self, out: &mut Vec<Effect>) {
        self.transfers.fetch(self.now, out);
        let change = self.record().and_then(|record| record.change.as_ref()).map(|change| {
            let rate = change.rate.map(|rate| rate / u64::from(change.receivers.max(1)));
            (change.plan, TransferPace { paused: change.paused, rate })
        });
        self.transfers.ask(self.now, change, out);
        let yields = self.record().is_none_or(|record| !record.is_pressed());
        self.transfers.pull(self.now, change, yields, &self.rules, out);
    }

    /// Says that this node lives, when that is due or something new is to be said.
    fn announce(&mut self, out: &mut Vec<Effect>) {
        let moved = self.transfers.moved().into_iter();
        let settled = moved.map(|(plan, gaps)| Settled { plan, gaps, clean: self.clean(plan) });
        let settled = settled.collect();
        let word = Announcement { boot: self.me.boot, version: self.installed, settled };
        let due = self.announced.as_ref().is_none_or(|(said, at)| {
            *said != word || self.now >= *at + self.timing.announcement_interval
        });
        if due {
            out.push(Effect::Announce(word.encode()));
            self.announced = Some((word, self.now));
        }
    }

    fn refresh(&mut self, out: &mut Vec<Effect>) {
        if self.link.should_ask(self.now) {
            let ticket = self.ticket();
            self.link.ask(ticket, self.now);
            out.push(Effect::Refresh(ticket));
        }
    }

    /// A dataset that the record shall know. One that it has forgotten since is not told again at
    /// once: more may be in use than it has room for.
    fn open(&mut self, dataset: Dataset) {
        let known = |record: &Record| record.dataset(dataset.snapshot).is_some();
        let in_record = self.record().is_some_and(known);
        self.told.retain(|_, at| self.now < *at + self.timing.dataset_told_interval);
        let full = self.told.len() >= RECORD_DATASETS_MAX;
        if !in_record && !full && !self.told.contains_key(&dataset.snapshot) {
            self.told.insert(dataset.snapshot, self.now);
            self.opened.push(dataset);
        }
    }

    fn rest(&mut self) {
        self.rest_until = self.now + self.timing.pull_wait_max;
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}

#[cfg(test)]
mod tests;
