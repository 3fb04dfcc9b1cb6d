//! Which nodes are announced, for how long, and how often each was lost. An absence is a suspicion.
//! Only an unbroken absence over the whole grace makes it a death.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    Alive,
    rules::{Rule, Rules},
};
use crate::{Announcement, Now, Record, Timing, record::Entry};

/// How often the grace of a flapping member is doubled at most: up to 16 minutes.
const FLAP_DOUBLINGS_MAX: u32 = 5;

/// Share of the ring's weight, in percent, whose loss stops removals. A greater loss at once looks
/// like a fault of the observer or of the network. Nothing is then removed without an operator's
/// command.
pub const BRAKE_PERCENT: u64 = 25;

/// The announcements of one node.
#[derive(Debug, Clone)]
struct PeerAnnouncements {
    /// Its latest announcement.
    said: Announcement,
    here: bool,
    /// Since when it is here, or absent.
    since: Now,
    /// When it was lost, the latest few times.
    losses: VecDeque<Now>,
}

/// All nodes as the announcements show them to one agent.
#[derive(Debug, Clone)]
pub(super) struct Liveness {
    timing: Timing,
    stamp: Option<u64>,
    /// When this agent last had to doubt its picture.
    doubted: Now,
    /// Absences count from here: the first answer to a question asked after the doubt. Before it,
    /// this agent did not watch reliably.
    watching_since: Option<Now>,
    /// When the question was asked that was answered last: absences are certain up to here.
    asked: Now,
    peers: BTreeMap<String, PeerAnnouncements>,
    /// Nodes that the record knows, and since when they are looked for.
    expected: BTreeMap<String, Now>,
    /// Members that left the ring because they were dead: when, and their weight.
    fallen: Vec<(Now, u64)>,
}

