//! The truth that the checks compare with, and that no agent sees: every committed ring, the time
//! of every absence, and the moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use larder_membership::{
    BlobId, Now, Record, Timing,
    agent::RingOf,
    record::{Entry, State},
};

use crate::{
    names::{Place, ShardNo},
    placed::Placed,
};

/// Other nodes may learn this late that a verified copy is gone by a crash or an eviction: an
/// announcement's time to live, plus message delays.
pub(crate) const WORD_LAG: Duration = Duration::from_secs(18);
/// From a decision, past the planner and slow messages, to the record that says it.
const DECISION_LAG: Duration = Duration::from_secs(12);
/// An agent may act on a record that was the newest this long ago: its freshness, plus the delay of
/// an answer.
pub(crate) const FENCE_LAG: Duration = Duration::from_secs(8);

/// A ring that was committed.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) at: Now,
    pub(crate) ring: RingOf,
    pub(crate) placed: Rc<Placed>,
}

/// The truth so far, and the first violation.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) violation: Option<String>,
    newest: Option<Record>,
    pub(crate) rings: Vec<Committed>,
    /// Nodes that are not announced, and since when the coordinator could tell.
    pub(crate) absent: BTreeMap<String, Now>,
    /// Nodes that came back: when, and after how long an absence.
    returned: BTreeMap<String, (Now, Duration)>,
    /// When the change in flight was staged.
    pub(crate) staged: Now,
    /// Nodes that drain, and since when.
    pub(crate) draining: BTreeMap<String, Now>,
    /// The same, counted from the latest command: a deadline may be given later.
    pub(crate) told: BTreeMap<String, Now>,
    gaps: BTreeSet<(BlobId, ShardNo, Place)>,
    /// Weight of members removed as dead, and when.
    pub(crate) removed: Vec<(Now, u64)>,
    /// The last pull under a rate: when, and the rate.
    pub(crate) paced: BTreeMap<(Place, u32, BlobId), (Now, u64)>,
    pub(crate) moved: u64,
    /// Ring versions when the troubles began.
    pub(crate) version_before: u64,
}

impl Checks {
    pub(crate) fn violate(&mut self, now: Now, words: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {:.3} s: {}", now.as_secs_f64(), words.into()));
        }
    }

    /// The ring that was committed with this version.
    pub(crate) fn ring(&self, version: u64) -> Option<&Committed> {
        self.rings.iter().rev().find(|known| known.ring.version == version)
    }

    pub(crate) fn newest(&self) -> Option<&Record> {
        self.newest.as_ref()
    }

    /// Takes the coordinator's new record, with the ring that it commits.
    pub(crate) fn advance(&mut self, now: Now, record: Record, ring: RingOf, placed: Rc<Placed>) {
        if self.rings.last().is_none_or(|known| known.ring.version < ring.version) {
            self.rings.push(Committed { at: now, ring, placed });
        }
        let in_flight = |record: &Record| record.change.as_ref().map(|change| change.number);
        if self.newest.as_ref().and_then(in_flight) != in_flight(&record) {
            self.staged = now;
        }
        let drains = |id: &str| {
            let state = record.entry(id).map(|entry| entry.state);
            matches!(state, Some(State::Draining { .. }))
        };
        self.draining.retain(|id, _| drains(id));
        self.told.retain(|id, _| drains(id));
        self.absent.retain(|id, _| record.entry(id).is_some());
        let same = |entry: &Entry| {
            let before = self.newest.as_ref().and_then(|before| before.entry(&entry.member.id));
            before.is_some_and(|before| before.state == entry.state)
        };
        for entry in record.in_ring().filter(|entry| drains(&entry.member.id)) {
            let id = &entry.member.id;
            self.draining.entry(id.clone()).or_insert(now);
            if !same(entry) {
                self.told.insert(id.clone(), now);
            }
        }
        self.newest = Some(record);
    }

    /// Returns the rings that an agent may rightly use: the newest, and those replaced just now.
    pub(crate) fn recent(&self, now: Now) -> impl Iterator<Item = &Committed> {
        let until = |index: usize| self.rings.get(index + 1).map(|next| next.at);
        self.rings.iter().enumerate().filter_map(move |(index, ring)| {
            until(index).is_none_or(|until| now < until + FENCE_LAG).then_some(ring)
        })
    }

    pub(crate) fn gap(&mut self, plan: BlobId, shard: ShardNo, place: Place) {
        self.gaps.insert((plan, shard, place));
    }

    pub(crate) fn has_gap(&self, plan: BlobId, shard: ShardNo, place: Place) -> bool {
        self.gaps.contains(&(plan, shard, place))
    }

    /// Whether a node could not take all shards of a plan.
    pub(crate) fn has_gaps(&self, plan: BlobId, place: Place) -> bool {
        self.gaps.iter().any(|(of, _, by)| (*of, *by) == (plan, place))
    }

    /// Notes the announced nodes, while the coordinator can tell.
    pub(crate) fn watch(&mut self, now: Now, up: bool, announced: impl Fn(&str) -> bool) {
        let Some(record) = self.newest.as_ref().filter(|_| up) else {
            return;
        };
        for entry in &record.members {
            let id = &entry.member.id;
            if announced(id) {
                if self.absent.contains_key(id) {
                    // An absence may be cut in two by an outage of the coordinator, or by a return
                    // that no agent saw. To the deciding agent it was one absence.
                    let before = self.returned.get(id).filter(|(at, _)| now < *at + DECISION_LAG);
                    let before = before.map(|(_, absence)| *absence).unwrap_or_default();
                    let seen = self.absence(id, now);
                    self.absent.remove(id);
                    self.returned.insert(id.clone(), (now, before.max(seen)));
                }
            } else if !self.absent.contains_key(id) {
                self.absent.insert(id.clone(), now);
            }
        }
    }

    /// Returns how long a node was absent when an agent took the decision that shows now. Agents
    /// with a stalled watch miss a return shorter than the time between two questions.
    pub(crate) fn absence(&self, id: &str, now: Now) -> Duration {
        let absent = self.absent.get(id).copied();
        let Some((at, before)) = self.returned.get(id).copied() else {
            return absent.map_or(Duration::ZERO, |since| now - since);
        };
        match absent {
            Some(since) if since < at + Timing::REAL.refresh_interval => now - at + before,
            Some(since) => now - since,
            None if now < at + DECISION_LAG => before,
            None => Duration::ZERO,
        }
    }

    /// Notes an outage of the coordinator that every node noticed: absences count from here.
    pub(crate) fn coordinator_back(&mut self, now: Now) {
        for (id, since) in &mut self.absent {
            self.returned.insert(id.clone(), (now, now - *since));
            *since = now;
        }
    }
}
