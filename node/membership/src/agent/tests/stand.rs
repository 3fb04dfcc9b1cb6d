//! An agent named "a", with a coordinator, a planner and a shell that answer it.

use std::collections::{BTreeMap, VecDeque};

use larder_base::{ShardId, SnapshotId};

use super::super::*;
use crate::{
    BlobId, BootId, PlanBlobs, Planner, Revision,
    announcement::Settled,
    plan::{Edit, Task},
    record::{Audit, Change, Refused, State},
    testing::{RingOnly, member},
};

pub(super) struct Stand {
    pub(super) agent: Agent,
    now: Now,
    pub(super) record: Record,
    revision: Revision,
    blobs: BTreeMap<BlobId, Vec<u8>>,
    pub(super) alive: BTreeMap<String, Announcement>,
    stamp: u64,
    events: VecDeque<Event>,
    /// Whether questions to the coordinator are answered.
    pub(super) answers: bool,
    /// Whether questions are refused at once.
    pub(super) refuses: bool,
    /// Whether answers to proposals show a record of another cluster as the newest.
    pub(super) strange: bool,
    /// Questions to the coordinator.
    pub(super) asked: u64,
    /// Whether answers to proposals are lost, though they are taken.
    pub(super) loses_answers: bool,
    /// Whether pulls end; else they wait.
    pub(super) pulls: bool,
    waiting_pulls: Vec<Shard>,
    /// Whether the planner answers at once; else it thinks.
    pub(super) plans: bool,
    waiting_plans: Vec<(Ticket, Task)>,
    /// Questions to the planner.
    pub(super) planned: u64,
    /// A node that is started anew when a ring is committed.
    pub(super) restarts_at_commit: Option<&'static str>,
    pub(super) writes: u64,
    pub(super) pulled: u64,
    /// Pulls that were to give client reads precedence.
    pub(super) yielded: u64,
    pub(super) dropped: u64,
    replies: Vec<Result<Answer, String>>,
    lines: Vec<String>,
    tickets: u64,
}

impl Stand {
    /// All members are here, and the agent has seen so for long enough to act.
    pub(super) fn new(record: Record) -> Self {
        let mut stand = Self::deaf(record);
        stand.answers = true;
        stand.pass(20);
        stand
    }

    /// As `new`, but the coordinator answers no question yet.
    pub(super) fn deaf(record: Record) -> Self {
        let me = Identity { member: member("a", 1), boot: boot(1), founds: None, epoch_ms: 1 };
        let here = |entry: &crate::record::Entry| (entry.member.id.clone(), announcement());
        let mut stand = Self {
            agent: Agent::new(me, Timing::REAL, Now::ZERO),
            now: Now::ZERO,
            alive: record.members.iter().map(here).collect(),
            record,
            revision: Revision(1),
            blobs: BTreeMap::new(),
            stamp: 1,
            events: VecDeque::new(),
            answers: false,
            refuses: false,
            strange: false,
            asked: 0,
            loses_answers: false,
            pulls: true,
            waiting_pulls: Vec::new(),
            plans: true,
            waiting_plans: Vec::new(),
            planned: 0,
            restarts_at_commit: None,
            writes: 0,
            pulled: 0,
            yielded: 0,
            dropped: 0,
            replies: Vec::new(),
            lines: Vec::new(),
            tickets: 1 << 32,
        };
        stand.tell_record();
        stand.tell_alive();
        stand
    }

