//! A simulated node: the real store and the real outlook, in a shell of a few lines.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::{Duration, Instant};

use larder_foresight::{InMemory, Job, Loader, Otherwise, Outlook, OwnShard, Reads, jobs};
use larder_store::{Budget, FillPermit, Foreseen, KeepWhatYouHave, Outcome, ShardState, Store};

use super::{PlanBug, bytes_of};

/// How long a plan lives.
const LIFETIME: Duration = Duration::from_secs(5);
/// How often a node looks if nothing changes.
const INTERVAL: Duration = Duration::from_secs(5);
/// Fetches ahead at once.
const FETCHES: usize = 4;
/// Uses that a node looks ahead.
const USES: usize = 10_000;
/// A map that was given up and not returned for longer than this was not recalled.
const OVERDUE: Duration = Duration::from_secs(8);

pub(super) struct SimNode {
    pub(super) is_up: bool,
    pub(super) store: Store<u32, (), (), ()>,
    outlook: Outlook<u32>,
    plans: BTreeMap<u64, Loader<u8>>,
    fills: Vec<Fill>,
    due: VecDeque<u32>,
    given_up: HashSet<u32>,
    /// Its last look found that the windows which are read now do not fit beside what is mapped.
    is_short: bool,
    /// Since when shards are given up and mapped.
    mapped_since: BTreeMap<u32, Instant>,
    looked_at: Option<Instant>,
    has_news: bool,
}

/// A fill under way.
pub(super) struct Fill {
    pub(super) is_ahead: bool,
    shard: u32,
    permit: FillPermit<u32>,
    begun: Instant,
    done: Instant,
}

impl SimNode {
    pub(super) fn new(memory: u64) -> Self {
        Self {
            is_up: true,
            store: Store::new(Budget::new(memory), KeepWhatYouHave::default(), memory),
            outlook: Outlook::default(),
            plans: BTreeMap::new(),
            fills: Vec::new(),
            due: VecDeque::new(),
            given_up: HashSet::new(),
            is_short: false,
            mapped_since: BTreeMap::new(),
            looked_at: None,
            has_news: false,
        }
    }

    pub(super) fn memory(&self) -> u64 {
        self.store.budget().limit_bytes()
    }

    pub(super) fn hear(&mut self, loader: u64, told: Loader<u8>) {
        self.plans.insert(loader, told);
        self.has_news = true;
    }

    /// The ring has changed.
    pub(super) fn look_again(&mut self) {
        self.has_news = true;
    }

    /// Whether its last look knew that a loader is at this place.
    pub(super) fn knows(&self, loader: u64, place: (u64, u32), now: Instant) -> bool {
        let Some(told) = self.plans.get(&loader) else { return false };
        let age = now.saturating_duration_since(told.heard).as_secs_f64();
        let is_there = (told.pass, told.first_window) == place;
        let has_looked = self.looked_at.is_some_and(|at| at >= told.heard);
        is_there && has_looked && told.rate.is_some_and(|rate| age * rate < 1.0)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= INTERVAL;
        self.has_news || self.looked_at.is_none_or(is_old)
    }

    /// Computes the future. Returns the maps to recall.
    pub(super) fn look(&mut self, own: &[u32], bug: Option<PlanBug>, now: Instant) -> Vec<u32> {
        (self.looked_at, self.has_news) = (Some(now), false);
        if bug != Some(PlanBug::StalePlan) {
            let age = |loader: &Loader<u8>| now.saturating_duration_since(loader.heard);
            self.plans.retain(|_, loader| age(loader) < LIFETIME);
        }
        if self.plans.is_empty() {
            self.store.foresee(Foreseen::default());
            (self.due, self.given_up) = (VecDeque::new(), HashSet::new());
            self.mapped_since.clear();
            return Vec::new();
        }
        let mut jobs = jobs(self.plans.values(), now);
        if bug == Some(PlanBug::ChargesTooLittle) {
            jobs.iter_mut().for_each(|job| job.slowest = job.fastest + 1);
        }
        let plans = jobs.iter().map(Job::plan).collect();
        let shard = |&number: &u32| OwnShard { id: number, number, bytes: bytes_of(number) };
        let shards: Vec<OwnShard<u32>> = own.iter().map(shard).collect();
        let held = self.store.held(now).map(|held| InMemory {
            id: held.id,
            bytes: held.bytes,
            is_mapped: held.is_leased,
            last_used: held.last_used,
            otherwise: Otherwise::IsSpare,
        });
        // The order of the store's map differs from run to run.
        let mut held: Vec<InMemory<u32>> = held.collect();
        held.sort_by_key(|one| one.id);
        let memory = self.memory() - self.store.mapped_orphan_bytes(now);
        self.is_short = needed(&jobs, own, &held) > memory;
        let reads = [Reads { shards: &shards, plans }];
        let looked = self.outlook.look(memory, USES, &reads, held, now);
        self.due = looked.due.iter().map(|due| due.number).collect();
        self.given_up = looked.given_up.iter().copied().collect();
        let mapped: HashSet<u32> = looked.recalled.iter().copied().collect();
        self.mapped_since.retain(|shard, _| mapped.contains(shard));
        for &shard in &mapped {
            self.mapped_since.entry(shard).or_insert(now);
        }
        let (fetches, given_up) = (looked.fetches, looked.given_up.into());
        self.store.foresee(Foreseen { fetches, given_up });
        looked.recalled
    }

