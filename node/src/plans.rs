//! The read plans that loaders announced: in which order each uses shards, and how far it is.
//!
//! Ranks of a job go through one pass in step. So the node takes loaders with equal keys, and close
//! to each other, for one job: see [`jobs`].
//!
//! A plan is soft state. It ends when it is not told again, so a killed client, a dead node and a
//! lost message are one case. A plan that lies changes which shards stay, and never a byte.
//!
//! Thread rule: locks for microseconds. Non-goals: what follows from plans (`prefetch`).

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_base::{Error, ErrorKind, SnapshotId, limits};
use larder_foresight::{Job, Loader, jobs};
use larder_order::{DeclaredShards, ShardKeys};
use larder_wire::control::{ReadPlan, snapshot_id};
use tokio::sync::Notify;

/// Read plans that a node holds, those that other nodes passed on included: 1,024 loaders in jobs
/// of four datasets.
const READ_PLANS_MAX: usize = 4_096;

/// Memory for all of them. Plans with many stretches of shards take more than others.
const READ_PLANS_BYTES_MAX: usize = 1 << 20;

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
    loaders: BTreeMap<LoaderId, Announced>,
    /// A plan ends after this time.
    lifetime: Duration,
    /// The snapshots whose plans no job follows.
    set_aside: HashSet<SnapshotId>,
}

impl Default for State {
    fn default() -> Self {
        let lifetime = limits::READ_PLAN_LIFETIME;
        Self { loaders: BTreeMap::new(), lifetime, set_aside: HashSet::new() }
    }
}

type LoaderId = [u8; 16];

/// What one loader announced last.
#[derive(Debug)]
struct Announced {
    loader: Loader<SnapshotId>,
    /// As a client of this node told it.
    own: Option<ReadPlan>,
}

/// A job, as a node knows it.
pub(crate) type ReadJob = Job<SnapshotId>;

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
            let loader = read(&plan, now)?;
            let (end, count) = (loader.keys.declared.end(), shards_of(loader.snapshot));
            if let Some(count) = count.filter(|&count| end > count) {
                let snapshot = loader.snapshot;
                let message = format!("shard {} of snapshot {snapshot} of {count} shards", end - 1);
                return Err(refused(message));
            }
            let own = is_of_client.then_some(plan);
            told.insert(id, Announced { loader, own });
        }
        let mut state = self.lock();
        state.forget_silent(now);
        check_room(&state.loaders, &told)?;
        let mut is_news = false;
        for (id, mut one) in told {
            let before = state.loaders.get(&id);
            if before.is_some_and(|before| before.own.is_some() && one.own.is_none()) {
                // The client's own word is newer than one that another node passes on.
                continue;
            }
            // Most plans are told again with another place only.
            if let Some(before) = before.filter(|before| before.loader.keys == one.loader.keys) {
                one.loader.keys = Arc::clone(&before.loader.keys);
            }
            is_news |= before.is_none_or(|before| before.place() != one.place());
            state.loaders.insert(id, one);
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
        state.loaders.values().filter_map(|one| one.own.clone()).collect()
    }

    /// Returns the jobs at this moment.
    pub(crate) fn jobs(&self, now: Instant) -> Vec<ReadJob> {
        let mut state = self.lock();
        state.forget_silent(now);
        jobs(state.loaders.values().map(|one| &one.loader), now)
    }

    /// Sets aside the plans of these snapshots, and no others.
    pub(crate) fn set_aside(&self, snapshots: HashSet<SnapshotId>) {
        self.lock().set_aside = snapshots;
    }

    /// Returns whether the plans of a snapshot are set aside.
    pub(crate) fn is_set_aside(&self, snapshot: SnapshotId) -> bool {
        self.lock().set_aside.contains(&snapshot)
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
        let age = |one: &Announced| now.saturating_duration_since(one.loader.heard);
        self.loaders.retain(|_, one| age(one) < lifetime);
    }
}

impl Announced {
    fn bytes(&self) -> usize {
        let of_runs = self.loader.keys.declared.runs().count() * 8;
        PLAN_BYTES + of_runs * if self.own.is_some() { 2 } else { 1 }
    }

    fn place(&self) -> (&ShardKeys, u32, u32) {
        (&self.loader.keys, self.loader.first_window, self.loader.last_window)
    }
}

/// Reads and checks a message.
fn read(plan: &ReadPlan, now: Instant) -> Result<Loader<SnapshotId>, Error> {
    let snapshot = snapshot_id(&plan.snapshot)?;
    if plan.job.len() > limits::JOB_NAME_BYTES_MAX {
        let (bytes, max) = (plan.job.len(), limits::JOB_NAME_BYTES_MAX);
        return Err(refused(format!("the name of a job has {bytes} bytes; at most {max} fit")));
    }
    if let Some(rate) = plan.rate.filter(|rate| !(*rate > 0.0 && *rate <= RATE_MAX)) {
        return Err(refused(format!("a rate of {rate} windows a second; above 0 to 1e6 can be")));
    }
    let keys = keys(plan)?;
    let windows = keys.windows();
    let (first_window, last_window) = (plan.first_window, plan.last_window);
    let is_within = first_window <= windows && last_window <= windows.saturating_mul(2);
    if first_window > last_window || !is_within {
        let message = format!("windows {first_window} to {last_window} of a pass with {windows}");
        return Err(refused(message));
    }
    let (job, pass, rate) = (plan.job.as_str().into(), plan.pass, plan.rate);
    let keys = Arc::new(keys);
    Ok(Loader { snapshot, job, pass, keys, first_window, last_window, rate, heard: now })
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
    loaders: &BTreeMap<LoaderId, Announced>,
    told: &BTreeMap<LoaderId, Announced>,
) -> Result<(), Error> {
    let others = loaders.iter().filter(|(id, _)| !told.contains_key(*id)).map(|(_, one)| one);
    let all = others.chain(told.values());
    let (count, bytes) = all.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.bytes()));
    let (count_max, bytes_max) = (READ_PLANS_MAX, READ_PLANS_BYTES_MAX);
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
