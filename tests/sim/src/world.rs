//! The world of one run: its state, and the loop that lets time pass.

mod client;
mod coordinator;
mod install;
mod judge;
mod network;
mod node;
mod placements;
mod planner;
mod plans;
mod shell;
mod trouble;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    hash::{Hash, Hasher},
    rc::Rc,
    time::Duration,
};

use larder_base::{ShardId, SnapshotId};
use larder_membership::{
    Now, PlanBlobs, Record,
    agent::{Command, Event, Shard},
    plan::{SizedShard, Task},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    bugs::{Bug, Planted},
    checks::Checks,
    names::{Place, ShardNo},
    placed::Placed,
    report::Report,
    scene::{Kind, Scene},
};
use client::Client;
use coordinator::{Changed, Coordinator, Request, Response};
use network::Network;
use node::Node;
use trouble::Trouble;

const TICK: Duration = Duration::from_secs(1);
/// However long it takes, a cluster without faults has come to rest by then.
const REST_MAX: Duration = Duration::from_secs(3_000);
/// More events than any run needs; one that needs more turns in circles.
const EVENTS_MAX: u64 = 2_000_000;

/// A shard of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) shard: Shard,
    /// The number of its snapshot.
    pub(crate) of: usize,
}

/// Something that will happen.
#[derive(Debug, Clone)]
enum Item {
    /// A node starts.
    Start(Place),
    /// Time is told to a node.
    Tick(Place, u32),
    /// A node's agent is told something.
    Tell(Place, u32, Event),
    /// A request of this number arrives at the coordinator.
    Ask(Place, u32, u64, Request),
    /// Its answer arrives.
    Answer(Place, u32, u64, Response),
    /// A node stops waiting for it.
    GiveUp(Place, u32, u64, Request),
    /// Announcements may have ended.
    Expire,
    /// A node has all it needs to use a ring.
    Install(Place, u32, node::InUse),
    /// A node asks again for the exceptions that it lacks.
    Lacks(Place, u32),
    /// A pull has had its time.
    Pulled(Place, u32, node::Pull),
    /// A client wants to read.
    Read(usize),
    /// A read goes on.
    ReadOn(u64),
    /// A read has reached a node.
    ReadAt(u64, Place),
    /// An operator asks a node.
    Command(Place, Command),
    /// Something goes wrong, or right again.
    Trouble(Trouble),
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) now: Now,
    pub(crate) scene: Scene,
    pub(crate) planted: Planted,
    rng: fastrand::Rng,
    queue: BinaryHeap<Reverse<(Now, u64)>>,
    items: BTreeMap<u64, Item>,
    numbers: u64,
    pub(crate) nodes: Vec<Node>,
    coordinator: Coordinator,
    network: Network,
    /// When a link was last cut or joined.
    network_changed: Now,
    origin_up: bool,
    /// When the origin last went up or down.
    origin_since: Now,
    /// Objects that were overwritten: the origin has another version of these shards.
    overwritten: Vec<bool>,
    clients: Vec<Client>,
    reads: BTreeMap<u64, client::Read>,
    snapshots: Vec<(SnapshotId, Vec<SizedShard>)>,
    shards: Vec<Known>,
    by_id: BTreeMap<Shard, ShardNo>,
    /// Placements that were worked out.
    placements: BTreeMap<u64, Rc<Placed>>,
    /// Plans that were made, with how many snapshots there were.
    planned: Vec<(Task, usize, PlanBlobs)>,
    pub(crate) checks: Checks,
    troubled: bool,
    /// The story is printed.
    pub(crate) aloud: bool,
    trace: Xxh3,
    events: u64,
    reads_done: u64,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let scene = Scene::draw(seed, &mut rng);
        let snapshots = snapshots(seed, &scene);
        let shards = shards(&snapshots);
        let by_id = shards.iter().enumerate().map(|(index, known)| (known.shard, index)).collect();
        let places = scene.nodes + scene.clients + 1;
        let mut world = Self {
            seed,
            now: Now::ZERO,
            planted: Planted(bug),
            queue: BinaryHeap::new(),
            items: BTreeMap::new(),
            numbers: 0,
            nodes: (0..scene.nodes).map(|place| Node::new(place, scene.zones)).collect(),
            coordinator: Coordinator::new(),
            network: Network::new(places, scene.lost_one_in),
            network_changed: Now::ZERO,
            origin_up: true,
            origin_since: Now::ZERO,
            overwritten: vec![false; shards.len()],
            clients: (0..scene.clients).map(|_| Client::default()).collect(),
            reads: BTreeMap::new(),
            snapshots,
            shards,
            by_id,
            placements: BTreeMap::new(),
            planned: Vec::new(),
            checks: Checks::default(),
            troubled: false,
            aloud: false,
            trace: Xxh3::new(),
            events: 0,
            reads_done: 0,
            rng,
            scene,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for place in 0..self.scene.nodes - usize::from(self.scene.late) {
            let spread = if place == 0 { 0 } else { self.rng.u64(500..2_000) };
            self.after(Duration::from_millis(spread), Item::Start(place));
        }
        for client in 0..self.scene.clients {
            self.after(Duration::from_secs(5), Item::Read(client));
        }
        let (begin, end) = self.scene.troubled;
        if self.scene.late {
            self.after(begin + Duration::from_secs(20), Item::Start(self.scene.nodes - 1));
        }
        self.after(begin, Item::Trouble(Trouble::Next));
        self.after(end, Item::Trouble(Trouble::End));
    }

    /// Lets time pass until the cluster rests or something is wrong.
    pub(crate) fn run(mut self) -> Report {
        self.troubled = true;
        while let Some(Reverse((at, number))) = self.queue.pop() {
            let item = self.items.remove(&number).expect("queued once");
            self.now = at;
            self.events += 1;
            self.note(&(at, number));
            self.happen(item);
            if self.checks.violation.is_some() || self.rests() {
                break;
            }
            let late = self.now > self.scene.troubled.1 + REST_MAX;
            if late || self.events > EVENTS_MAX {
                self.checks.violate(self.now, format!("no rest: {}", self.unrest()));
                break;
            }
        }
        Report {
            seed: self.seed,
            events: self.events,
            trace: self.trace.digest(),
            versions: self.checks.newest().map_or(0, |record| record.version),
            violation: self.checks.violation.take(),
            reads: self.reads_done,
            moved: self.checks.moved,
        }
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::Start(place) => self.start(place),
            Item::Tick(place, boot) => {
                if self.nodes[place].runs(boot) {
                    self.after(TICK, Item::Tick(place, boot));
                    self.tell(place, boot, Event::Tick);
                }
            }
            Item::Tell(place, boot, event) => self.tell(place, boot, event),
            Item::Ask(place, boot, number, request) => self.ask(place, boot, number, request),
            Item::Answer(place, boot, number, response) => {
                self.answered(place, boot, number, response);
            }
            Item::GiveUp(place, boot, number, request) => {
                self.give_up(place, boot, number, request);
            }
            Item::Expire => {
                if self.coordinator.up && self.coordinator.expire(self.now, self.planted) {
                    self.publish(Changed { alive: true, record: false });
                }
            }
            Item::Install(place, boot, ring) => self.installed(place, boot, ring),
            Item::Lacks(place, boot) => self.install_on(place, boot),
            Item::Pulled(place, boot, pull) => self.pulled(place, boot, pull),
            Item::Read(client) => self.begin_read(client),
            Item::ReadOn(read) => self.read_on(read),
            Item::ReadAt(read, place) => self.read_at(read, place),
            Item::Command(place, command) => self.command(place, command),
            Item::Trouble(trouble) => self.trouble(trouble),
        }
        let announced = |id: &str| self.coordinator.announces(id);
        self.checks.watch(self.now, self.coordinator.up, announced);
        self.check_calm();
    }

    fn after(&mut self, wait: Duration, item: Item) {
        self.numbers += 1;
        self.queue.push(Reverse((self.now + wait, self.numbers)));
        self.items.insert(self.numbers, item);
    }

    /// Prints a line of the story, if it was asked for.
    fn say(&self, words: impl Fn() -> String) {
        if self.aloud {
            println!("{:10.3} {}", self.now.as_secs_f64(), words());
        }
    }

    /// Goes into the trace.
    fn note(&mut self, what: &impl Hash) {
        what.hash(&mut Fold(&mut self.trace));
    }

    /// How many snapshots there are by now.
    fn opened_snapshots(&self) -> usize {
        let all = self.snapshots.len();
        if self.now < self.scene.opened { (all - 1).max(1) } else { all }
    }

    fn place_of(&self, id: &str) -> Option<Place> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Whether all troubles are over and everything has settled.
    fn rests(&self) -> bool {
        !self.troubled && self.events.is_multiple_of(8) && self.unrest().is_empty()
    }

    /// Returns the parts of the cluster that are not at rest.
    fn unrest(&self) -> String {
        let Some(record) = self.checks.newest() else {
            return "there is no record".to_owned();
        };
        if let Some(change) = &record.change {
            return format!("change {} is in flight", change.number);
        }
        if !self.reads.is_empty() {
            return "reads go on".to_owned();
        }
        for node in &self.nodes {
            if let Some(why) = self.unrest_of(node, record) {
                return format!("{} {why}", node.id);
            }
        }
        if record.settling.is_some() {
            return format!("ring {} has not settled", record.version);
        }
        String::new()
    }

    fn unrest_of(&self, node: &Node, record: &Record) -> Option<String> {
        use larder_membership::record::State;
        let agent = node.agent.as_ref()?;
        let state = record.entry(&node.id).map(|entry| entry.state);
        let settled = match state {
            Some(State::Active | State::Held) => true,
            // The last draining member waits for another node to join.
            Some(State::Draining { .. }) => !record.in_ring().any(|e| e.state == State::Active),
            Some(_) => false,
            // A removed node stays out; any other node joins.
            None => node.was_in_ring,
        };
        if !settled {
            return Some(format!("is {}", state.map_or("outside", State::name)));
        }
        if agent.record().map(|seen| seen.version) != Some(record.version)
            || agent.installed() != record.version
        {
            return Some(format!("is behind ring {}", record.version));
        }
        if !node.commands.is_empty() {
            return Some("owes an operator an answer".to_owned());
        }
        None
    }
}

