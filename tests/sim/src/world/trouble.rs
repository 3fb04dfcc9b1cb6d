//! The troubles of a run, and the commands of operators meanwhile.

use std::time::Duration;

use larder_membership::{
    Timing,
    agent::{Command, Event, Steer, StoredRecord, Ticket},
};

use super::{Changed, Item, Place, World, judge::reweight};
use crate::scene::Kind;

/// An outage of the coordinator that every node notices.
const NOTICED: Duration = Duration::from_secs(8);

/// A fault, or its end.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// Draw the next trouble.
    Next,
    /// A link works again.
    Join(Place, Place),
    /// The origin answers again.
    OriginUp,
    /// The coordinator runs again, with or without its leases.
    CoordinatorUp { since: Duration, leases: bool },
    /// The network is fast again.
    Fast,
    /// An old coordinator tells its last record.
    Zombie(Place, StoredRecord),
    /// A node sleeps for this long.
    Sleep(Place, Duration),
    /// A node crashes, for this long.
    Crash(Place, Duration),
    /// The watch of a node tells nothing for this long.
    Stall(Place, Duration),
    /// A node stops, for this long.
    Stop(Place, Duration),
    /// The coordinator of another cluster tells its record.
    Stranger(Place),
    /// No more troubles.
    End,
    /// An operator resumes a paused change.
    Resume,
}

impl World {
    pub(super) fn trouble(&mut self, trouble: Trouble) {
        if !matches!(trouble, Trouble::Next) {
            self.say(|| format!("{trouble:?}").chars().take(80).collect());
        }
        match trouble {
            Trouble::Next => self.next_trouble(),
            Trouble::Join(from, to) => {
                self.network.join(from, to);
                self.network_changed = self.now;
            }
            Trouble::OriginUp => (self.origin_up, self.origin_since) = (true, self.now),
            Trouble::CoordinatorUp { since, leases } => self.coordinator_up(since, leases),
            Trouble::Fast => self.network.slow = Duration::ZERO,
            Trouble::Zombie(place, stored) => self.tell_stale(place, stored),
            Trouble::Sleep(..) | Trouble::Stall(..) | Trouble::Crash(..) | Trouble::Stop(..)
                if !self.troubled => {}
            Trouble::Sleep(place, wait) => self.sleep(place, wait),
            Trouble::Stall(place, wait) => self.stall(place, wait, true, true),
            Trouble::Crash(place, wait) => self.crash(place, wait),
            Trouble::Stop(place, wait) => {
                self.stop(place);
                self.after(wait, Item::Start(place));
            }
            Trouble::Stranger(place) => self.tell_strange(place),
            Trouble::End => self.end_troubles(),
            Trouble::Resume => self.resume(),
        }
    }

    fn next_trouble(&mut self) {
        if !self.troubled {
            return;
        }
        if self.checks.version_before == 0 {
            self.checks.version_before = self.checks.newest().map_or(0, |record| record.version);
        }
        let mean = self.scene.trouble_every.as_secs() * 1_000;
        let wait = Duration::from_millis(self.rng.u64(mean / 2..=mean * 3 / 2));
        match self.scene.kind {
            Kind::Calm => self.calm(),
            Kind::Flaps => return self.flap(),
            Kind::MassLoss => self.mass_loss(),
            Kind::Coordinator => match self.rng.u32(..10) {
                0..=4 => self.coordinator_trouble(),
                5 | 6 => self.operate(),
                _ => self.node_trouble(),
            },
            Kind::Churn => match self.rng.u32(..10) {
                0 => self.coordinator_trouble(),
                1..=3 => self.operate(),
                4 => self.origin_trouble(),
                5 => self.link_trouble(),
                _ => self.node_trouble(),
            },
        }
        self.after(wait, Item::Trouble(Trouble::Next));
    }

    /// An operator at work on a cluster without faults, or one death.
    fn calm(&mut self) {
        match self.seed / 8 % 8 {
            _ if self.scene.late => self.newcomer_dies(),
            0 | 4 => self.one_dies(),
            2 => self.operate(),
            6 => self.drain_in_a_hurry(),
            _ => self.drain_without_hope(),
        }
    }

    fn one_dies(&mut self) {
        if self.nodes.iter().all(|node| node.boot == 1 && node.agent.is_some()) {
            let place = self.some_node();
            self.crash(place, Duration::from_secs(80));
        }
    }

    /// Drains a node that no other can pull from. Only the deadline ends that.
    fn drain_without_hope(&mut self) {
        if self.cut_off(1) {
            let deadline = Some(Duration::from_secs(20));
            self.command(0, Command::Drain { id: self.nodes[1].id.clone(), deadline });
        }
    }

