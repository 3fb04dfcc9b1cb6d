//! Simulates nodes that know the read plans of loaders: the real store, the real outlook, the real
//! orders. Clock, network, origin, loaders and the shell of a node are simulated.
//!
//! Loaders die, stall, jump and lie about their windows. Messages are lost. Nodes die and come back
//! empty, and the ring changes with them. After every step the checks look at memory, at each fill
//! and at each eviction. A planted [`PlanBug`] proves that they notice.
//!
//! Thread rule: one run, one thread. Non-goals: bytes of rows, and transfers of ring changes.

mod loader;
mod node;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;

use loader::SimLoader;
use node::{Fill, SimNode};

/// A step of time.
const STEP: Duration = Duration::from_millis(50);
/// Steps of a run: one and a half minutes.
const STEPS: u32 = 1_800;
/// A fill takes at most this long. One that takes much longer has no end.
const FILL_MAX: Duration = Duration::from_secs(2);
/// A plan is passed on within a second, and ends five seconds later.
const PLAN_GONE: Duration = Duration::from_secs(8);

/// A fault to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanBug {
    /// A node forgets no plan.
    StalePlan,
    /// A fetch ahead takes the room of a shard that is kept.
    EvictsKept,
    /// A node takes all loaders of a job to be where the fastest is.
    ChargesTooLittle,
    /// The second node of a shard's walk takes itself for its owner too.
    TwoOwners,
    /// A fetch ahead may be lost with its result.
    NeverEnds,
    /// A node does not ask clients to return maps.
    ForgetsRecall,
}

/// All of them.
pub const PLAN_BUGS: [PlanBug; 6] = [
    PlanBug::StalePlan,
    PlanBug::EvictsKept,
    PlanBug::ChargesTooLittle,
    PlanBug::TwoOwners,
    PlanBug::NeverEnds,
    PlanBug::ForgetsRecall,
];

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanReport {
    /// The seed of the run.
    pub seed: u64,
    /// The check that failed, and how.
    pub violation: Option<String>,
    /// Shards that were read from memory, that were fetched for it, and read by range.
    pub reads: [u64; 3],
}

struct World {
    random: Rng,
    bug: Option<PlanBug>,
    now: Instant,
    shards: u32,
    nodes: Vec<SimNode>,
    loaders: Vec<SimLoader>,
    /// Whether anything goes wrong in this run.
    is_calm: bool,
    report: PlanReport,
}

/// Runs one seed.
pub fn run_plans(seed: u64, bug: Option<PlanBug>) -> PlanReport {
    let mut world = World::new(seed, bug);
    for _ in 0..STEPS {
        world.step();
        if world.report.violation.is_some() {
            break;
        }
    }
    world.report
}

/// Returns the first of these seeds that shows the bug.
pub fn find_plans(bug: PlanBug, seeds: std::ops::Range<u64>) -> Option<PlanReport> {
    seeds.map(|seed| run_plans(seed, Some(bug))).find(|report| report.violation.is_some())
}

#[expect(clippy::disallowed_methods, reason = "an `Instant` can be had in no other way")]
fn start() -> Instant {
    Instant::now()
}

/// The bytes of a shard: they differ.
fn bytes_of(shard: u32) -> u64 {
    2 + u64::from(shard % 3)
}

impl World {
    fn new(seed: u64, bug: Option<PlanBug>) -> Self {
        let mut random = Rng::with_seed(seed);
        let (shards, count) = (random.u32(40..120), random.usize(1..4));
        let now = start();
        let all: u64 = (0..shards).map(bytes_of).sum();
        let memory = all * random.u64(3..9) / 10 / count as u64;
        let nodes = (0..count).map(|_| SimNode::new(memory)).collect();
        // The windows of all loaders together take a sixth of memory at most.
        let width = (shards * u32::try_from(memory * count as u64 / all.max(1)).unwrap_or(1) / 12)
            .max(shards / 40)
            .max(1);
        let jobs = random.u32(1..4);
        let mut loaders = Vec::new();
        for job in 0..jobs {
            let pace = Duration::from_millis(random.u64(1_500..4_000));
            let ranks = random.u32(1..3);
            for rank in 0..ranks {
                let id = u64::from(job * 10 + rank);
                let host = random.usize(..count);
                loaders.push(SimLoader::new(id, u64::from(job), host, (shards, width), pace, now));
            }
        }
        let is_calm = random.u32(..3) == 0;
        let report = PlanReport { seed, ..PlanReport::default() };
        Self { random, bug, now, shards, nodes, loaders, is_calm, report }
    }

