//! The read plans that loaders announced: in which order each uses shards, and how far it is.
//!
//! Ranks of a job go through one pass in step. So the node takes loaders with equal keys, and close
//! to each other, for one job: its shards are needed from the fastest of them until the slowest.
//! Loaders of one seed that are far apart count as several jobs.
//!
//! A plan is soft state. It ends when it is not told again, so a killed client, a dead node and a
//! lost message are one case. A plan that lies changes which shards stay, and never a byte.
//!
//! Thread rule: locks for microseconds. Non-goals: what follows from plans (`prefetch`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_base::{Error, ErrorKind, SnapshotId, limits};
use larder_order::{DeclaredShards, ShardKeys};
use larder_wire::control::{ReadPlan, snapshot_id};
use tokio::sync::Notify;

/// Loaders of one order that are at most this many windows apart are ranks of one job.
const RANKS_APART_MAX: u32 = 2;

/// A loader that said nothing for longer than this may stand still.
const ADVANCE_MAX: Duration = Duration::from_secs(2);

/// Most windows a second. A faster loader reads windows of a few rows, which no plan helps.
const RATE_MAX: f64 = 1e6;

/// Bytes that a plan takes beside its stretches of shards.
const PLAN_BYTES: usize = 256;

/// The plans that a node holds.
#[derive(Debug, Default)]
pub(crate) struct ReadPlans {
    state: Mutex<State>,
    changed: Notify,
    own_changed: Notify,
}

#[derive(Debug)]
struct State {
    loaders: BTreeMap<LoaderId, Loader>,
    /// A plan ends after this time.
    lifetime: Duration,
}

impl Default for State {
    fn default() -> Self {
        Self { loaders: BTreeMap::new(), lifetime: limits::READ_PLAN_LIFETIME }
    }
}

type LoaderId = [u8; 16];

/// What one loader announced last.
#[derive(Debug, Clone)]
struct Loader {
    snapshot: SnapshotId,
    job: Arc<str>,
    pass: u64,
    keys: Arc<ShardKeys>,
    first_window: u32,
    last_window: u32,
    rate: Option<f64>,
    heard: Instant,
    /// As a client of this node told it.
    own: Option<ReadPlan>,
}

/// A job: loaders that go through one order together.
#[derive(Debug, Clone)]
pub(crate) struct ReadJob {
    /// The snapshot that it reads.
    pub(crate) snapshot: SnapshotId,
    /// Its name for people, which may be empty.
    pub(crate) name: Arc<str>,
    /// The number of its pass.
    pub(crate) pass: u64,
    /// Its order.
    pub(crate) keys: Arc<ShardKeys>,
    /// Its loaders.
    pub(crate) loaders: u32,
    /// The window of its slowest loader.
    pub(crate) slowest: u32,
    /// The window of its fastest loader. From the number of windows on, it is in the next pass.
    pub(crate) fastest: u32,
    /// Windows a second.
    pub(crate) rate: Option<f64>,
}

impl ReadPlans {
    /// Takes the plans of a client, or those that another node passes on.
    ///
    /// # Errors
    /// `InvalidArgument` if a plan breaks a rule of the schema, or there would be too many. Then
    /// nothing changes. `shards_of` returns the number of shards of a snapshot that is open here.
    pub(crate) fn tell(
        &self,
        plans: Vec<ReadPlan>,
        is_of_client: bool,
        shards_of: impl Fn(SnapshotId) -> Option<u32>,
        now: Instant,
    ) -> Result<(), Error> {
        if is_of_client && plans.len() > limits::READ_PLANS_OF_CLIENT_MAX {
            let (count, max) = (plans.len(), limits::READ_PLANS_OF_CLIENT_MAX);
            return Err(refused(format!("{count} read plans of one process; it may have {max}")));
        }
        let mut told = BTreeMap::new();
        for plan in plans {
            let id = <LoaderId>::try_from(&*plan.reader)
                .map_err(|_| refused(format!("reader has {} bytes, not 16", plan.reader.len())))?;
            let mut loader = Loader::read(&plan, now)?;
            let (end, count) = (loader.keys.declared.end(), shards_of(loader.snapshot));
            if let Some(count) = count.filter(|&count| end > count) {
                let snapshot = loader.snapshot;
                let message = format!("shard {} of snapshot {snapshot} of {count} shards", end - 1);
                return Err(refused(message));
            }
            loader.own = is_of_client.then_some(plan);
            told.insert(id, loader);
        }
        let mut state = self.lock();
        state.forget_silent(now);
        check_room(&state.loaders, &told)?;
        let mut is_news = false;
        for (id, mut loader) in told {
            let before = state.loaders.get(&id);
            if let Some(before) = before {
                // Most plans are told again with another place only.
                if before.keys == loader.keys {
                    loader.keys = Arc::clone(&before.keys);
                }
                // What a client tells is newer than what comes by another node.
                loader.own = loader.own.or_else(|| before.own.clone());
            }
            is_news |= before.is_none_or(|before| before.place() != loader.place());
            state.loaders.insert(id, loader);
        }
        drop(state);
        if is_news {
            self.changed.notify_one();
            if is_of_client {
                self.own_changed.notify_one();
            }
        }
        Ok(())
    }