    /// Begins a long drain, pauses it and forgets it. Then another node, or the same, must leave by
    /// a deadline.
    fn drain_in_a_hurry(&mut self) {
        let drain = |id: &str, deadline| Command::Drain { id: id.to_owned(), deadline };
        let pressed = if self.seed / 64 % 2 == 1 { 1 } else { 2 };
        let (slow, pressed) = (self.nodes[1].id.clone(), self.nodes[pressed].id.clone());
        if self.cut_off(1) {
            return self.command(0, drain(&slow, None));
        }
        let Some(record) = self.checks.newest() else {
            return;
        };
        let hurries = record.entry(&pressed).is_some_and(|entry| entry.state.is_pressed());
        let command = match record.change.as_ref().filter(|change| change.takes_out(&slow)) {
            Some(change) if change.paused && hurries && change.takes_out(&pressed) => {
                return self.wrong("a pause holds up who is to leave by a deadline");
            }
            Some(change) if change.paused => drain(&pressed, Some(Duration::from_secs(20))),
            Some(_) if !record.is_pressed() => Steer::Pause.any(),
            _ => return,
        };
        self.command(0, command);
    }

    /// Cuts this node off from pulls, and the origin too. Does nothing if that is so already.
    fn cut_off(&mut self, place: Place) -> bool {
        if !self.origin_up {
            return false;
        }
        (self.origin_up, self.origin_since) = (false, self.now);
        for other in (0..self.nodes.len()).filter(|other| *other != place) {
            self.network.cut(other, place);
        }
        self.network_changed = self.now;
        true
    }

    /// The node that came late dies before it is in the ring, and for long.
    fn newcomer_dies(&mut self) {
        let place = self.nodes.len() - 1;
        if self.nodes[place].boot == 1 {
            self.crash(place, Duration::from_secs(120));
        }
    }

    /// One node comes and goes: a hundred times and quickly; slowly; or quickly, then for longer
    /// than a grace.
    fn flap(&mut self) {
        let node = &self.nodes[2];
        let quick = (Duration::from_secs(3), Duration::from_secs(6));
        let (away, period) = match self.seed / 8 % 3 {
            0 => quick,
            1 => (Duration::from_secs(35), Duration::from_secs(60)),
            _ if node.boot.is_multiple_of(6) => (Duration::from_secs(45), Duration::from_secs(90)),
            _ => quick,
        };
        self.stop(2);
        self.after(away, Item::Start(2));
        self.after(period, Item::Trouble(Trouble::Next));
    }

    fn mass_loss(&mut self) {
        if self.nodes.iter().any(|node| node.agent.is_none()) {
            return;
        }
        let wait = Duration::from_secs(self.rng.u64(35..=80));
        for _ in 0..self.rng.usize(2..=4) {
            let place = self.some_node();
            self.crash(place, wait);
        }
    }

    fn some_node(&mut self) -> Place {
        self.rng.usize(..self.nodes.len())
    }

    fn node_trouble(&mut self) {
        let place = self.some_node();
        let wait = Duration::from_millis(self.rng.u64(200..60_000));
        match self.rng.u32(..11) {
            0..=2 => self.crash(place, wait),
            3 | 4 => self.sleep(place, wait),
            5 => {
                self.stop(place);
                self.nodes[place].address += self.rng.u32(..2);
                if self.rng.u32(..3) == 0 {
                    self.nodes[place].host = self.rng.usize(..=self.nodes.len());
                }
                self.after(wait / 4, Item::Start(place));
            }
            6 => {
                let here: Vec<usize> = self.nodes[place].copies.keys().copied().collect();
                if let Some(shard) = self.rng.choice(here)
                    && self.nodes[place].answers(self.now)
                {
                    self.evict(place, shard);
                }
            }
            7 => {
                self.nodes[place].muted_until = self.now + 2 * wait;
                self.say(|| format!("n{place} is not heard for {:?}", 2 * wait));
            }
            8 => {
                let what = self.rng.u32(1..4);
                self.stall(place, wait, what & 1 > 0, what & 2 > 0);
            }
            9 if self.rng.bool() => self.blink_unseen(place),
            9 => self.come_unseen(place),
            _ => {
                // Restarts quicker than any other node notices.
                self.crash(place, wait / 100);
            }
        }
    }

    fn sleep(&mut self, place: Place, wait: Duration) {
        self.nodes[place].paused_until = self.now + wait;
        self.say(|| format!("n{place} sleeps for {wait:?}"));
    }