    fn step(&mut self) {
        self.now += STEP;
        if !self.is_calm {
            self.mishap();
        }
        self.tell();
        for node in 0..self.nodes.len() {
            self.finish_fills(node);
            self.look(node);
            self.feed(node);
        }
        for loader in 0..self.loaders.len() {
            self.read(loader);
            self.return_maps(loader);
        }
        self.check();
    }

    /// Lets something go wrong, now and then.
    fn mishap(&mut self) {
        if self.random.u32(..400) == 0 {
            let node = self.random.usize(..self.nodes.len());
            let others = self.nodes.iter().filter(|one| one.is_up).count();
            if self.nodes[node].is_up && others > 1 {
                self.nodes[node] = SimNode::new(self.nodes[node].memory());
                self.nodes[node].is_up = false;
                self.loaders.iter_mut().for_each(|loader| loader.forget(node));
            } else {
                self.nodes[node].is_up = true;
            }
            self.nodes.iter_mut().for_each(SimNode::look_again);
        }
        if self.random.u32(..200) == 0 {
            let loader = self.random.usize(..self.loaders.len());
            let windows = self.loaders[loader].windows();
            match self.random.u32(..4) {
                0 => self.end_loader(loader),
                1 => self.loaders[loader].stall(self.now + Duration::from_secs(20)),
                2 => self.loaders[loader].jump(self.random.u32(..windows), self.now),
                _ => self.loaders[loader].lie(self.random.u32(..windows)),
            }
        }
    }

    /// A loader's process ends, and with it all that it holds.
    fn end_loader(&mut self, loader: usize) {
        self.loaders[loader].is_alive = false;
        let holder = self.loaders[loader].holder();
        for node in &mut self.nodes {
            node.store.release_all(holder, self.now);
        }
    }

    /// Loaders tell their plans. All nodes hear them in the same step, unless a message is lost.
    fn tell(&mut self) {
        for loader in self.loaders.iter_mut().filter(|loader| loader.is_alive) {
            let Some(told) = loader.announcement(self.now) else { continue };
            for node in self.nodes.iter_mut().filter(|node| node.is_up) {
                let is_lost = !self.is_calm && self.random.u32(..20) == 0;
                if !is_lost {
                    node.hear(loader.id, told.clone());
                }
            }
        }
    }

    /// The node that owns a shard.
    fn owner(&self, shard: u32) -> Option<usize> {
        self.walk(shard).next()
    }

    /// The nodes that are up, in the order in which they own a shard.
    fn walk(&self, shard: u32) -> impl Iterator<Item = usize> {
        let up = (0..self.nodes.len()).filter(|&node| self.nodes[node].is_up);
        let mut order: Vec<usize> = up.collect();
        let place = |node: usize| [node as u64, u64::from(shard)].map(u64::to_le_bytes).concat();
        order.sort_by_cached_key(|&node| xxhash_rust::xxh3::xxh3_64(&place(node)));
        order.into_iter()
    }

    fn finish_fills(&mut self, node: usize) {
        let (now, bug) = (self.now, self.bug);
        let done: Vec<Fill> = self.nodes[node].take_done(now);
        for fill in done {
            let is_lost =
                bug == Some(PlanBug::NeverEnds) && fill.is_ahead && self.random.u32(..20) == 0;
            self.nodes[node].complete(fill, is_lost, now);
        }
    }

    /// Computes the future of a node, if that is due.
    fn look(&mut self, node: usize) {
        if !self.nodes[node].is_up || !self.nodes[node].is_due(self.now) {
            return;
        }
        let own = (0..self.shards).filter(|&shard| {
            let mut walk = self.walk(shard);
            let owners = if self.bug == Some(PlanBug::TwoOwners) { 2 } else { 1 };
            walk.by_ref().take(owners).any(|owner| owner == node)
        });
        let own: Vec<u32> = own.collect();
        let recalled = self.nodes[node].look(&own, self.bug, self.now);
        if self.bug == Some(PlanBug::ForgetsRecall) {
            return;
        }
        for shard in recalled {
            self.loaders.iter_mut().for_each(|loader| loader.recall(node, shard));
        }
    }