    /// Waits until a plan comes, or a loader enters another window.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until an own client brings a plan, or its loader enters another window.
    pub(crate) async fn own_changed(&self) {
        self.own_changed.notified().await;
    }

    /// Returns the plans that clients of this node told it.
    pub(crate) fn own(&self, now: Instant) -> Vec<ReadPlan> {
        let mut state = self.lock();
        state.forget_silent(now);
        state.loaders.values().filter_map(|loader| loader.own.clone()).collect()
    }

    /// Returns the jobs at this moment.
    pub(crate) fn jobs(&self, now: Instant) -> Vec<ReadJob> {
        let mut state = self.lock();
        state.forget_silent(now);
        let mut loaders: Vec<Loader> =
            state.loaders.values().map(|loader| loader.advanced(now)).collect();
        drop(state);
        loaders.sort_by(|one, other| one.order_key().cmp(&other.order_key()));
        let mut jobs: Vec<ReadJob> = Vec::new();
        for loader in loaders {
            match jobs.last_mut().filter(|job| job.has(&loader)) {
                Some(job) => job.add(&loader),
                None => jobs.push(ReadJob::of(&loader)),
            }
        }
        jobs
    }

    /// Returns how long to wait before own plans are passed on again, among this many nodes. From
    /// now on, plans live long enough for that.
    pub(crate) fn interval(&self, nodes: usize) -> Duration {
        let slower = u32::try_from(nodes / 64).unwrap_or(u32::MAX).max(1);
        let interval = limits::READ_PLAN_INTERVAL * slower;
        self.lock().lifetime = limits::READ_PLAN_LIFETIME.max(interval * 3);
        interval
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_silent(&mut self, now: Instant) {
        let lifetime = self.lifetime;
        let age = |loader: &Loader| now.saturating_duration_since(loader.heard);
        self.loaders.retain(|_, loader| age(loader) < lifetime);
    }
}

impl Loader {
    /// Reads what a message says.
    fn read(plan: &ReadPlan, now: Instant) -> Result<Self, Error> {
        let snapshot = snapshot_id(&plan.snapshot)?;
        if plan.job.len() > limits::JOB_NAME_BYTES_MAX {
            let (bytes, max) = (plan.job.len(), limits::JOB_NAME_BYTES_MAX);
            return Err(refused(format!("the name of a job has {bytes} bytes; at most {max} fit")));
        }
        if let Some(rate) = plan.rate.filter(|rate| !(*rate > 0.0 && *rate <= RATE_MAX)) {
            return Err(refused(format!(
                "a rate of {rate} windows a second; above 0 to 1e6 can be"
            )));
        }
        let keys = keys(plan)?;
        let windows = keys.windows();
        let (first, last) = (plan.first_window, plan.last_window);
        if first > last || first > windows || last > windows.saturating_mul(2) {
            return Err(refused(format!("windows {first} to {last} of a pass with {windows}")));
        }
        Ok(Self {
            snapshot,
            job: plan.job.as_str().into(),
            pass: plan.pass,
            keys: Arc::new(keys),
            first_window: first,
            last_window: last,
            rate: plan.rate,
            heard: now,
            own: None,
        })
    }

