//! From what loaders announce to jobs and their plans.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_order::ShardKeys;

use crate::ReadPlan;

/// Loaders of one order that are at most this many windows apart are ranks of one job.
const RANKS_APART_MAX: u32 = 2;

/// A loader that said nothing for longer than this may stand still.
const ADVANCE_MAX: Duration = Duration::from_secs(2);

/// What one loader announced last. `S` names its snapshot.
#[derive(Debug, Clone)]
pub struct Loader<S> {
    /// The snapshot that it reads.
    pub snapshot: S,
    /// The name of its job for people, which may be empty.
    pub job: Arc<str>,
    /// The number of its pass.
    pub pass: u64,
    /// Its order.
    pub keys: Arc<ShardKeys>,
    /// The window of its oldest batch in use.
    pub first_window: u32,
    /// The window of the newest batch that it fetches. From [`ShardKeys::windows`] on, they count
    /// in the next pass.
    pub last_window: u32,
    /// Windows a second: finite, and above 0.
    pub rate: Option<f64>,
    /// When it was heard.
    pub heard: Instant,
}

/// A job: loaders that go through one order together.
#[derive(Debug, Clone)]
pub struct Job<S> {
    /// The snapshot that it reads.
    pub snapshot: S,
    /// Its name for people, which may be empty.
    pub name: Arc<str>,
    /// The number of its pass.
    pub pass: u64,
    /// Its order.
    pub keys: Arc<ShardKeys>,
    /// Its loaders.
    pub loaders: u32,
    /// The window of its slowest loader.
    pub slowest: u32,
    /// The window of its fastest loader. From the number of windows on, it is in the next pass.
    pub fastest: u32,
    /// Windows a second.
    pub rate: Option<f64>,
}

impl<S: Copy + Ord> Loader<S> {
    /// Where it should be by now.
    fn advanced(&self, now: Instant) -> Self {
        let age = now.saturating_duration_since(self.heard).min(ADVANCE_MAX);
        let windows = self.rate.map_or(0.0, |rate| rate * age.as_secs_f64());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let windows = windows as u32;
        let first = self.first_window.saturating_add(windows).min(self.keys.windows());
        let last = first.saturating_add(self.last_window.saturating_sub(self.first_window));
        Self { first_window: first, last_window: last, ..self.clone() }
    }

    /// Sorts the loaders of a job side by side, the slowest first.
    fn place(&self) -> impl Ord {
        let keys = (self.keys.keys, self.keys.width, self.keys.declared.len());
        (self.snapshot, Arc::clone(&self.job), keys, self.first_window)
    }
}

/// Joins loaders to jobs. Each is taken to have gone on at its rate since it was heard.
pub fn jobs<'a, S: Copy + Ord + 'a>(
    loaders: impl IntoIterator<Item = &'a Loader<S>>,
    now: Instant,
) -> Vec<Job<S>> {
    let mut loaders: Vec<_> = loaders.into_iter().map(|loader| loader.advanced(now)).collect();
    loaders.sort_by(|one, other| one.place().cmp(&other.place()));
    let mut jobs: Vec<Job<S>> = Vec::new();
    for loader in &loaders {
        match jobs.last_mut().filter(|job| job.has(loader)) {
            Some(job) => job.add(loader),
            None => jobs.push(Job::of(loader)),
        }
    }
    jobs
}

impl<S: Copy + Ord> Job<S> {
    fn of(loader: &Loader<S>) -> Self {
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

    fn has(&self, loader: &Loader<S>) -> bool {
        (self.snapshot, &self.name, &*self.keys) == (loader.snapshot, &loader.job, &*loader.keys)
            && loader.first_window <= self.fastest.saturating_add(RANKS_APART_MAX)
    }

    fn add(&mut self, loader: &Loader<S>) {
        self.loaders += 1;
        self.fastest = self.fastest.max(loader.last_window);
        self.rate = match (self.rate, loader.rate) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
    }

    /// Its reads from now on.
    pub fn plan(&self) -> ReadPlan {
        let (slowest, fastest, rate) = (self.slowest, self.fastest, self.rate);
        ReadPlan { passes: self.keys.orders().to_vec(), slowest, fastest, rate }
    }
}
