//! The shell around an agent, as in `larder-node`: performs effects, feeds events.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use larder_base::SnapshotId;
use larder_membership::{
    Agent, BlobId, Record, Revision, Timing,
    agent::{
        Answer, Bootstrap, Command, Effect, Event, Identity, LastUses, ProposalOutcome, Pulled,
        Shard, StoredRecord,
    },
};

use super::{
    Changed, Item, Place, Request, Response, ShardNo, TICK, World,
    node::{Copy, Node, Pull},
};
use crate::bugs::Mishap;

/// A request is given up after this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl World {
    pub(super) fn start(&mut self, place: Place) {
        let node = &mut self.nodes[place];
        if node.agent.is_some() {
            return;
        }
        node.boot += 1;
        node.started = self.now;
        let copies = u8::try_from(self.scene.replicas).expect("one or two");
        let founds = (place == 0).then_some(Bootstrap { cluster: [9; 16], replicas: copies });
        let me = Identity { member: node.member(), boot: node.boot_id(), founds, epoch_ms: 1 };
        node.agent = Some(Agent::with_rules(me, Timing::REAL, Duration::ZERO, self.planted));
        let boot = node.boot;
        self.after(TICK, Item::Tick(place, boot));
        self.tell(place, boot, Event::Tick);
    }

    /// Tells a node's agent an event, now or when the node wakes up, and performs the effects.
    pub(super) fn tell(&mut self, place: Place, boot: u32, event: Event) {
        let node = &mut self.nodes[place];
        if !node.runs(boot) {
            return;
        }
        if self.now < node.paused_until {
            let wait = node.paused_until - self.now;
            return self.after(wait, Item::Tell(place, boot, event));
        }
        let clock = self.now - node.started;
        let Some(mut agent) = node.agent.take() else {
            return;
        };
        let effects = agent.handle(clock, event);
        self.nodes[place].agent = Some(agent);
        self.check_agent(place);
        for effect in effects {
            self.note(&(place, boot, std::mem::discriminant(&effect)));
            self.perform(place, boot, effect);
        }
    }

    fn perform(&mut self, place: Place, boot: u32, effect: Effect) {
        match effect {
            Effect::Announce(bytes) => {
                let mut words = bytes.clone();
                let node = &mut self.nodes[place];
                if self.planted.world(Mishap::OldWordsAfterRestart) && boot > 1 {
                    words.clone_from(&node.last_words);
                } else {
                    node.last_words = bytes;
                }
                self.send(place, boot, Request::Announce(words));
            }
            Effect::Withdraw => self.send(place, boot, Request::Withdraw),
            Effect::Refresh(ticket) => self.send(place, boot, Request::Refresh(ticket)),
            Effect::Propose { ticket, blobs, expected, record } => {
                if self.nodes[place].away {
                    self.wrong(format!("n{place} proposes while the coordinator is away"));
                }
                self.send(place, boot, Request::Propose { ticket, blobs, expected, record });
            }
            Effect::Plan(ticket, task) => {
                let planned = self.plan(place, &task);
                let wait = Duration::from_millis(self.rng.u64(1..2_000));
                self.after(wait, Item::Tell(place, boot, Event::Planned(ticket, planned)));
            }
            Effect::Fetch(blob) => self.send(place, boot, Request::Fetch(blob)),
            Effect::Sweep { at, keep } => self.send(place, boot, Request::Sweep { at, keep }),
            Effect::Install { ring, previous } => {
                self.check_install(place, &ring);
                self.nodes[place].installing = Some((ring, previous));
                self.install_on(place, boot);
            }
            Effect::Pull { plan, shard, from, .. } => self.pull(place, boot, plan, shard, from),
            Effect::AskLastUses { plan, givers, wanted } => {
                self.tell_last_uses(place, boot, plan, (givers, &wanted));
            }
            Effect::Drop(shard) => self.drop_copy(place, shard),
            Effect::Reply(ticket, answer) => {
                self.nodes[place].commands.remove(&ticket);
                if let Ok(Answer::Planned(planned)) = answer {
                    // The operator looks at it for a while.
                    let apply = Command::Apply { planned, rate: None, asked_by: "op".to_owned() };
                    let wait = Duration::from_millis(self.rng.u64(..20_000));
                    self.after(wait, Item::Command(place, apply));
                }
            }
            Effect::Audit(words) | Effect::Alarm(words) => {
                self.say(|| format!("n{place}: {words}"));
                self.note(&words);
            }
        }
    }

    /// Sends a request to the coordinator, and stops waiting for the answer after a while.
    pub(super) fn send(&mut self, place: Place, boot: u32, request: Request) {
        self.numbers += 1;
        let number = self.numbers;
        self.nodes[place].asked.insert(number);
        self.after(ANSWER_TIMEOUT, Item::GiveUp(place, boot, number, request.clone()));
        // A coordinator sweeps when it has time.
        let sweeps = matches!(request, Request::Sweep { .. });
        let wait = Duration::from_millis(if sweeps { self.rng.u64(..4_000) } else { 0 });
        let to = self.network.coordinator();
        if let Some(travel) = self.network.travel(&mut self.rng, place, to) {
            self.after(travel + wait, Item::Ask(place, boot, number, request));
        }
    }

    pub(super) fn ask(&mut self, place: Place, boot: u32, number: u64, request: Request) {
        if !self.coordinator.up {
            return;
        }
        let id = self.nodes[place].id.clone();
        if matches!(request, Request::Announce(_)) {
            // An earlier start of the node announced it: it no longer counts.
            let node = &self.nodes[place];
            if node.boot != boot || self.now < node.muted_until {
                return;
            }
            self.after(Timing::REAL.announcement_ttl, Item::Expire);
        }
        let (response, changed) = self.coordinator.answer(self.now, &id, request, self.planted);
        if changed.record || matches!(response, Response::Proposed(_, ProposalOutcome::Done(_))) {
            self.check_record(Some(place));
        }
        if matches!(response, Response::Nothing) {
            self.check_blobs();
        }
        self.publish(changed);
        let from = self.network.coordinator();
        if let Some(travel) = self.network.travel(&mut self.rng, from, place) {
            self.after(travel, Item::Answer(place, boot, number, response));
        }
    }

    /// Tells all watchers the changes.
    pub(super) fn publish(&mut self, changed: Changed) {
        let from = self.network.coordinator();
        if changed.alive {
            self.say(|| format!("announced: {}", self.coordinator.announced().join(", ")));
        }
        for place in 0..self.nodes.len() {
            let boot = self.nodes[place].boot;
            let Node { records_stall_until, alive_stalls_until, .. } = self.nodes[place];
            if changed.record
                && self.now >= records_stall_until
                && let Some(stored) = self.coordinator.stored()
                && let Some(travel) = self.network.travel(&mut self.rng, from, place)
            {
                self.after(travel, Item::Tell(place, boot, Event::Record(stored)));
            }
            if changed.alive
                && self.now >= alive_stalls_until
                && let Some(travel) = self.network.travel(&mut self.rng, from, place)
            {
                let alive = Event::Alive(self.coordinator.alive());
                self.after(travel, Item::Tell(place, boot, alive));
            }
        }
    }

    pub(super) fn answered(&mut self, place: Place, boot: u32, number: u64, response: Response) {
        let node = &mut self.nodes[place];
        if !node.runs(boot) {
            return;
        }
        if self.now < node.paused_until {
            let wait = node.paused_until - self.now;
            return self.after(wait, Item::Answer(place, boot, number, response));
        }
        if !node.asked.remove(&number) {
            return;
        }
        if std::mem::take(&mut node.away) {
            self.tell(place, boot, Event::Back);
        }
        match response {
            Response::Nothing => {}
            Response::Refreshed(ticket, stored, alive) => {
                self.tell(place, boot, Event::Refreshed(ticket, Some((stored, alive))));
            }
            Response::Proposed(ticket, outcome) => {
                self.tell(place, boot, Event::Proposed(ticket, outcome));
            }
            Response::Blob(blob, bytes) if self.nodes[place].fetching.remove(&blob) => {
                self.fetched(place, boot, blob, bytes);
            }
            Response::Blob(blob, bytes) => {
                self.tell(place, boot, Event::Blob(blob, bytes));
            }
        }
    }

    pub(super) fn give_up(&mut self, place: Place, boot: u32, number: u64, request: Request) {
        let node = &mut self.nodes[place];
        if !node.runs(boot) {
            return;
        }
        if self.now < node.paused_until {
            let wait = node.paused_until - self.now;
            return self.after(wait, Item::GiveUp(place, boot, number, request));
        }
        if !node.asked.remove(&number) {
            return;
        }
        if !std::mem::replace(&mut node.away, true) {
            self.tell(place, boot, Event::Away);
        }
        match request {
            Request::Refresh(ticket) => self.tell(place, boot, Event::Refreshed(ticket, None)),
            Request::Propose { ticket, expected, .. } => {
                let outcome = match expected {
                    Some(revision) if self.planted.world(Mishap::UnknownAsDone) => {
                        ProposalOutcome::Done(Revision(revision.0 + 1))
                    }
                    _ => ProposalOutcome::Unknown,
                };
                self.tell(place, boot, Event::Proposed(ticket, outcome));
            }
            Request::Fetch(blob) if self.nodes[place].fetching.remove(&blob) => {
                self.fetched(place, boot, blob, None);
            }
            Request::Fetch(blob) => self.tell(place, boot, Event::Blob(blob, None)),
            Request::Announce(_) | Request::Withdraw | Request::Sweep { .. } => {}
        }
    }

    /// Tells the sources' last uses, each shard with some time since its last read.
    fn tell_last_uses(
        &mut self,
        place: Place,
        boot: u32,
        plan: BlobId,
        (givers, wanted): (BTreeMap<String, BTreeSet<SnapshotId>>, &BTreeMap<Shard, usize>),
    ) {
        let mut uses = LastUses::default();
        for (giver, snapshots) in givers {
            let Some(giver) = self.place_of(&giver).filter(|giver| *giver != place) else {
                continue;
            };
            if !self.nodes[giver].answers(self.now) || !self.network.both_ways(place, giver) {
                continue;
            }
            let shards = self.nodes[giver].copies.keys().map(|number| self.shards[*number].shard);
            for shard in shards.filter(|shard| snapshots.contains(&shard.snapshot)) {
                uses.note(shard, Duration::from_secs(self.rng.u64(..3_600)), wanted);
            }
        }
        let wait = Duration::from_millis(self.rng.u64(1..5_000));
        self.after(wait, Item::Tell(place, boot, Event::LastUses(plan, uses)));
    }

    fn pull(&mut self, place: Place, boot: u32, plan: BlobId, shard: Shard, from: String) {
        self.check_pull(place, plan, shard);
        self.nodes[place].pulling.insert(shard);
        if self.planted.world(Mishap::SealSkipped) {
            let copy = Copy { wrong: true, since: self.now };
            self.nodes[place].copies.entry(self.by_id[&shard]).or_insert(copy);
        }
        let wait = Duration::from_millis(self.rng.u64(100..1_500));
        self.after(wait, Item::Pulled(place, boot, Pull { plan, shard, from }));
    }

    pub(super) fn pulled(&mut self, place: Place, boot: u32, pull: Pull) {
        let node = &self.nodes[place];
        if !node.runs(boot) {
            return;
        }
        if self.now < node.paused_until {
            let wait = node.paused_until - self.now;
            return self.after(wait, Item::Pulled(place, boot, pull));
        }
        let shard = self.by_id[&pull.shard];
        let how = self.bring(place, shard, &pull);
        self.say(|| format!("n{place} pulls shard {shard} from {}: {how:?}", pull.from));
        let node = &mut self.nodes[place];
        node.pulling.remove(&pull.shard);
        if how == Pulled::Verified {
            node.verified.insert(shard);
        }
        if matches!(how, Pulled::NoRoom | Pulled::Gone) {
            self.checks.gap(pull.plan, shard, place);
        }
        if let Some(how) = self.planted.heard(how) {
            self.tell(place, boot, Event::Pulled(pull.shard, how));
        }
    }

    /// Pulls a shard from its source, else from any node, else from the origin.
    fn bring(&mut self, place: Place, shard: ShardNo, pull: &Pull) -> Pulled {
        if let Some(copy) = self.nodes[place].copies.get_mut(&shard) {
            if self.planted.world(Mishap::SealSkipped) {
                copy.wrong = false;
            }
            return Pulled::Verified;
        }
        let giver = self.place_of(&pull.from);
        let others = (0..self.nodes.len()).filter(|other| *other != place);
        let holders: Vec<Place> = giver.into_iter().chain(others).collect();
        let holder = holders.into_iter().find(|holder| self.has(place, *holder, shard));
        let by_origin = self.planted.world(Mishap::PullFromOrigin);
        let copy = match holder.filter(|_| !by_origin) {
            Some(holder) => Copy { since: self.now, ..self.nodes[holder].copies[&shard] },
            None => match self.fill_from_origin(shard) {
                Some(copy) => {
                    if holder.is_some() {
                        self.checks.violate(
                            self.now,
                            format!("n{place} pulled shard {shard} from the origin, not a peer"),
                        );
                    }
                    copy
                }
                None if holder.is_none() && self.overwritten[shard] => return Pulled::Gone,
                None => return Pulled::Failed,
            },
        };
        if !self.make_room(place) {
            return Pulled::NoRoom;
        }
        self.nodes[place].copies.insert(shard, copy);
        self.checks.moved += 1;
        Pulled::Verified
    }

    /// Whether `asker` can have the shard from `holder` now.
    pub(super) fn has(&self, asker: Place, holder: Place, shard: ShardNo) -> bool {
        let node = &self.nodes[holder];
        node.answers(self.now)
            && node.copies.contains_key(&shard)
            && self.network.both_ways(asker, holder)
    }

    /// Returns a copy from the origin, if it answers and still has the snapshot's version.
    pub(super) fn fill_from_origin(&self, shard: ShardNo) -> Option<Copy> {
        let other_version = self.overwritten[shard];
        let taken = !other_version || self.planted.world(Mishap::IfMatchDropped);
        (self.origin_up && taken).then_some(Copy { wrong: other_version, since: self.now })
    }

    /// Makes room for one more shard. Shards that the node does not own are evicted first.
    pub(super) fn make_room(&mut self, place: Place) -> bool {
        let room = self.scene.room;
        let node = &self.nodes[place];
        if node.copies.len() < room {
            return true;
        }
        let wanted = |shard: &ShardNo| {
            let owned = node.in_use.as_ref().is_some_and(|used| used.placed.owns(place, *shard));
            owned || node.verified.contains(shard)
        };
        let foreign = node.copies.keys().copied().find(|shard| !wanted(shard));
        foreign.is_some_and(|shard| self.evict(place, shard))
    }

    /// Evicts a copy, and tells the agent.
    pub(super) fn evict(&mut self, place: Place, shard: ShardNo) -> bool {
        let node = &mut self.nodes[place];
        let boot = node.boot;
        node.verified.remove(&shard);
        let lost = node.lose(shard, self.now);
        self.say(|| format!("n{place} evicts shard {shard}: {lost}"));
        let shard = self.shards[shard].shard;
        if lost {
            self.after(Duration::ZERO, Item::Tell(place, boot, Event::Lost(shard)));
        }
        lost
    }

    fn drop_copy(&mut self, place: Place, shard: Shard) {
        let number = self.by_id[&shard];
        self.check_drop(place, number);
        let mut gone = vec![number];
        if self.planted.world(Mishap::DropsNeighbour) {
            gone.push((number + 1) % self.shards.len());
        }
        for shard in gone {
            if shard != number && self.nodes[place].copies.contains_key(&shard) {
                self.check_drop(place, shard);
            }
            self.nodes[place].lose(shard, self.now);
            self.nodes[place].verified.remove(&shard);
        }
    }

    /// Lets the coordinator of another cluster tell a node its record.
    pub(super) fn tell_strange(&mut self, place: Place) {
        let (Some(ours), Some(stored)) = (self.checks.newest(), self.coordinator.stored()) else {
            return;
        };
        let strange = Record { cluster: [1; 16], version: ours.version + 1, ..ours.clone() };
        let knows = self.nodes[place].agent.as_ref().is_some_and(|agent| agent.record().is_some());
        if let Ok(bytes) = strange.encode()
            && knows
        {
            let revision = Revision(stored.revision.0 + 100);
            self.tell_stale(place, StoredRecord { revision, bytes });
        }
    }

    /// A record that another coordinator wrote long ago reaches a node.
    pub(super) fn tell_stale(&mut self, place: Place, stored: StoredRecord) {
        let boot = self.nodes[place].boot;
        self.after(Duration::from_millis(5), Item::Tell(place, boot, Event::Record(stored)));
    }
}