    /// So many seconds pass.
    pub(super) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.sleep(1);
        }
    }

    /// So much time passes at once.
    pub(super) fn sleep(&mut self, seconds: u64) {
        self.now += Now::from_secs(seconds);
        self.tell(Event::Tick);
    }

    /// Tells the agent an event, and all events that follow from it.
    pub(super) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        while let Some(event) = self.events.pop_front() {
            for effect in self.agent.handle(self.now, event) {
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Announce(bytes) => {
                let said = Announcement::decode(&bytes).unwrap();
                if self.alive.insert("a".to_owned(), said.clone()) != Some(said) {
                    self.changed_alive();
                }
            }
            Effect::Refresh(ticket) => {
                self.asked += 1;
                if self.refuses {
                    self.events.push_back(Event::Refreshed(ticket, None));
                } else if self.answers {
                    let answer = Some((Some(self.stored()), self.set()));
                    self.events.push_back(Event::Refreshed(ticket, answer));
                }
            }
            Effect::Propose { ticket, blobs, expected, record } => {
                self.writes += 1;
                if self.strange {
                    let moved = ProposalOutcome::Moved(Some(self.stored()));
                    return self.events.push_back(Event::Proposed(ticket, moved));
                }
                assert_eq!(expected, Some(self.revision), "nobody else writes");
                self.blobs.extend(blobs.into_iter().map(|blob| (BlobId::of(&blob), blob)));
                self.take(Record::decode(&record).unwrap());
                let lost = self.loses_answers;
                let outcome = if lost {
                    ProposalOutcome::Unknown
                } else {
                    ProposalOutcome::Done(self.revision)
                };
                self.events.push_back(Event::Proposed(ticket, outcome));
            }
            Effect::Plan(ticket, task) => {
                self.planned += 1;
                self.waiting_plans.push((ticket, task));
                if self.plans {
                    self.finish_plans();
                }
            }
            Effect::Fetch(id) => {
                self.events.push_back(Event::Blob(id, self.blobs.get(&id).cloned()));
            }
            Effect::Install { ring, .. } => self.events.push_back(Event::Installed(ring.version)),
            Effect::Pull { shard, yields, .. } => {
                self.pulled += 1;
                self.yielded += u64::from(yields);
                self.waiting_pulls.push(shard);
                if self.pulls {
                    self.finish_pulls();
                }
            }
            // No source tells its last uses.
            Effect::AskLastUses { .. } => {}
            Effect::Drop(_) => self.dropped += 1,
            Effect::Reply(_, reply) => self.replies.push(reply),
            Effect::Audit(line) | Effect::Alarm(line) => self.lines.push(line),
            Effect::Withdraw | Effect::Sweep { .. } => {}
        }
    }

    fn take(&mut self, record: Record) {
        if record.version > self.record.version
            && let Some(id) = self.restarts_at_commit.take()
        {
            self.alive.insert(id.to_owned(), announcement());
            self.changed_alive();
        }
        self.record = record;
        self.revision = Revision(self.revision.0 + 1);
    }

    /// The planner answers.
    pub(super) fn finish_plans(&mut self) {
        let shard =
            |number| (SnapshotId::from_bytes([1; 32]), ShardId::from_bytes([number; 16]), 1 << 20);
        let planner = RingOnly { shards: (0..50).map(shard).collect() };
        for (ticket, task) in std::mem::take(&mut self.waiting_plans) {
            let planned = planner.plan(&task, None);
            self.events.push_back(Event::Planned(ticket, planned));
        }
    }

    pub(super) fn finish_pulls(&mut self) {
        for shard in std::mem::take(&mut self.waiting_pulls) {
            self.events.push_back(Event::Pulled(shard, Pulled::Verified));
        }
    }

    /// Another node writes the record.
    pub(super) fn write(&mut self, step: impl FnOnce(&Record) -> Result<Audit, Refused>) {
        let record = step(&self.record).unwrap().record;
        self.take(record);
        self.tell_record();
    }

    fn tell_record(&mut self) {
        self.tell(Event::Record(self.stored()));
    }

    pub(super) fn tell_alive(&mut self) {
        self.changed_alive();
        self.tell(Event::Tick);
    }

    fn changed_alive(&mut self) {
        self.stamp += 1;
        self.events.push_back(Event::Alive(self.set()));
    }

    pub(super) fn stored(&self) -> StoredRecord {
        let mut record = self.record.clone();
        if self.strange {
            record.cluster = [2; 16];
        }
        StoredRecord { revision: self.revision, bytes: record.encode().unwrap() }
    }

    fn set(&self) -> Alive {
        let nodes = self.alive.iter().map(|(id, said)| (id.clone(), said.encode()));
        Alive { stamp: self.stamp, nodes: nodes.collect() }
    }

    /// The coordinator has an earlier record than it had, as after a restore.
    pub(super) fn put_back(&mut self, record: Record) {
        self.record = record;
        self.revision = Revision(self.revision.0 - 1);
    }

    pub(super) fn gone(&mut self, id: &str) {
        self.alive.remove(id);
        self.tell_alive();
    }

    /// A node is announced, but the watch does not tell the agent.
    pub(super) fn come_unseen(&mut self, id: &str) {
        self.alive.insert(id.to_owned(), announcement());
        self.stamp += 1;
    }

    pub(super) fn come(&mut self, id: &str) {
        self.alive.insert(id.to_owned(), announcement());
        self.tell_alive();
    }

    /// Another process is announced under a node's name.
    pub(super) fn come_twice(&mut self, id: &str) {
        self.alive.insert(id.to_owned(), Announcement { boot: boot(2), ..announcement() });
        self.tell_alive();
    }

    /// A node announces that it has all shards of the change in flight.
    pub(super) fn settle(&mut self, id: &str) {
        let plan = self.change().plan;
        self.say(id, Settled { plan, gaps: 0, clean: false });
    }

    /// A node announces this of a plan.
    pub(super) fn say(&mut self, id: &str, settled: Settled) {
        let settled = vec![settled];
        self.alive.insert(id.to_owned(), Announcement { settled, ..announcement() });
        self.tell_alive();
    }

    /// Asks as an operator; the answer comes at once.
    pub(super) fn command(&mut self, command: Command) -> Result<Answer, String> {
        self.tickets += 1;
        self.tell(Event::Command(Ticket(self.tickets), command));
        self.replies.pop().expect("an answer")
    }

    pub(super) fn change(&self) -> &Change {
        self.record.change.as_ref().expect("a change is in flight")
    }

    /// The plan of these edits.
    pub(super) fn plan(&mut self, edits: Vec<Edit>) -> Vec<u8> {
        match self.command(Command::Plan { edits, replicas: None }) {
            Ok(Answer::Planned(planned)) => planned.plan,
            other => panic!("a plan was asked for: {other:?}"),
        }
    }

    /// A plan that was put, as an operator keeps it.
    pub(super) fn planned(&self, plan: BlobId) -> PlanBlobs {
        PlanBlobs { plan: self.blobs[&plan].clone(), placement: None }
    }

    pub(super) fn version(&self) -> u64 {
        self.record.version
    }

    pub(super) fn state(&self, id: &str) -> Option<State> {
        self.record.entry(id).map(|entry| entry.state)
    }

    /// The members of the ring.
    pub(super) fn ids(&self) -> Vec<&str> {
        self.record.in_ring().map(|entry| entry.member.id.as_str()).collect()
    }

    /// How many alarms contain these words.
    pub(super) fn alarms(&self, words: &str) -> usize {
        self.lines.iter().filter(|line| line.contains(words)).count()
    }
}

fn boot(number: u8) -> BootId {
    BootId::from_bytes([number; 16])
}

/// The announcement of a node that has settled no plan.
fn announcement() -> Announcement {
    Announcement { boot: boot(1), version: 1, settled: Vec::new() }
}
