//! What must hold, kept as the truth that no agent sees: every ring that was committed, who was
//! announced since when, what was moved.

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

/// A copy that was verified may have gone, by crash or eviction, this long before others know: an
/// announcement's time to live and the ways of messages.
pub(crate) const WORD_LAG: Duration = Duration::from_secs(18);
/// From a decision, past the planner and slow messages, to the record that says it.
const DECISION_LAG: Duration = Duration::from_secs(12);
/// What was the newest record this long ago may still be acted upon: freshness, and the way of an
/// answer.
pub(crate) const FENCE_LAG: Duration = Duration::from_secs(8);

/// A ring that was committed.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) at: Now,
    pub(crate) ring: RingOf,
    pub(crate) placed: Rc<Placed>,
}

/// The truth so far, and the first thing that was wrong.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) violation: Option<String>,
    newest: Option<Record>,
    pub(crate) rings: Vec<Committed>,
    /// Who was not announced, and since when the coordinator could tell.
    pub(crate) absent: BTreeMap<String, Now>,
    /// Who came back: when, and after how long.
    returned: BTreeMap<String, (Now, Duration)>,
    /// When the change in flight was staged.
    pub(crate) staged: Now,
    /// Nodes that drain, and since when.
    pub(crate) draining: BTreeMap<String, Now>,
    /// The same, since when by the word that holds: a deadline may be said later.
    pub(crate) told: BTreeMap<String, Now>,
    gaps: BTreeSet<(BlobId, ShardNo, Place)>,
    /// Weight that was removed because it was dead, and when.
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

    /// The record that the coordinator has now, with the ring that it commits.
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

    /// Rings that an agent may rightly go by: the newest, and those that were it a moment ago.
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

    /// Whether a node could not take all that a plan gives it.
    pub(crate) fn has_gaps(&self, plan: BlobId, place: Place) -> bool {
        self.gaps.iter().any(|(of, _, by)| (*of, *by) == (plan, place))
    }

    /// Notes who is announced, while the coordinator is there to tell.
    pub(crate) fn watch(&mut self, now: Now, up: bool, announced: impl Fn(&str) -> bool) {
        let Some(record) = self.newest.as_ref().filter(|_| up) else {
            return;
        };
        for entry in &record.members {
            let id = &entry.member.id;
            if announced(id) {
                if self.absent.contains_key(id) {
                    // An absence that an outage of the coordinator, or a moment that nobody saw,
                    // cut in two was one to who decided.
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

    /// For how long a node was absent, when somebody decided what is done now. Where a watch
    /// stalls, who came for less than the time between two questions and is gone again was not seen
    /// to come.
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

    /// The coordinator was away for so long that everybody noticed: absences count from here.
    pub(crate) fn coordinator_back(&mut self, now: Now) {
        for (id, since) in &mut self.absent {
            self.returned.insert(id.clone(), (now, now - *since));
            *since = now;
        }
    }
}
