//! Simulates nodes that hold less than the data: the shards that a policy fetches, and the time of
//! its epochs. The baselines run in the same simulation: what nodes do today, LRU, and the optimum.
//!
//! All shards are equal. Time is counted in windows of a job of speed 1. Epochs 2 to 5 count. A job
//! of speed 1/2 takes twice as long for a window, so it has read half as many when the first ends.

use std::collections::HashSet;

use larder_client::sampler::Permutation;
use larder_foresight::{Schedule, Shard, Use, schedule};

use crate::measure::seconds;
use crate::report::{Policy, Report};

/// Epochs of a job of speed 1. The first is not counted.
const EPOCHS: u32 = 5;
/// Windows between two looks ahead.
const STEP: f64 = 0.5;
/// Ticks of time in one window of a job of speed 1.
const WINDOW_TICKS: f64 = 1e6;

/// A job that reads a dataset.
#[derive(Debug, Clone, Copy)]
struct Job {
    seed: u64,
    speed: f64,
    /// Windows that it is behind at first.
    delay: f64,
    /// Its dataset: another one has other shards.
    dataset: u32,
}

impl Job {
    const fn new(seed: u64, speed: f64, delay: f64) -> Self {
        Self { seed, speed, delay, dataset: 0 }
    }
}

/// What is simulated.
#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    jobs: Vec<Job>,
    /// Shards of one dataset.
    shards: u32,
    /// Shards of a window.
    window: u32,
    nodes: u32,
    /// Memory of all nodes, in shards.
    memory: u32,
    /// Bandwidth of the origin beside the demand of a job of speed 1; without it there is no limit.
    origin: Option<f64>,
}

pub(crate) fn measure(report: &mut Report) {
    println!("\ndata larger than memory, simulated: hits, and epoch time beside the bound");
    println!("  {:<34}{:<12}{:>6}{:>8}{:>8}", "", "", "nodes", "hits", "time");
    for case in cases() {
        for (policy, (hits, time)) in [
            ("lru", hits_of(&case, &mut Lru::new(&case))),
            ("keep", hits_of(&case, &mut Keep::new(&case))),
            ("foresight", foresee(&case)),
            ("optimum", optimum(&case)),
        ] {
            let fraction = f64::from(case.memory) / f64::from(case.all_shards());
            println!("  {:<34}{policy:<12}{:>6}{hits:>8.3}{time:>8.3}", case.name, case.nodes);
            report.add_policy(Policy {
                case: case.name,
                policy,
                jobs: case.jobs.len(),
                nodes: case.nodes,
                cache_fraction: fraction,
                hit_ratio: hits,
                epoch_time: time,
            });
        }
    }
    cost(report);
}

fn cases() -> Vec<Case> {
    let one = |name, nodes, memory: u32, origin| Case {
        name,
        jobs: vec![Job::new(1, 1.0, 0.0)],
        shards: 6400,
        window: (memory / 16).max(1),
        nodes,
        memory,
        origin,
    };
    let several = |name, jobs: Vec<Job>, shards: u32, memory: u32| Case {
        name,
        jobs,
        shards,
        window: 12,
        nodes: 1,
        memory,
        origin: None,
    };
    let mut cases = Vec::new();
    for nodes in [1, 4, 16] {
        for (name, memory) in [
            ("c = 0.1", 640),
            ("c = 0.25", 1600),
            ("c = 0.5", 3200),
            ("c = 0.75", 4800),
            ("c = 0.9", 5760),
        ] {
            cases.push(one(name, nodes, memory, None));
        }
    }
    cases.push(one("c = 0.5, origin at half", 1, 3200, Some(0.5)));
    cases.push(one("c = 0.5, origin at half", 4, 3200, Some(0.5)));
    // As counted: see benches/README.md.
    let counted = one("158 shards, origin at half", 1, 79, Some(0.5));
    cases.push(Case { shards: 158, window: 6, ..counted });
    let two = vec![Job::new(1, 1.0, 0.0), Job::new(2, 0.5, 30.0)];
    let four = (0..4u8)
        .map(|n| Job::new(n.into(), [1.0, 0.8, 0.5, 0.3][usize::from(n)], f64::from(n) * 37.0));
    let four: Vec<Job> = four.collect();
    let alike = (0..4u8).map(|n| Job::new(7, 1.0, f64::from(n) * 9.0)).collect();
    for (names, memory) in [
        (["2 jobs, c = 0.25", "4 jobs, c = 0.25"], 600),
        (["2 jobs, c = 0.5", "4 jobs, c = 0.5"], 1200),
    ] {
        cases.push(several(names[0], two.clone(), 2400, memory));
        cases.push(several(names[1], four.clone(), 2400, memory));
    }
    cases.push(several("4 jobs of one seed, 9 apart", alike, 2400, 600));
    let datasets = vec![Job::new(1, 1.0, 0.0), Job { dataset: 1, ..Job::new(2, 0.25, 0.0) }];
    cases.push(several("2 datasets, speeds 1 and 1/4", datasets, 1000, 1000));
    cases
}