    /// A node goes, returns and goes while another sleeps. The other sees only both absences.
    fn blink_unseen(&mut self, sleeper: Place) {
        let secs = Duration::from_secs;
        let other = (sleeper + 1) % self.nodes.len();
        let troubles = [
            (secs(0), Trouble::Stop(other, secs(10))),
            (secs(2), Trouble::Sleep(sleeper, secs(38))),
            (secs(28), Trouble::Stop(other, secs(60))),
        ];
        for (wait, trouble) in troubles {
            self.after(wait, Item::Trouble(trouble));
        }
    }

    /// Stalls a node's watch: of the record, of the announcements, or of both.
    fn stall(&mut self, place: Place, wait: Duration, records: bool, alive: bool) {
        let (until, node) = (self.now + wait, &mut self.nodes[place]);
        if records {
            node.records_stall_until = until;
        }
        if alive {
            node.alive_stalls_until = until;
        }
        self.say(|| format!("n{place} is told nothing for {wait:?}: {records}, {alive}"));
    }

    /// A node returns just before it counts as dead, and another node's watch misses that.
    fn come_unseen(&mut self, watcher: Place) {
        let secs = Duration::from_secs;
        let other = (watcher + 1) % self.nodes.len();
        self.after(secs(0), Item::Trouble(Trouble::Stop(other, secs(26))));
        self.after(secs(2), Item::Trouble(Trouble::Stall(watcher, secs(40))));
    }

    fn crash(&mut self, place: Place, down: Duration) {
        let node = &mut self.nodes[place];
        if node.agent.is_some() {
            node.crash(self.now);
            self.after(down, Item::Start(place));
            self.say(|| format!("n{place} crashes for {down:?}"));
        }
    }

    fn stop(&mut self, place: Place) {
        let boot = self.nodes[place].boot;
        self.tell(place, boot, Event::Stop);
        self.nodes[place].crash(self.now);
    }

    fn link_trouble(&mut self) {
        let places = self.nodes.len() + self.clients.len() + 1;
        let (from, to) = (self.rng.usize(..places), self.rng.usize(..places));
        self.network.cut(from, to);
        self.network_changed = self.now;
        let wait = Duration::from_millis(self.rng.u64(1_000..50_000));
        self.after(wait, Item::Trouble(Trouble::Join(from, to)));
    }

    fn origin_trouble(&mut self) {
        if self.rng.u32(..3) == 0 {
            let shard = self.rng.usize(..self.shards.len());
            self.overwritten[shard] = true;
        } else {
            (self.origin_up, self.origin_since) = (false, self.now);
            let wait = Duration::from_millis(self.rng.u64(1_000..40_000));
            self.after(wait, Item::Trouble(Trouble::OriginUp));
        }
    }

    fn coordinator_down(&mut self, wait: Duration, leases: bool) {
        self.coordinator.up = false;
        self.say(|| "the coordinator is gone".to_owned());
        let since = self.now;
        self.after(wait, Item::Trouble(Trouble::CoordinatorUp { since, leases }));
    }

    /// A node dies while the coordinator is away. The coordinator then repeats its announcement.
    fn outlive_words(&mut self) {
        let (wait, place) = (Duration::from_secs(self.rng.u64(25..40)), self.some_node());
        self.coordinator_down(wait, true);
        let alive = Duration::from_millis(self.rng.u64(500..6_000));
        self.after(alive, Item::Trouble(Trouble::Crash(place, 2 * wait)));
    }

    fn coordinator_trouble(&mut self) {
        let wait = Duration::from_millis(self.rng.u64(100..45_000));
        let moving = self.checks.newest().is_some_and(|record| record.change.is_some());
        if moving && self.coordinator.up && self.rng.bool() {
            return self.outlive_words();
        }
        match self.rng.u32(..7) {
            0..=2 if self.coordinator.up => {
                let leases = self.rng.bool();
                self.coordinator_down(wait, leases);
            }
            3 => {
                self.network.slow = Duration::from_millis(self.rng.u64(100..4_000));
                self.after(wait, Item::Trouble(Trouble::Fast));
            }
            4 if self.coordinator.up => self.take_over(),
            5 => {
                let place = self.some_node();
                self.after(wait, Item::Trouble(Trouble::Stranger(place)));
            }
            _ => {
                // One node cannot send, or cannot receive.
                let (place, hub) = (self.some_node(), self.network.coordinator());
                let (from, to) = if self.rng.bool() { (place, hub) } else { (hub, place) };
                self.network.cut(from, to);
                self.after(wait, Item::Trouble(Trouble::Join(from, to)));
            }
        }
    }

