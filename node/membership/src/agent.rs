//! The agent that each node runs: membership and rebalance as one pure state machine.
//!
//! [`Agent::handle`] takes one event and returns effects, in their order. A shell around it feeds
//! the events, performs the effects and does all waiting.
//!
//! ```text
//!   a planned change in the record               which agent does what
//!
//!   ring 7 ── staged ──▶ ring 7 + change ──▶     an agent asks the planner, puts plan and target,
//!                          │      ▲              and replaces the record; targets pull shards,
//!                          │      └ paused,      reads still go by ring 7
//!                 aborted  │        rated
//!   ring 7 ◀───────────────┤ every target has announced that it has its shards
//!                          ▼
//!                        ring 8, settling ──▶    every agent installs ring 8; sources drop the
//!                          │                     copies that the targets have verified
//!                          │ every member has announced that nothing is left to move or to drop
//!                          ▼
//!                        ring 8
//!
//!   a death: ring 7 ── recast ──▶ ring 8, settling    at once, when the grace is over
//! ```
//!
//! **Turns.** Any agent may act for the cluster: the compare-and-set on the record makes that safe.
//! To avoid conflicts, the k-th of the live members waits k turns. An agent does not act in three
//! cases: it does not see its own announcement, it has just slept, or the coordinator is away.
//!
//! **Unknown outcomes.** A proposal without an answer may have been written, may be written later,
//! or never. The agent then reads the record again and decides anew from that record.
//!
//! The safety rules are in [`Rule`]. The code asks for each by name.
//!
//! Thread rule: one owner; no locks, no waits. Non-goals: sockets, renewing announcements between
//! two effects, choosing which node to pull a shard from, evicting.

mod cleanup;
mod commands;
mod event;
mod intent;
mod liveness;
mod order;
mod proposal;
mod reconcile;
mod rules;
mod transfers;
mod view;

use std::collections::{BTreeMap, VecDeque};

use crate::{
    Announcement, BlobId, BootId, Now, Record, Timing, announcement::Settled, record::DatasetRecord,
};

pub use crate::id::Shard;
pub use event::{
    Alive, Answer, Command, Effect, Event, ProposalOutcome, Pulled, RingOf, Steer, StoredRecord,
    Ticket,
};
pub use liveness::BRAKE_PERCENT;
pub use order::LastUses;
pub use rules::{Rule, Rules, Unbroken};
pub use transfers::PlanProgress;

use cleanup::CopyCleanup;
use intent::{Action, Waiting};
use larder_base::{Member, SnapshotId, limits::RECORD_DATASETS_MAX};
use liveness::Liveness;
use proposal::Proposal;
use transfers::{ShardTransfers, TransferPace};
use view::{Link, RecordView};

/// The node of an agent.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The member that the node wants to be in the ring.
    pub member: Member,
    /// The current start of the node.
    pub boot: BootId,
    /// The cluster to found if there is no record. None for a node that joins a cluster.
    pub founds: Option<Bootstrap>,
    /// Unix time in milliseconds when the agent's own time was zero.
    pub epoch_ms: u64,
}

/// A cluster to be founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bootstrap {
    /// The permanent name of the cluster.
    pub cluster: [u8; 16],
    /// Owners of each shard.
    pub replicas: u8,
}

/// The state machine of one node.
#[derive(Debug, Clone)]
pub struct Agent<R = Unbroken> {
    me: Identity,
    timing: Timing,
    rules: R,
    now: Now,
    view: Option<RecordView>,
    link: Link,
    liveness: Liveness,
    transfers: ShardTransfers,
    cleanup: CopyCleanup,
    /// The next step that the cluster needs, and since when this agent knows of it.
    action: Option<(Action, Now)>,
    proposal: Option<Proposal>,
    /// After a refusal the agent proposes nothing before this time.
    rest_until: Now,
    commands: VecDeque<Waiting>,
    /// Plans that operators asked to see: the planner's ticket, then the operator's.
    shown: BTreeMap<Ticket, Ticket>,
    /// Datasets opened here that the record may not know.
    opened: Vec<DatasetRecord>,
    /// When the agent last put each dataset in `opened`; kept for `dataset_told_interval`.
    told: BTreeMap<SnapshotId, Now>,
    announced: Option<(Announcement, Now)>,
    /// The ring version in use here, and the latest that the shell was told to install.
    installed: u64,
    installing: Option<RingOf>,
    /// The blobs that the last sweep kept.
    swept: Option<Vec<BlobId>>,
    braked: bool,
    /// The record dropped this node from the ring for good: the node does not rejoin by itself.
    left: bool,
    /// When this node last wrote its own entry.
    entered: Option<Now>,
    /// The announcement of this start was seen. An announcement under this name from another start
    /// then comes from another process, not from an earlier start.
    heard: bool,
    /// The ring version in which a change began that gives this node its current host and zone.
    rehoused: Option<u64>,
    stopping: bool,
    tickets: u64,
}

impl Agent {
    /// Creates an agent without a record, with all rules in force.
    pub fn new(me: Identity, timing: Timing, now: Now) -> Self {
        Self::with_rules(me, timing, now, Unbroken)
    }
}

impl<R: Rules> Agent<R> {
    /// Creates an agent without a record, with rules that may be broken: for simulations.
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

    /// Handles one event and returns the effects, in their order. `now` never goes back.
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

    /// Returns the progress of the change in flight, as far as it moves shards to this node.
    pub fn progress(&self) -> Option<PlanProgress> {
        self.transfers.progress(self.record()?.change.as_ref()?.plan)
    }

    /// Returns when this agent wants an extra [`Event::Tick`]. A rate is reached only if the next
    /// pull starts on time, since a pull moves whole shards.
    pub fn due(&self) -> Option<Now> {
        self.transfers.due()
    }

    /// Whether this node is announced, by the last answer that this agent has.
    pub fn hears(&self, id: &str) -> bool {
        self.liveness.here(id)
    }

    /// Whether so many members are gone at once that the agent removes none without an operator.
    pub fn braked(&self) -> bool {
        self.braked
    }

    /// Advances the time. After a sleep this agent's own knowledge is out of date.
    fn wake(&mut self, now: Now) {
        let slept = now.saturating_sub(self.now) > self.timing.announcement_ttl / 2;
        self.now = self.now.max(now);
        if self.rules.demands(Rule::DoubtAfterPause, slept) {
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
            Event::Pulled(shard, pulled) => self.transfers.pulled(now, shard, pulled),
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

    /// Returns the announcement under this node's name.
    fn own_word(&self) -> Option<&Announcement> {
        self.liveness.said(&self.me.member.id)
    }

    /// Whether another process uses this node's name and announced itself last.
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

    /// Installs the committed ring.
    fn install(&mut self, out: &mut Vec<Effect>) {
        let Some(RecordView { record, .. }) = &self.view else {
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

    /// Announces this node when the interval is over or the announcement changed.
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

    /// Queues a dataset to be told to the record. A dataset that the record has forgotten is not
    /// told again within `dataset_told_interval`: more may be in use than the record has room for.
    fn open(&mut self, dataset: DatasetRecord) {
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