impl Case {
    fn all_shards(&self) -> u32 {
        let datasets = self.jobs.iter().map(|job| job.dataset).max().unwrap_or(0) + 1;
        self.shards * datasets
    }

    fn windows(&self) -> u32 {
        self.shards.div_ceil(self.window)
    }

    /// The shards of a window, which counts from the job's first.
    fn window_of(&self, job: usize, window: u32) -> impl Iterator<Item = u32> + use<> {
        let Job { seed, dataset, .. } = self.jobs[job];
        let (epoch, within) = (window / self.windows(), window % self.windows());
        let key = u128::from(seed) << 64 | u128::from(epoch);
        let order = Permutation::new(self.shards.into(), key);
        let places = within * self.window..self.shards.min((within + 1) * self.window);
        let first = dataset * self.shards;
        places.map(move |place| {
            first + u32::try_from(order.at(place.into())).expect("a shard of a dataset")
        })
    }

    /// The node that owns a shard.
    fn node_of(&self, shard: u32) -> usize {
        let mixed = u64::from(shard).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33) as usize
            % self.nodes as usize
    }

    fn memory_of_node(&self) -> u64 {
        u64::from(self.memory / self.nodes)
    }

    /// Windows in which nothing is counted, and all windows, of a job of speed 1.
    fn span(&self) -> (f64, f64) {
        let windows = f64::from(self.windows());
        (windows, windows * f64::from(EPOCHS))
    }

    /// All windows of all jobs by their begin, if nothing holds the jobs up: begin, job, window.
    fn trace(&self) -> Vec<(f64, usize, u32)> {
        let (_, end) = self.span();
        let mut trace = Vec::new();
        for (number, job) in self.jobs.iter().enumerate() {
            for window in 0u32.. {
                let begin = job.delay + f64::from(window) / job.speed;
                if begin >= end {
                    break;
                }
                trace.push((begin, number, window));
            }
        }
        trace.sort_by(|one, other| one.0.total_cmp(&other.0));
        trace
    }
}

/// A policy that sees the past only.
trait Online {
    /// A window of a job begins. Returns the number of its shards that are not there.
    fn enter(&mut self, job: usize, shards: &[u32]) -> u32;
}

/// Counts hits along the trace. Such a policy reads while the job does, so it is not simulated in
/// time.
fn hits_of(case: &Case, policy: &mut dyn Online) -> (f64, f64) {
    let (counted_from, _) = case.span();
    let (mut uses, mut missed) = (0, 0);
    for (begin, job, window) in case.trace() {
        let shards: Vec<u32> = case.window_of(job, window).collect();
        let misses = policy.enter(job, &shards);
        if begin >= counted_from {
            uses += u32::try_from(shards.len()).expect("a window");
            missed += misses;
        }
    }
    (1.0 - f64::from(missed) / f64::from(uses), 1.0)
}

/// Evicts the shard that was used least recently, but none of a window in use.
struct Lru<'a> {
    case: &'a Case,
    /// By node: shards, the longest unused first.
    held: Vec<Vec<u32>>,
    in_use: Vec<HashSet<u32>>,
}

impl<'a> Lru<'a> {
    fn new(case: &'a Case) -> Self {
        let held = vec![Vec::new(); case.nodes as usize];
        Self { case, held, in_use: vec![HashSet::new(); case.jobs.len()] }
    }
}

impl Online for Lru<'_> {
    fn enter(&mut self, job: usize, shards: &[u32]) -> u32 {
        self.in_use[job] = shards.iter().copied().collect();
        let mut missed = 0;
        for &shard in shards {
            let held = &mut self.held[self.case.node_of(shard)];
            match held.iter().rposition(|&other| other == shard) {
                Some(place) => drop(held.remove(place)),
                None => {
                    missed += 1;
                    if held.len() as u64 >= self.case.memory_of_node() {
                        let in_use =
                            |other| self.in_use.iter().any(|window| window.contains(other));
                        let Some(oldest) = held.iter().position(|other| !in_use(other)) else {
                            continue;
                        };
                        held.remove(oldest);
                    }
                }
            }
            held.push(shard);
        }
        missed
    }
}

