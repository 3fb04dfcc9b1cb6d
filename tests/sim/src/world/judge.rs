//! The checks of single effects and of single records.

use std::{collections::BTreeMap, time::Duration};

use larder_base::{Member, limits::PULLS_IN_FLIGHT_MAX};
use larder_membership::{
    BlobId, Now, Record, RingPlan, Timing,
    agent::{BRAKE_PERCENT, RingOf, Shard},
    plan::{Edit, edited},
    record::{Change, Entry, State},
};

use super::{Place, ShardNo, World, planner::SHARD_BYTES};
use crate::placed::committed;
use crate::{
    checks::{Committed, FENCE_LAG, WORD_LAG},
    scene::Kind,
};

/// An operator has an answer by then from a running node: an agent waits for a minute, and may
/// sleep for another.
const COMMAND_PATIENCE: Duration = Duration::from_secs(200);
/// A node last announced this long ago acts no more: it looks every fifteen seconds, a message
/// takes at most eight, and planning two.
const HEARD_LAG: Duration = Duration::from_secs(33);
/// In a calm run a dead member is out of the ring by then.
const CALM_DEATH_MAX: Duration = Duration::from_secs(75);
/// Messages and agents' clocks may be this much apart.
const SLACK: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn wrong(&mut self, words: impl Into<String>) {
        self.checks.violate(self.now, words);
    }

    /// Checks a new record, and the node that wrote it, if any.
    pub(super) fn check_record(&mut self, by: Option<Place>) {
        let Some(stored) = self.coordinator.stored() else {
            return;
        };
        let after = match Record::decode(&stored.bytes) {
            Ok(record) => record,
            Err(why) => return self.wrong(why.to_string()),
        };
        if let Some(before) = self.checks.newest().cloned() {
            self.check_step(&before, &after);
            self.check_actor(&before, &after, by);
        } else if after.version != 1 {
            self.wrong("the first ring is not ring 1");
        }
        let first = self.nodes.len() - usize::from(self.scene.late);
        if self.exact() && after.version == 2 && after.in_ring().count() != first {
            self.wrong("nodes that came together joined in several changes");
        }
        let ring = committed(&after);
        match self.placed(&ring) {
            Ok(placed) => self.checks.advance(self.now, after, ring, placed),
            Err(why) => self.wrong(format!("ring {} is none: {why}", ring.version)),
        }
        self.check_blobs();
    }

    /// Checks that the node that changes the ring on its own is announced.
    fn check_actor(&mut self, before: &Record, after: &Record, by: Option<Place>) {
        let Some(id) = by.map(|place| self.nodes[place].id.clone()) else {
            return;
        };
        let changes = after.version > before.version
            || (after.changes > before.changes && self.staged_by_agent(after));
        let unheard = self.checks.absent.get(&id).filter(|at| self.now > **at + HEARD_LAG);
        if changes && let Some(at) = unheard {
            let unheard = (self.now - *at).as_secs();
            self.wrong(format!("{id} changes the ring though nobody heard it for {unheard} s"));
        }
    }

    /// Checks that the coordinator has all blobs of the record.
    pub(super) fn check_blobs(&mut self) {
        let named = self.checks.newest().map(Record::blobs).unwrap_or_default();
        let missing = named.into_iter().find(|blob| self.coordinator.blob(*blob).is_none());
        if let Some(blob) = missing {
            self.wrong(format!("the record names blob {blob}, which is not there"));
        }
    }

    fn check_step(&mut self, before: &Record, after: &Record) {
        if after.generation < before.generation {
            self.wrong("the generation went back");
        }
        let came_back = after.members.iter().find(|entry| {
            let place = self.place_of(&entry.member.id);
            before.entry(&entry.member.id).is_none()
                && place.is_some_and(|place| self.nodes[place].was_in_ring)
        });
        if let Some(entry) = came_back {
            let id = entry.member.id.clone();
            self.wrong(format!("{id} was taken out for good and came back by itself"));
        }
        if let Some(change) = &after.change
            && before.change.as_ref().map(|change| change.number) != Some(change.number)
        {
            self.check_plan(before, after, change.plan);
        }
        match after.version.checked_sub(before.version) {
            Some(0) => {
                let rings = [before, after].map(|record| names(&record.ring_members()));
                if rings[0] != rings[1] || before.placement != after.placement {
                    self.wrong(format!("ring {} is two rings", after.version));
                }
                if after.settling.is_none()
                    && let Some(why) = before.settling.and_then(|plan| self.unsettled(plan))
                {
                    let version = after.version;
                    self.wrong(format!("ring {version} is said to have settled, but {why}"));
                }
            }
            Some(1) => self.check_advance(before, after),
            _ => self.wrong(format!("ring {} after ring {}", after.version, before.version)),
        }
    }

    fn check_advance(&mut self, before: &Record, after: &Record) {
        match &before.change {
            Some(change) if after.settling == Some(change.plan) && after.change.is_none() => {
                self.check_commit(before, after, change);
            }
            _ if after.settling != before.settling => self.check_recast(before, after),
            _ => self.wrong(format!("ring {} came without a plan", after.version)),
        }
    }

    pub(super) fn plan_of(&self, id: BlobId) -> Option<RingPlan> {
        RingPlan::decode(self.coordinator.blob(id)?).ok()
    }

    /// Whether the change in flight was begun by an agent, not by an operator.
    fn staged_by_agent(&self, record: &Record) -> bool {
        record.change.as_ref().is_some_and(|change| self.place_of(&change.asked_by).is_some())
    }

    /// Checks that agents begin no change while a member is missing.
    pub(super) fn check_all_are_there(&mut self, record: &Record) {
        if !self.staged_by_agent(record) {
            return;
        }
        let missing = record.in_ring().find(|entry| {
            let absent = self.checks.absent.get(&entry.member.id);
            entry.state == State::Active && absent.is_some_and(|at| self.now > *at + WORD_LAG)
        });
        if let Some(entry) = missing {
            let id = entry.member.id.clone();
            self.wrong(format!("a change begins though {id} is missing"));
        }
    }

    /// Checks that everything was moved before the ring changed.
    fn check_commit(&mut self, before: &Record, after: &Record, change: &Change) {
        if change.paused {
            self.wrong("a paused change was committed");
        }
        let wanted = edited(&before.ring_members(), &change.edits);
        if wanted.iter().map(|m| &m.id).ne(after.ring_members().iter().map(|m| &m.id)) {
            self.wrong("the ring that was committed is not the one that was planned");
        }
        let Some(plan) = self.plan_of(change.plan) else {
            return;
        };
        if self.overdue(before, change, &self.checks.draining, Duration::ZERO) {
            return;
        }
        for step in &plan.moves {
            let shard = self.by_id[&Shard { snapshot: step.snapshot, shard: step.shard }];
            let Some(to) = self.place_of(plan.name(step.to)).filter(|_| step.from.is_some()) else {
                continue;
            };
            let held = self.nodes[to].held_lately(shard, self.now, WORD_LAG);
            if !held && !self.checks.has_gap(change.plan, shard, to) {
                let version = after.version;
                return self.wrong(format!("ring {version} before n{to} had shard {shard}"));
            }
        }
    }

    /// Whether this change removes a member with a deadline, counted from `since`, that was over
    /// this long ago.
    fn overdue(
        &self,
        record: &Record,
        change: &Change,
        since: &BTreeMap<String, Now>,
        ago: Duration,
    ) -> bool {
        change.edits.iter().any(|edit| {
            let state = record.entry(edit.id()).map(|entry| entry.state);
            let Some(State::Draining { deadline: Some(deadline) }) = state else {
                return false;
            };
            let since = since.get(edit.id());
            since.is_some_and(|since| self.now + SLACK >= *since + deadline + ago)
        })
    }

    /// Checks that members that left at once were dead or condemned, and not a mass.
    fn check_recast(&mut self, before: &Record, after: &Record) {
        let mut removed = 0;
        for entry in before.in_ring() {
            let id = &entry.member.id;
            let still = after.entry(id).is_some_and(|entry| entry.state.in_ring());
            if still || entry.state == State::Condemned {
                continue;
            }
            removed += 1;
            self.checks.removed.push((self.now, u64::from(entry.member.weight)));
            let absent = self.checks.absence(id, self.now);
            if absent + SLACK < Timing::REAL.death_grace {
                let absent = absent.as_secs();
                self.wrong(format!("{id} was removed after {absent} s of absence"));
            }
        }
        self.check_survivors(before, after);
        let lately = |at: Duration| self.now < at + Timing::REAL.death_grace - 2 * SLACK;
        let gone: Vec<u64> =
            self.checks.removed.iter().filter(|(at, _)| lately(*at)).map(|(_, w)| *w).collect();
        let left: u64 = after.in_ring().map(|entry| u64::from(entry.member.weight)).sum();
        let weight: u64 = gone.iter().sum();
        if removed > 0 && gone.len() > 1 && 100 * weight > BRAKE_PERCENT * (left + weight) {
            self.wrong(format!(
                "{} members were removed at once in spite of the brake",
                gone.len()
            ));
        }
    }

    /// Checks that an installed ring was committed, and is newer than the one in use.
    pub(super) fn check_install(&mut self, place: Place, ring: &RingOf) {
        let known = self.checks.rings.iter().find(|known| known.ring.version == ring.version);
        let same = known.is_some_and(|Committed { ring: known, .. }| {
            (names(&known.members), known.scheme) == (names(&ring.members), ring.scheme)
                && known.placement == ring.placement
        });
        if !same {
            self.wrong(format!("n{place} goes by a ring {} that nobody committed", ring.version));
        }
        let in_use = self.nodes[place].in_use.as_ref().map_or(0, |used| used.version);
        if ring.version < in_use {
            self.wrong(format!("n{place} went back from ring {in_use} to ring {}", ring.version));
        }
    }

    /// Checks that a pull is for a plan in force, not paused, within its rate, and one of few.
    pub(super) fn check_pull(&mut self, place: Place, plan: BlobId, _: Shard) {
        let node = &self.nodes[place];
        if node.pulling.len() >= PULLS_IN_FLIGHT_MAX {
            self.wrong(format!("n{place} pulls more than {PULLS_IN_FLIGHT_MAX} shards at once"));
            return;
        }
        let Some(record) = node.agent.as_ref().and_then(|agent| agent.record()) else {
            return;
        };
        let change = record.change.as_ref().filter(|change| change.plan == plan);
        let Some(change) = change else {
            if record.settling != Some(plan) {
                self.wrong(format!("n{place} pulls for a plan that is over"));
            }
            return;
        };
        if change.paused {
            return self.wrong(format!("n{place} pulls for a paused change"));
        }
        if let Some(rate) = change.rate {
            let mine = rate / u64::from(change.receivers.max(1));
            let gap = Duration::from_millis(SHARD_BYTES * 1_000 / mine.max(1));
            let boot = self.nodes[place].boot;
            let last = self.checks.paced.insert((place, boot, plan), (self.now, rate));
            if last.is_some_and(|(at, was)| was == rate && self.now + SLACK < at + gap) {
                self.wrong(format!("n{place} pulls faster than {rate} bytes a second"));
            }
        }
    }

    /// Checks that an old copy is dropped only when the ring that gives it away is committed and in
    /// use, the new owner has it, and no change brings it back.
    pub(super) fn check_drop(&mut self, place: Place, shard: ShardNo) {
        if !self.nodes[place].copies.contains_key(&shard) {
            return;
        }
        let recent = self.checks.recent(self.now);
        let without: Vec<_> = recent.filter(|ring| !ring.placed.owns(place, shard)).collect();
        let has = |owner: &Place| self.nodes[*owner].held_lately(shard, self.now, WORD_LAG);
        let held = without.iter().any(|ring| ring.placed.owners(shard).iter().any(has));
        let oldest = self.checks.recent(self.now).next().map_or(0, |known| known.ring.version);
        if without.is_empty() {
            return self.wrong(format!("n{place} dropped shard {shard}, which it owns"));
        }
        if !held {
            self.wrong(format!("n{place} dropped shard {shard} before its new owner had it"));
        }
        if self.nodes[place].in_use.as_ref().is_none_or(|used| used.version < oldest) {
            self.wrong(format!("n{place} dropped shard {shard} by a ring it does not go by"));
        }
        self.check_comes_back(place, shard);
    }

    fn check_comes_back(&mut self, place: Place, shard: ShardNo) {
        let change = self.checks.newest().and_then(|record| record.change.as_ref());
        let Some(plan) = change.map(|change| change.plan) else {
            return;
        };
        if self.now < self.checks.staged + FENCE_LAG {
            return;
        }
        let Some(plan) = self.plan_of(plan) else {
            return;
        };
        let id = self.shards[shard].shard.shard;
        if plan.moves_to(&self.nodes[place].id).any(|step| step.shard == id) {
            self.wrong(format!("n{place} dropped shard {shard}, which is to come back"));
        }
    }

    /// Checks that an agent's record never gets older, and that it answers operators.
    pub(super) fn check_agent(&mut self, place: Place) {
        let node = &mut self.nodes[place];
        let Some(record) = node.agent.as_ref().and_then(|agent| agent.record()) else {
            return;
        };
        let seen = (record.generation, record.version, record.changes);
        let back = seen < node.seen;
        let was = std::mem::replace(&mut node.seen, seen);
        node.was_in_ring |= record.entry(&node.id).is_some_and(|entry| entry.state.in_ring());
        let waits = node.commands.values().next();
        let late = waits.is_some_and(|since| self.now > *since + COMMAND_PATIENCE);
        if back {
            self.wrong(format!("n{place} went back from {was:?} to {seen:?}"));
        }
        if late {
            self.wrong(format!("n{place} owes an operator an answer"));
        }
    }

    /// Checks that things happen in time in a calm run.
    pub(super) fn check_calm(&mut self) {
        if self.scene.kind != Kind::Calm {
            return;
        }
        let Some(record) = self.checks.newest() else {
            return;
        };
        let dead = record.in_ring().find(|entry| {
            let place = self.place_of(&entry.member.id);
            place.is_some_and(|place| {
                let node = &self.nodes[place];
                node.agent.is_none() && self.now > node.crashed + CALM_DEATH_MAX
            })
        });
        if let Some(entry) = dead {
            let id = entry.member.id.clone();
            return self.wrong(format!("{id} is dead and still in the ring"));
        }
        let stuck = record.members.iter().find(|entry| {
            let absent = self.checks.absent.get(&entry.member.id);
            !entry.state.in_ring()
                && entry.state == State::Joining
                && absent.is_some_and(|at| self.now > *at + CALM_DEATH_MAX)
        });
        if let Some(entry) = stuck {
            let id = entry.member.id.clone();
            return self.wrong(format!("{id} died before it had joined and is still waited for"));
        }
        let late = record.change.as_ref().filter(|change| {
            let ago = Duration::from_secs(30);
            !change.paused && self.overdue(record, change, &self.checks.told, ago)
        });
        if let Some(change) = late {
            let number = change.number;
            return self.wrong(format!("change {number} goes on after its deadline"));
        }
        if let Some(id) = self.waits_too_long(record) {
            let id = id.to_owned();
            self.wrong(format!("{id} is to leave by a deadline and waits for another change"));
        }
    }

    /// Returns a member that should have left long ago, and that a possible change left out.
    fn waits_too_long<'a>(&self, record: &'a Record) -> Option<&'a str> {
        let change = record.change.as_ref()?;
        let runs = |entry: &Entry| {
            self.place_of(&entry.member.id).is_some_and(|place| self.nodes[place].agent.is_some())
        };
        let stays =
            |entry: &Entry| entry.state == State::Active && !change.takes_out(&entry.member.id);
        if !record.in_ring().all(runs) || !record.in_ring().any(stays) {
            return None;
        }
        let late = |entry: &&Entry| {
            let State::Draining { deadline: Some(deadline) } = entry.state else {
                return false;
            };
            let since = self.checks.told.get(&entry.member.id);
            since.is_some_and(|since| self.now > *since + deadline + Duration::from_secs(30))
        };
        let waits = |entry: &&Entry| !change.takes_out(&entry.member.id) && late(entry);
        record.in_ring().find(waits).map(|entry| entry.member.id.as_str())
    }

    /// Returns a copy that the plan of the committed ring has not moved or dropped.
    fn unsettled(&self, id: BlobId) -> Option<String> {
        let plan = self.plan_of(id)?;
        let committed = self.checks.rings.last()?.at;
        for step in &plan.moves {
            // A shard without a holder comes when a client reads it.
            let Some(from) = step.from.and_then(|from| self.place_of(plan.name(from))) else {
                continue;
            };
            let to = self.place_of(plan.name(step.to))?;
            let shard = self.by_id[&Shard { snapshot: step.snapshot, shard: step.shard }];
            let (old, new) = (&self.nodes[from], &self.nodes[to]);
            if new.agent.is_none() || self.checks.has_gaps(id, to) {
                continue;
            }
            // Members that left the ring are not waited for.
            let stays = self.checks.rings.last()?.ring.members.iter().any(|m| m.id == old.id);
            if !new.held_lately(shard, self.now, WORD_LAG) {
                return Some(format!("n{to} has not got shard {shard}"));
            }
            let old_copy = old.copies.get(&shard).filter(|_| stays && !step.stays);
            if old.agent.is_some() && old_copy.is_some_and(|copy| copy.since < committed) {
                return Some(format!("n{from} has not dropped shard {shard}"));
            }
        }
        None
    }
}

/// Members without their addresses, which are no part of a ring.
fn names(members: &[Member]) -> Vec<Member> {
    let nowhere = |member: &Member| Member { control: String::new(), ..member.clone() };
    members.iter().map(nowhere).collect()
}

/// The edits that reweight a member.
pub(super) fn reweight(member: &Member, weight: u32) -> Vec<Edit> {
    vec![Edit::Put(Member { weight, ..member.clone() })]
}