impl Liveness {
    /// Creates a picture without any node.
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            stamp: None,
            doubted: Now::ZERO,
            watching_since: None,
            asked: Now::ZERO,
            peers: BTreeMap::new(),
            expected: BTreeMap::new(),
            fallen: Vec::new(),
        }
    }

    /// Takes in a set of announcements, unless a newer one came before.
    pub(super) fn update(&mut self, now: Now, alive: &Alive) {
        if self.stamp.is_some_and(|stamp| alive.stamp < stamp) {
            return;
        }
        self.stamp = Some(alive.stamp);
        let here: BTreeMap<&str, Announcement> = alive
            .nodes
            .iter()
            .filter_map(|(id, bytes)| Some((id.as_str(), Announcement::decode(bytes).ok()?)))
            .collect();
        for (id, peer) in &mut self.peers {
            if peer.here && !here.contains_key(id.as_str()) {
                (peer.here, peer.since) = (false, now);
                peer.lose(now);
            }
        }
        for (id, said) in here {
            match self.peers.get_mut(id) {
                Some(peer) => peer.hear(now, said),
                None => {
                    let peer =
                        PeerAnnouncements { said, here: true, since: now, losses: VecDeque::new() };
                    self.peers.insert(id.to_owned(), peer);
                }
            }
        }
    }

    /// Discards all absences so far: this agent slept, or the coordinator was away.
    pub(super) fn doubt(&mut self, now: Now) {
        (self.doubted, self.watching_since) = (now, None);
    }

    /// Notes that the set taken in last answers a question of this time.
    pub(super) fn answered(&mut self, now: Now, asked: Now) {
        if asked >= self.doubted {
            self.watching_since.get_or_insert(now);
            self.asked = asked;
        }
    }

    /// Doubts the picture, and also takes sets with a smaller stamp again.
    pub(super) fn restart(&mut self, now: Now) {
        self.doubt(now);
        self.stamp = None;
    }

    /// Looks for all nodes of the record. The absence of a node counts from when the record first
    /// named it.
    pub(super) fn expect(&mut self, now: Now, record: &Record) {
        self.expected.retain(|id, _| record.entry(id).is_some());
        for Entry { member, .. } in &record.members {
            self.expected.entry(member.id.clone()).or_insert(now);
        }
    }

    /// Forgets nodes that the record does not name and that were not here lately.
    pub(super) fn tidy(&mut self, now: Now, record: &Record) {
        self.peers.retain(|id, peer| {
            peer.here || now < peer.since + self.timing.flap_window || record.entry(id).is_some()
        });
        self.fallen.retain(|(at, _)| now < *at + 2 * self.timing.death_grace);
    }

    /// Notes a member that left the ring because it was dead.
    pub(super) fn fell(&mut self, now: Now, weight: u32) {
        self.fallen.push((now, u64::from(weight)));
    }

    /// Returns the announcement of a node that is here.
    pub(super) fn said(&self, id: &str) -> Option<&Announcement> {
        self.peers.get(id).filter(|peer| peer.here).map(|peer| &peer.said)
    }

    /// Returns the last announcement of a node, here or not.
    pub(super) fn said_last(&self, id: &str) -> Option<&Announcement> {
        self.peers.get(id).map(|peer| &peer.said)
    }

    pub(super) fn here(&self, id: &str) -> bool {
        self.said(id).is_some()
    }

    /// Whether a question was answered since the last doubt.
    pub(super) fn watches(&self) -> bool {
        self.watching_since.is_some()
    }

    /// Whether a node is here, by an answer since the last doubt.
    pub(super) fn heard(&self, id: &str) -> bool {
        self.watches() && self.here(id)
    }

    /// How long a node has been here without a break.
    pub(super) fn present(&self, now: Now, id: &str) -> Option<Duration> {
        let peer = self.peers.get(id).filter(|peer| peer.here)?;
        Some(now.saturating_sub(peer.since.max(self.watching_since?)))
    }

    /// How long a node has been absent without a break, while this agent watched.
    pub(super) fn absent(&self, now: Now, id: &str) -> Option<Duration> {
        let watching = self.watching_since?;
        let since = match self.peers.get(id) {
            Some(peer) if peer.here => return None,
            Some(peer) => peer.since.max(watching),
            None => watching.max(*self.expected.get(id)?),
        };
        Some(now.saturating_sub(since))
    }

    /// Whether a node has been absent for its whole grace. The answer that shows it must belong to
    /// a question asked after the grace, since a watch may have missed the node's return.
    pub(super) fn dead(&self, now: Now, id: &str, rules: &impl Rules) -> bool {
        let away_until = |until| self.away_for_too_long(now, until, id, rules);
        away_until(now) && rules.holds(Rule::DeathIsAskedFor, away_until(self.asked))
    }

    /// Whether a question now may show a node to be dead.
    pub(super) fn worth_asking(&self, now: Now, id: &str, rules: &impl Rules) -> bool {
        self.away_for_too_long(now, now, id, rules) && !self.dead(now, id, rules)
    }

    fn away_for_too_long(&self, now: Now, until: Now, id: &str, rules: &impl Rules) -> bool {
        let mut grace = self.timing.death_grace;
        let damping = self.damping(now, id);
        if rules.demands(Rule::FlapsLengthenGrace, damping > 1) {
            grace *= damping;
        }
        let gone = self.absent(until, id);
        gone.is_some_and(|gone| rules.holds(Rule::GraceBeforeDeath, gone >= grace))
    }

    /// Whether a node that was dead has been back for long enough to own shards again.
    pub(super) fn returned(&self, now: Now, id: &str, rules: &impl Rules) -> bool {
        let hold = self.timing.return_hold * self.damping(now, id);
        let back = self.present(now, id);
        back.is_some_and(|back| rules.holds(Rule::ReturnAfterHold, back >= hold))
    }

    /// Whether so much weight is gone at once that no member is removed without an operator. One
    /// absent member alone never brakes: it may hold half of a ring of two.
    pub(super) fn braked(&self, record: &Record) -> bool {
        let weight = |entry: &Entry| u64::from(entry.member.weight);
        let ring: u64 = record.in_ring().map(weight).sum();
        let missing: Vec<u64> =
            record.in_ring().filter(|entry| !self.here(&entry.member.id)).map(weight).collect();
        let fallen: u64 = self.fallen.iter().map(|(_, weight)| weight).sum();
        let gone = missing.iter().sum::<u64>() + fallen;
        missing.len() + self.fallen.len() > 1 && 100 * gone > BRAKE_PERCENT * (ring + fallen)
    }

    /// Returns two to the number of losses within the window, not counting the first loss.
    fn damping(&self, now: Now, id: &str) -> u32 {
        let Some(peer) = self.peers.get(id) else {
            return 1;
        };
        let recent = peer.losses.iter().filter(|at| now < **at + self.timing.flap_window).count();
        let doublings = u32::try_from(recent.saturating_sub(1)).unwrap_or(u32::MAX);
        1 << doublings.min(FLAP_DOUBLINGS_MAX)
    }
}

impl PeerAnnouncements {
    fn hear(&mut self, now: Now, said: Announcement) {
        if !self.here {
            (self.here, self.since) = (true, now);
        } else if self.said.boot != said.boot {
            self.since = now;
            self.lose(now);
        }
        self.said = said;
    }

    fn lose(&mut self, now: Now) {
        self.losses.push_back(now);
        if self.losses.len() > FLAP_DOUBLINGS_MAX as usize + 1 {
            self.losses.pop_front();
        }
    }
}