/// Today's policy: what is held stays, and the rest is read by range.
struct Keep<'a> {
    case: &'a Case,
    held: Vec<HashSet<u32>>,
}

impl<'a> Keep<'a> {
    fn new(case: &'a Case) -> Self {
        Self { case, held: vec![HashSet::new(); case.nodes as usize] }
    }
}

impl Online for Keep<'_> {
    fn enter(&mut self, _: usize, shards: &[u32]) -> u32 {
        let mut missed = 0;
        for &shard in shards {
            let held = &mut self.held[self.case.node_of(shard)];
            if !held.contains(&shard) {
                missed += 1;
                if (held.len() as u64) < self.case.memory_of_node() {
                    held.insert(shard);
                }
            }
        }
        missed
    }
}

fn ticks(windows: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a simulated time")]
    let ticks = (windows.max(0.0) * WINDOW_TICKS) as u64;
    ticks
}

/// MIN over the whole trace, with no room charged for windows: a use is a moment.
fn optimum(case: &Case) -> (f64, f64) {
    let (counted_from, _) = case.span();
    let mut uses: Vec<Vec<Use>> = vec![Vec::new(); case.nodes as usize];
    let mut counted = 0;
    for (begin, job, window) in case.trace() {
        for shard in case.window_of(job, window) {
            let at = ticks(begin);
            uses[case.node_of(shard)].push(Use::new(shard, at..at));
            counted += u32::from(begin >= counted_from);
        }
    }
    let shards = vec![Shard::absent(1); case.all_shards() as usize];
    let missed =
        uses.iter().flat_map(|uses| schedule(case.memory_of_node(), &shards, uses).fetches);
    let missed = missed.filter(|fetch| fetch.deadline >= ticks(counted_from)).count();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let hits = 1.0 - missed as f64 / f64::from(counted);
    (hits, 1.0)
}

/// A job on its way.
struct Runner {
    /// Windows behind it, and the part of the present one.
    progress: f64,
    /// When counting began, and its progress then.
    counted: Option<(f64, f64)>,
}