    fn bytes(&self) -> usize {
        let of_runs = self.keys.declared.runs().count() * 8;
        PLAN_BYTES + of_runs * if self.own.is_some() { 2 } else { 1 }
    }

    fn place(&self) -> (&ShardKeys, u32, u32) {
        (&self.keys, self.first_window, self.last_window)
    }

    /// Where it should be by now.
    fn advanced(&self, now: Instant) -> Self {
        let age = now.saturating_duration_since(self.heard).min(ADVANCE_MAX);
        let windows = self.rate.map_or(0.0, |rate| rate * age.as_secs_f64());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let windows = windows as u32;
        let first = self.first_window.saturating_add(windows).min(self.keys.windows());
        let last = first + (self.last_window - self.first_window);
        Self { first_window: first, last_window: last, own: None, ..self.clone() }
    }

    /// Sorts the loaders of a job side by side, the slowest first.
    fn order_key(&self) -> impl Ord {
        let keys = (self.keys.keys, self.keys.width, self.keys.declared.len());
        (self.snapshot, Arc::clone(&self.job), keys, self.first_window)
    }
}

impl ReadJob {
    fn of(loader: &Loader) -> Self {
        Self {
            snapshot: loader.snapshot,
            name: Arc::clone(&loader.job),
            pass: loader.pass,
            keys: Arc::clone(&loader.keys),
            loaders: 1,
            slowest: loader.first_window,
            fastest: loader.last_window,
            rate: loader.rate,
        }
    }

    fn has(&self, loader: &Loader) -> bool {
        (self.snapshot, &self.name, &*self.keys) == (loader.snapshot, &loader.job, &*loader.keys)
            && loader.first_window <= self.fastest.saturating_add(RANKS_APART_MAX)
    }

    fn add(&mut self, loader: &Loader) {
        self.loaders += 1;
        self.fastest = self.fastest.max(loader.last_window);
        self.rate = match (self.rate, loader.rate) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
    }
}

/// Reads and checks the shards and keys of a plan.
fn keys(plan: &ReadPlan) -> Result<ShardKeys, Error> {
    let (pairs, rest) = plan.shards.as_chunks::<2>();
    let (runs, max) = (pairs.len(), limits::READ_PLAN_RUNS_MAX);
    if !rest.is_empty() || runs > max {
        let message =
            format!("{} numbers for stretches of shards, not {max} pairs", plan.shards.len());
        return Err(refused(message));
    }
    if plan.window_shards == 0 {
        return Err(refused("windows of 0 shards; a window has at least 1"));
    }
    let runs = pairs.iter().map(|&[first, count]| first..first.saturating_add(count));
    let declared = DeclaredShards::from_runs(runs).map_err(|why| refused(why.to_string()))?;
    let keys = match plan.keys.as_chunks::<16>() {
        ([], []) => None,
        ([this, next], []) => Some([*this, *next].map(u128::from_le_bytes)),
        _ => return Err(refused(format!("keys have {} bytes, not 0 or 32", plan.keys.len()))),
    };
    Ok(ShardKeys { declared, width: plan.window_shards, keys })
}

/// Checks that these loaders fit beside the others.
fn check_room(
    loaders: &BTreeMap<LoaderId, Loader>,
    told: &BTreeMap<LoaderId, Loader>,
) -> Result<(), Error> {
    let others = loaders.iter().filter(|(id, _)| !told.contains_key(*id)).map(|(_, loader)| loader);
    let all = others.chain(told.values());
    let (count, bytes) =
        all.fold((0, 0), |(count, bytes), loader| (count + 1, bytes + loader.bytes()));
    let (count_max, bytes_max) = (limits::READ_PLANS_MAX, limits::READ_PLANS_BYTES_MAX);
    if count <= count_max && bytes <= bytes_max {
        return Ok(());
    }
    Err(refused(format!(
        "{count} read plans of {bytes} bytes; a node holds {count_max} plans and {bytes_max} bytes"
    )))
}

fn refused(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, why)
}

#[cfg(test)]
mod tests;