    /// Begins the fetches that a node has room for.
    fn feed(&mut self, node: usize) {
        while self.nodes[node].is_up && self.nodes[node].has_free_fetch() {
            let Some(shard) = self.nodes[node].next_due() else { return };
            self.check_fetch(node, shard);
            if !self.request(node, shard, true) {
                self.nodes[node].put_back(shard);
                return;
            }
        }
    }

    /// Asks a node for a shard. Returns whether it has it, or fills it.
    fn request(&mut self, node: usize, shard: u32, is_ahead: bool) -> bool {
        let took = Duration::from_millis(self.random.u64(50..1_500)).min(FILL_MAX);
        let (answer, evicted) = self.nodes[node].request(shard, is_ahead, self.now, took);
        for gone in evicted {
            self.check_eviction(node, gone);
        }
        if !answer && is_ahead && self.bug == Some(PlanBug::EvictsKept) {
            let kept = self.nodes[node].evict_kept(self.now);
            if let Some(kept) = kept {
                self.check_eviction(node, kept);
            }
        }
        answer
    }

    /// A loader reads the shards of its window, each from its owner.
    fn read(&mut self, loader: usize) {
        if !self.loaders[loader].is_alive {
            return;
        }
        for shard in self.loaders[loader].wanted() {
            let Some(node) = self.owner(shard) else { continue };
            let had = self.nodes[node].has(shard);
            if had {
                self.report.reads[0] += 1;
                if node == self.loaders[loader].host && !self.loaders[loader].maps(node, shard) {
                    let holder = self.loaders[loader].holder();
                    if self.nodes[node].store.lease(shard, holder, self.now).is_ok() {
                        self.loaders[loader].map(node, shard);
                    }
                }
                let _ = self.nodes[node].store.get(shard, (), self.now);
                self.loaders[loader].has_read(shard);
            } else if !self.nodes[node].fills(shard) && !self.request(node, shard, false) {
                self.report.reads[2] += 1;
                self.loaders[loader].has_read(shard);
            }
        }
        self.loaders[loader].advance(self.now, &mut self.random);
    }

    /// A client returns the maps that were recalled and that it does not read.
    fn return_maps(&mut self, loader: usize) {
        let holder = self.loaders[loader].holder();
        for (node, shard) in self.loaders[loader].returned() {
            self.nodes[node].store.release(shard, holder, self.now);
        }
    }

    fn fail(&mut self, what: String) {
        self.report.violation.get_or_insert(what);
    }

    /// No fetch for a plan that ended, and none of a shard that its owner has.
    fn check_fetch(&mut self, node: usize, shard: u32) {
        self.report.reads[1] += 1;
        let lives = |loader: &SimLoader| {
            loader.told_at.is_some_and(|at| self.now.saturating_duration_since(at) < PLAN_GONE)
        };
        if !self.loaders.iter().any(lives) {
            self.fail(format!("node {node} fetches shard {shard}, which no living plan names"));
        }
        if let Some(owner) = self.owner(shard)
            && owner != node
            && (self.nodes[owner].has(shard) || self.nodes[owner].fills(shard))
        {
            self.fail(format!("node {node} fetches shard {shard}, which its owner {owner} has"));
        }
    }

    /// Only shards that were given up leave, and none that a loader is known to read, unless memory
    /// is too small for all that is read now.
    fn check_eviction(&mut self, node: usize, shard: u32) {
        if !self.nodes[node].gave_up(shard) {
            self.fail(format!("node {node} evicts shard {shard}, which it keeps"));
        }
        let reads = |loader: &&SimLoader| {
            let knows = || self.nodes[node].knows(loader.id, loader.place(), self.now);
            loader.is_honest() && loader.reads(shard) && knows()
        };
        if self.owner(shard) == Some(node)
            && !self.nodes[node].is_short()
            && let Some(loader) = self.loaders.iter().find(reads).map(|loader| loader.id)
        {
            self.fail(format!("node {node} evicts shard {shard}, which loader {loader} reads"));
        }
    }

    /// Memory is never exceeded, fills end, and maps that were recalled come back.
    fn check(&mut self) {
        let mut found = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(what) = node.wrong(self.now, FILL_MAX * 4) {
                found.insert(index, what);
            }
            for shard in node.overdue_maps(self.now) {
                let keeps = |loader: &SimLoader| loader.keeps(index, shard);
                if !self.loaders.iter().any(keeps) {
                    found.insert(index, format!("shard {shard} is given up and was not recalled"));
                }
            }
        }
        for (node, what) in found {
            self.fail(format!("node {node}: {what}"));
        }
    }
}