    pub(super) fn has_free_fetch(&self) -> bool {
        self.fills.iter().filter(|fill| fill.is_ahead).count() < FETCHES
    }

    pub(super) fn next_due(&mut self) -> Option<u32> {
        self.due.pop_front()
    }

    pub(super) fn put_back(&mut self, shard: u32) {
        self.due.push_front(shard);
    }

    pub(super) fn has(&self, shard: u32) -> bool {
        self.store.residents().any(|(id, ..)| id == shard)
    }

    pub(super) fn fills(&self, shard: u32) -> bool {
        self.fills.iter().any(|fill| fill.shard == shard)
    }

    /// Whether some shards that are read now must be read by range.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether the last look gave a shard up.
    pub(super) fn gave_up(&self, shard: u32) -> bool {
        self.given_up.contains(&shard)
    }

    /// Asks the store for a shard. Returns whether it has it or fills it, and what it evicted.
    pub(super) fn request(
        &mut self,
        shard: u32,
        is_ahead: bool,
        now: Instant,
        took: Duration,
    ) -> (bool, Vec<u32>) {
        let mut gone = Vec::new();
        for _ in 0..2 {
            match self.store.request(shard, (), bytes_of(shard), now, || ()) {
                Outcome::Resident(()) => return (true, gone),
                Outcome::InFlight { waiter, .. } => {
                    self.store.leave(waiter);
                    return (true, gone);
                }
                Outcome::Admitted { permit, .. } => {
                    let done = now + took;
                    self.fills.push(Fill { is_ahead, shard, permit, begun: now, done });
                    return (true, gone);
                }
                Outcome::NoRoom { evicted, .. } => {
                    for orphan in evicted {
                        gone.push(orphan.id);
                        self.store.freed(orphan.token);
                    }
                }
            }
        }
        (false, gone)
    }

    /// Evicts some shard that is kept.
    pub(super) fn evict_kept(&mut self, now: Instant) -> Option<u32> {
        let mut kept: Vec<u32> = self.store.residents().map(|(id, ..)| id).collect();
        kept.retain(|id| !self.given_up.contains(id));
        kept.sort_unstable();
        let orphan = kept.into_iter().find_map(|id| self.store.evict(id, now).ok())?;
        let id = orphan.id;
        self.store.freed(orphan.token);
        Some(id)
    }

    pub(super) fn take_done(&mut self, now: Instant) -> Vec<Fill> {
        self.fills.extract_if(.., |fill| fill.done <= now).collect()
    }

    /// Makes a filled shard resident, unless its result is lost.
    pub(super) fn complete(&mut self, fill: Fill, is_lost: bool, now: Instant) {
        if is_lost {
            self.fills.push(Fill { done: now + Duration::from_secs(3_600), ..fill });
        } else {
            let completed = self.store.complete(fill.permit, (), now);
            completed.expect("no other worker took the fill");
        }
    }

    /// Shards that are given up and mapped for too long.
    pub(super) fn overdue_maps(&self, now: Instant) -> Vec<u32> {
        let is_over = |since: &Instant| now.saturating_duration_since(*since) > OVERDUE;
        let over = self.mapped_since.iter().filter(|(_, since)| is_over(since));
        over.map(|(&shard, _)| shard).collect()
    }

    /// What is wrong with the books of this node.
    pub(super) fn wrong(&self, now: Instant, fill_max: Duration) -> Option<String> {
        let bytes = |view: &larder_store::ShardView<u32, ()>| view.bytes;
        let taken: u64 = self.store.shards().iter().map(bytes).sum();
        if taken > self.memory() {
            return Some(format!("{taken} bytes are taken of {}", self.memory()));
        }
        let endless = |fill: &&Fill| now.saturating_duration_since(fill.begun) > fill_max;
        if let Some(fill) = self.fills.iter().find(endless) {
            return Some(format!("the fill of shard {} has no end", fill.shard));
        }
        let filling = self.store.shards().into_iter();
        let filling = filling.filter(|view| matches!(view.state, ShardState::Filling { .. }));
        let orphaned = filling.map(|view| view.id).find(|id| !self.fills(*id));
        orphaned.map(|shard| format!("nobody fills shard {shard}"))
    }
}

/// The bytes of a node's own shards in the windows that jobs read now, of others that loaders still
/// map, and of one window more: the outlook leaves that much free.
fn needed(jobs: &[Job<u8>], own: &[u32], held: &[InMemory<u32>]) -> u64 {
    let windows = |job: &Job<u8>| {
        let (orders, count) = (job.keys.orders(), job.keys.windows());
        let shards = move |window: u32| -> Vec<u32> {
            orders[usize::from(window >= count)].shards(window % count).collect()
        };
        (job.slowest..=job.fastest).flat_map(shards).collect::<Vec<_>>()
    };
    let mut here: BTreeSet<u32> = jobs.iter().flat_map(windows).collect();
    here.retain(|shard| own.contains(shard));
    here.extend(held.iter().filter(|one| one.is_mapped).map(|one| one.id));
    let here: u64 = here.into_iter().map(bytes_of).sum();
    let all: u64 = own.iter().map(|&shard| bytes_of(shard)).sum();
    let widest = jobs.iter().map(|job| all / u64::from(job.keys.windows().max(1))).max();
    here + widest.unwrap_or(0)
}