    fn coordinator_up(&mut self, since: Duration, leases: bool) {
        if self.coordinator.up {
            return;
        }
        self.coordinator.restart(self.now, leases, self.planted);
        if self.now >= since + NOTICED {
            self.checks.coordinator_back(self.now);
        }
        self.check_record(None);
        self.publish(Changed { record: true, alive: true });
        self.after(Timing::REAL.announcement_ttl, Item::Expire);
    }

    /// The coordinator is lost for good; another has its record. Later the old one answers again.
    fn take_over(&mut self) {
        let Some(old) = self.coordinator.take_over(self.now) else {
            return;
        };
        self.check_record(None);
        self.publish(Changed { record: true, alive: true });
        let place = self.some_node();
        let wait = Duration::from_millis(self.rng.u64(1_000..20_000));
        self.after(wait, Item::Trouble(Trouble::Zombie(place, old)));
    }

    /// Sends an operator's command to some node.
    fn operate(&mut self) {
        let place = self.some_node();
        let Some(record) = self.checks.newest().cloned() else {
            return;
        };
        let other = self.some_node();
        let id = self.nodes[other].id.clone();
        let deadline = [None, Some(Duration::from_secs(self.rng.u64(10..60)))];
        let deadline = deadline[self.rng.usize(..2)];
        let in_flight = record.change.is_some();
        let command = match self.rng.u32(..12) {
            0 | 1 if in_flight => Steer::Pause.any(),
            2 | 3 if in_flight => Steer::Resume.any(),
            4 if in_flight => Steer::Abort.any(),
            5 | 6 if in_flight => Steer::Rate(Some(self.rng.u64(1..100) << 20)).any(),
            0..=3 | 10 => Command::Drain { id, deadline },
            4 => Command::Undrain(id),
            5..=7 => {
                let Some(entry) = record.entry(&id).filter(|entry| entry.state.in_ring()) else {
                    return;
                };
                Command::Plan {
                    edits: reweight(&entry.member, self.rng.u32(1..=3)),
                    replicas: None,
                }
            }
            8 if self.nodes[other].agent.is_none() => Command::Remove(vec![id]),
            11 => Command::Plan { edits: Vec::new(), replicas: Some(3 - record.scheme.replicas) },
            _ => Steer::Resume.any(),
        };
        self.command(place, command);
    }

    pub(super) fn command(&mut self, place: Place, command: Command) {
        self.numbers += 1;
        let ticket = Ticket(self.numbers);
        let now = self.now;
        let node = &mut self.nodes[place];
        if node.agent.is_some() {
            let boot = node.boot;
            node.commands.insert(ticket, now);
            self.after(
                Duration::from_millis(1),
                Item::Tell(place, boot, Event::Command(ticket, command)),
            );
        }
    }

    /// Ends all troubles, and resumes paused changes.
    fn end_troubles(&mut self) {
        self.check_flaps();
        self.troubled = false;
        self.network.heal();
        self.network.lossless = true;
        self.network_changed = self.now;
        (self.origin_up, self.origin_since) = (true, self.now);
        let since = self.now;
        for node in &mut self.nodes {
            node.muted_until = since;
            (node.records_stall_until, node.alive_stalls_until) = (since, since);
        }
        self.coordinator_up(since, true);
        for place in 0..self.nodes.len() {
            self.after(Duration::from_millis(1), Item::Start(place));
        }
        // Twice, as the first may come while the coordinator still counts as away.
        for wait in [30, 60] {
            self.after(Duration::from_secs(wait), Item::Trouble(Trouble::Resume));
        }
    }

    fn resume(&mut self) {
        let Some(record) =
            self.checks.newest().filter(|record| record.change.is_some() || record.kept.is_some())
        else {
            return;
        };
        let terms = record.change.as_ref().map(|change| (change.paused, change.rate.is_some()));
        let (paused, rated) = terms.unwrap_or_default();
        if paused {
            self.command(0, Steer::Resume.any());
        }
        if rated {
            self.command(0, Steer::Rate(None).any());
        }
        // The next change keeps the pause of a change that a death ended.
        self.after(Duration::from_secs(30), Item::Trouble(Trouble::Resume));
    }

    /// Checks that quick flaps cost nothing, and that a long absence is one loss.
    fn check_flaps(&mut self) {
        if self.scene.kind != Kind::Flaps {
            return;
        }
        let version = self.checks.newest().map_or(0, |record| record.version);
        let changes = version - self.checks.version_before;
        let allowed = u64::from(self.seed / 8 % 3 == 1);
        if changes > allowed {
            let words = format!("one node's flapping changed the ring {changes} times");
            self.checks.violate(self.now, words);
        }
    }
}