/// Nodes that look ahead over the present and the next pass of each job, again and again.
fn foresee(case: &Case) -> (f64, f64) {
    let mut cluster = Cluster::new(case);
    let ended = loop {
        cluster.look();
        cluster.read();
        cluster.now += STEP;
        if cluster.runners[0].progress >= case.span().1 {
            break cluster.now;
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let missed = cluster.fetched as f64 / cluster.uses.max(1) as f64;
    (1.0 - missed, time_beside_bound(case, &cluster.runners[0], ended, missed))
}

/// The nodes and the jobs of a case, at one moment.
struct Cluster<'a> {
    case: &'a Case,
    runners: Vec<Runner>,
    /// By node: the shards that it owns. It takes the others for absent.
    shards: Vec<Vec<Shard>>,
    /// By node: the number of shards that it holds.
    held: Vec<u64>,
    now: f64,
    /// Shards that the origin can bring before the next look.
    budget: f64,
    /// Shards that are read by range, because they do not fit beside others.
    ranged: HashSet<u32>,
    /// Counted since the first job has seen all its data once.
    uses: u64,
    fetched: u64,
}

impl<'a> Cluster<'a> {
    fn new(case: &'a Case) -> Self {
        let runner = |job: &Job| Runner { progress: -job.delay * job.speed, counted: None };
        let absent = vec![Shard::absent(1); case.all_shards() as usize];
        Self {
            case,
            runners: case.jobs.iter().map(runner).collect(),
            shards: vec![absent; case.nodes as usize],
            held: vec![0; case.nodes as usize],
            now: 0.0,
            budget: 0.0,
            ranged: HashSet::new(),
            uses: 0,
            fetched: 0,
        }
    }

    /// Whether the first job has seen all its data once.
    fn counts(&self) -> bool {
        self.runners[0].progress >= self.case.span().0
    }

    /// Each node looks ahead, and fetches what it may.
    fn look(&mut self) {
        self.budget = self.case.origin.map_or(f64::INFINITY, |origin| {
            // What the origin does not bring in time is lost, but for a part of a shard.
            self.budget.min(1.0) + origin * f64::from(self.case.window) * STEP
        });
        self.ranged.clear();
        for (node, uses) in ahead(self.case, &self.runners, self.now).iter().enumerate() {
            let plan = schedule(self.case.memory_of_node(), &self.shards[node], uses);
            self.ranged.extend(plan.unfit.iter().map(|&at| uses[at as usize].shard));
            self.fetch(node, &plan);
        }
    }

    /// Carries a schedule out as early as the origin and the rooms of given up shards allow.
    fn fetch(&mut self, node: usize, plan: &Schedule) {
        let mut given_up = plan.given_up.iter();
        for fetch in &plan.fetches {
            let place = fetch.shard as usize;
            if self.budget < 1.0 || self.shards[node][place].is_held {
                return;
            }
            if self.held[node] >= self.case.memory_of_node() {
                let Some(&victim) = given_up.next() else { return };
                self.shards[node][victim as usize].is_held = false;
                self.held[node] -= 1;
            }
            self.shards[node][place].is_held = true;
            self.held[node] += 1;
            self.budget -= 1.0;
            self.fetched += u64::from(self.counts());
        }
    }

    /// Each job goes on, unless it waits for a shard of its window.
    fn read(&mut self) {
        for job in 0..self.runners.len() {
            let before = self.runners[job].progress;
            let window: Vec<u32> = self.case.window_of(job, current(before)).collect();
            let is_held =
                |shard: u32| self.shards[self.case.node_of(shard)][shard as usize].is_held;
            let missing: Vec<u32> =
                window.iter().copied().filter(|&shard| !is_held(shard)).collect();
            if before >= 0.0 && missing.iter().any(|shard| !self.ranged.contains(shard)) {
                continue;
            }
            let counts = self.counts();
            let runner = &mut self.runners[job];
            runner.progress += self.case.jobs[job].speed * STEP;
            let leaves = before >= 0.0 && current(runner.progress) > current(before);
            if counts {
                runner.counted.get_or_insert((self.now, before));
            }
            if counts && leaves {
                self.uses += window.len() as u64;
                self.fetched += missing.len() as u64;
            }
        }
    }
}

/// The time of the counted epochs of the first job, beside the larger of what its reads need and
/// what the bandwidth allows.
fn time_beside_bound(case: &Case, first: &Runner, ended: f64, missed: f64) -> f64 {
    let Some((began, progress)) = first.counted else { return 1.0 };
    let windows = first.progress - progress;
    let least = 1.0 - f64::from(case.memory) / f64::from(case.all_shards());
    let bound = case.origin.map_or(1.0, |origin| (least.min(missed) / origin).max(1.0));
    (ended - began) / (windows * bound)
}

/// The window that a job is in.
fn current(progress: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below zero")]
    let window = progress.max(0.0) as u32;
    window
}

/// By node: all uses from now to the end of each job's next pass, sorted by their begin.
fn ahead(case: &Case, runners: &[Runner], now: f64) -> Vec<Vec<Use>> {
    let mut ahead: Vec<Vec<Use>> = vec![Vec::new(); case.nodes as usize];
    for (job, runner) in runners.iter().enumerate() {
        let (first, speed) = (current(runner.progress), case.jobs[job].speed);
        for window in first..(first / case.windows() + 2) * case.windows() {
            let at = |window: f64| ticks(now + ((window - runner.progress) / speed).max(0.0));
            let time = at(f64::from(window))..at(f64::from(window) + 1.0);
            for shard in case.window_of(job, window) {
                ahead[case.node_of(shard)].push(Use::new(shard, time.clone()));
            }
        }
    }
    for uses in &mut ahead {
        uses.sort_by_key(|one| one.time.start);
    }
    ahead
}

/// The time of one look of a node at its largest: a million uses of 62,500 shards.
fn cost(report: &mut Report) {
    const SHARDS: u32 = 62_500;
    const USES: u32 = 1_000_000;
    let shards: Vec<Shard> = (0..SHARDS)
        .map(|shard| if shard % 2 == 0 { Shard::held(1) } else { Shard::absent(1) })
        .collect();
    let order = |pass: u32| Permutation::new(SHARDS.into(), pass.into());
    let uses: Vec<Use> = (0..USES)
        .map(|at| {
            let shard = order(at / SHARDS).at((at % SHARDS).into());
            let begin = u64::from(at) * 10;
            Use::new(u32::try_from(shard).expect("a shard"), begin..begin + 5_000)
        })
        .collect();
    let rounds = (0..report.rounds())
        .map(|_| seconds(|| std::hint::black_box(schedule((SHARDS / 2).into(), &shards, &uses))).0);
    let rounds = rounds.collect();
    report.add_times("a look of a node", &["1,000,000 uses of 62,500 shards"], &[rounds]);
}