/// Folds hashed values into the trace, byte order fixed by the platform's `Hash` of integers: the
/// trace is compared within one build only.
struct Fold<'a>(&'a mut Xxh3);

impl Hasher for Fold<'_> {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl World {
    fn exact(&self) -> bool {
        self.scene.kind == Kind::Calm
    }
}

/// The snapshots of a run and their shards.
fn snapshots(seed: u64, scene: &Scene) -> Vec<(SnapshotId, Vec<SizedShard>)> {
    let shard = |snapshot: u64, index: u64| {
        let hash = xxh3_128(&[seed, snapshot, index].map(u64::to_le_bytes).concat());
        SizedShard { id: ShardId::from_bytes(hash.to_le_bytes()), bytes: planner::SHARD_BYTES }
    };
    let snapshot = |(number, count): (u8, &usize)| {
        let shards = (0..*count as u64).map(|index| shard(number.into(), index));
        (SnapshotId::from_bytes([number; 32]), shards.collect())
    };
    (1..).zip(&scene.snapshots).map(snapshot).collect()
}

/// The shards of all snapshots, one after the other.
fn shards(snapshots: &[(SnapshotId, Vec<SizedShard>)]) -> Vec<Known> {
    let of_snapshot = |(of, (snapshot, shards)): (usize, &(SnapshotId, Vec<SizedShard>))| {
        let known = |shard: &SizedShard| {
            let shard = Shard { snapshot: *snapshot, shard: shard.id };
            Known { shard, of }
        };
        shards.iter().map(known).collect::<Vec<_>>()
    };
    snapshots.iter().enumerate().flat_map(of_snapshot).collect()
}
