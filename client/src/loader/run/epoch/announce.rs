//! Tells the nodes in which order a loader reads shards, and how far it is. They fetch the shards
//! that are needed soonest, and keep them.
//!
//! Thread rule: fetching threads write two numbers. A task of the client's runtime looks at them
//! and tells a node once a second, and soon after the loader entered another window. It ends with
//! the loader. Non-goals: anything that rows depend on. A lost message costs time, never a byte.

use std::{
    collections::{HashMap, VecDeque},
    env, mem,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use larder_base::{ErrorKind, SnapshotId, limits};
use larder_wire::control::ReadPlan;
use tokio::time;

use crate::{
    Cluster,
    loader::order::Pass,
    process,
    process::PerProcess,
    runtime,
    sampler::{JobOrder, Order, PassId, ShardKeys, Shuffle, SourcePlace},
};

/// How often the task looks for another window.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The rate is that of the time since the oldest of so many seconds.
const RATE_SECONDS: usize = 60;

/// No rate is told before so much time has passed.
const RATE_AFTER: Duration = Duration::from_millis(200);

/// What a loader announces.
pub(in crate::loader) struct AnnouncedJob {
    job: String,
    sources: Box<[AnnouncedSource]>,
    reading: ArcSwap<Reading>,
    /// Present once the task of this process was started.
    task: PerProcess<()>,
}

struct AnnouncedSource {
    cluster: Arc<Cluster>,
    snapshot: SnapshotId,
    /// Its number in a mixture.
    number: usize,
    /// Names this loader to the nodes.
    reader: [u8; 16],
}

/// How far a loader is in a pass.
pub(in crate::loader) struct Reading {
    pass: Arc<Pass>,
    /// The first position that was not handed out, and the end of those whose fetch has begun.
    oldest: AtomicU64,
    newest: AtomicU64,
}

impl Reading {
    pub(in crate::loader) fn new(pass: Arc<Pass>) -> Arc<Self> {
        let start = pass.start();
        let (oldest, newest) = (AtomicU64::new(start), AtomicU64::new(start));
        Arc::new(Self { pass, oldest, newest })
    }

    /// Notes that a batch is being fetched.
    pub(in crate::loader) fn begins(&self, batch: u64) {
        self.newest.fetch_max(self.pass.positions(batch).end, Release);
    }

    /// Notes that a batch was handed out.
    pub(in crate::loader) fn handed_out(&self, batch: u64) {
        self.oldest.fetch_max(self.pass.positions(batch).end, Release);
    }

    /// Notes that the pass is over.
    pub(in crate::loader) fn ended(&self) {
        self.oldest.fetch_max(self.pass.order().len(), Release);
    }

    fn place(&self) -> (u64, u64) {
        let oldest = self.oldest.load(Acquire);
        (oldest, self.newest.load(Acquire).max(oldest))
    }
}

impl AnnouncedJob {
    /// What a loader of these sources announces. `None` without nodes, and if the user wants none.
    pub(in crate::loader) fn new(
        job: &str,
        sources: impl Iterator<Item = (Option<Arc<Cluster>>, SnapshotId)>,
        pass: &Arc<Pass>,
    ) -> Option<Arc<Self>> {
        if env::var("LARDER_PLANS").is_ok_and(|plans| plans == "off") {
            return None;
        }
        let source = |(number, (cluster, snapshot)): (usize, (Option<Arc<Cluster>>, _))| {
            let cluster = cluster?;
            let mut reader = [0; 16];
            fastrand::fill(&mut reader);
            Some(AnnouncedSource { cluster, snapshot, number, reader })
        };
        let sources: Box<[_]> = sources.enumerate().filter_map(source).collect();
        (!sources.is_empty()).then(|| {
            let reading = ArcSwap::new(Reading::new(Arc::clone(pass)));
            Arc::new(Self { job: job.to_owned(), sources, reading, task: PerProcess::new() })
        })
    }

    /// Goes over to another pass.
    pub(in crate::loader) fn turn_to(&self, reading: &Arc<Reading>) {
        self.reading.store(Arc::clone(reading));
    }

    /// Starts the task in this process. Without a runtime nothing is announced.
    pub(in crate::loader) fn start(self: &Arc<Self>) {
        let _ = self.task.try_get(|_| runtime::spawn(announce(Arc::downgrade(self))));
    }
}

/// The task of a loader.
async fn announce(announced: Weak<AnnouncedJob>) {
    let mut teller = Teller::default();
    loop {
        let Some(strong) = announced.upgrade() else { return };
        teller.look(&strong).await;
        drop(strong);
        time::sleep(LOOK_INTERVAL).await;
    }
}

/// What the task remembers.
#[derive(Default)]
struct Teller {
    keys: HashMap<PassId, Arc<ShardKeys>>,
    /// Pass and windows of each source in the last message, and when it was sent.
    told: Vec<(u64, u32, u32)>,
    told_at: Option<Instant>,
    /// Windows since the begin of the job, by source, at the last seconds.
    passed: VecDeque<(Instant, Vec<f64>)>,
    has_warned: bool,
}

/// How far a loader is in a source.
struct Place {
    pass: u64,
    keys: Arc<ShardKeys>,
    first_window: u32,
    last_window: u32,
    /// Windows since the begin of the job.
    passed: f64,
}

impl Teller {
    /// Tells the nodes where the loader is, if that is due.
    async fn look(&mut self, announced: &AnnouncedJob) {
        let (now, reading) = (process::now(), announced.reading.load_full());
        if reading.pass.pass_id().shuffle() == Shuffle::Global {
            // All shards are used at all times: there is nothing to plan.
            return;
        }
        let numbers = announced.sources.iter().map(|source| source.number);
        let places = self.places(&reading, numbers);
        let told = |place: &Place| (place.pass, place.first_window, place.last_window);
        let told: Vec<_> = places.iter().map(told).collect();
        let age = self.told_at.map(|at| now.saturating_duration_since(at));
        if told == self.told && age.is_some_and(|age| age < limits::READ_PLAN_INTERVAL) {
            return;
        }
        let rates = self.rates(places.iter().map(|place| place.passed).collect(), now);
        (self.told, self.told_at) = (told, Some(now));
        let runs = |place: &Place| place.keys.declared.runs().count();
        let plans = announced.sources.iter().zip(places).zip(rates);
        let plans = plans.filter(|((_, place), _)| runs(place) <= limits::READ_PLAN_RUNS_MAX);
        let plans = plans.take(limits::READ_PLANS_OF_CLIENT_MAX);
        let plans = plans
            .map(|((source, place), rate)| (source, place.to_plan(&announced.job, source, rate)));
        self.tell(plans.collect()).await;
    }

    /// The places in these sources.
    fn places(&mut self, reading: &Reading, sources: impl Iterator<Item = usize>) -> Vec<Place> {
        let (job, (oldest, newest)) = (reading.pass.order(), reading.place());
        let (oldest, newest) = (job.places(oldest), job.places(newest));
        sources.map(|source| self.place(job, source, oldest[source], newest[source])).collect()
    }

    /// The place of batches in use from one place of a source to another.
    fn place(
        &mut self,
        job: &JobOrder,
        source: usize,
        from: SourcePlace,
        to: SourcePlace,
    ) -> Place {
        let order = job.pass(source, from.pass);
        let keys = self.keys(&order);
        let first_window = order.window_at(from.position, &keys);
        let last = to.position.saturating_sub(1);
        let last_window = if to.pass == from.pass {
            order.window_at(last, &keys)
        } else {
            // A batch that runs into the next pass is in its first windows.
            let ahead = job.pass(source, to.pass);
            let within = ahead.window_at(last, &self.keys(&ahead));
            keys.windows().saturating_add(within)
        };
        let last_window = last_window.clamp(first_window, keys.windows().saturating_mul(2));
        let share = float(from.position) / float(order.len().max(1));
        let passed = (float(from.pass) + share) * f64::from(keys.windows());
        Place { pass: from.pass, keys, first_window, last_window, passed }
    }

    fn keys(&mut self, order: &Order) -> Arc<ShardKeys> {
        if self.keys.len() > 4 * limits::READ_PLANS_OF_CLIENT_MAX {
            self.keys.clear();
        }
        let keys = self.keys.entry(order.pass_id()).or_insert_with(|| {
            Arc::new(order.shard_keys().expect("a global order is not announced"))
        });
        Arc::clone(keys)
    }

    /// Windows a second of each source, over the last minute. `passed` counts all windows so far.
    fn rates(&mut self, passed: Vec<f64>, now: Instant) -> Vec<Option<f64>> {
        let goes_back =
            |(_, last): &(Instant, Vec<f64>)| last.iter().zip(&passed).any(|(a, b)| a > b);
        if self.passed.back().is_some_and(goes_back) {
            // After a resume elsewhere the old places mean nothing.
            self.passed.clear();
        }
        let rates = match self.passed.front() {
            None => vec![None; passed.len()],
            Some((since, first)) => {
                let time = now.saturating_duration_since(*since);
                let rate = |(now, before): (&f64, &f64)| (now - before) / time.as_secs_f64();
                let is_known = |rate: &f64| time >= RATE_AFTER && *rate > 0.0;
                let rates = passed.iter().zip(first).map(rate);
                rates.map(|rate| Some(rate).filter(is_known)).collect()
            }
        };
        let is_new = |(last, _): &(Instant, _)| now.saturating_duration_since(*last).as_secs() >= 1;
        if self.passed.back().is_none_or(is_new) {
            self.passed.push_back((now, passed));
        }
        if self.passed.len() > RATE_SECONDS {
            self.passed.pop_front();
        }
        rates
    }

    /// Tells each cluster the plans of its sources.
    async fn tell(&mut self, plans: Vec<(&AnnouncedSource, ReadPlan)>) {
        let mut by_cluster: Vec<(&Arc<Cluster>, Vec<ReadPlan>)> = Vec::new();
        for (source, plan) in plans {
            let known =
                by_cluster.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &source.cluster));
            match known {
                Some((_, plans)) => plans.push(plan),
                None => by_cluster.push((&source.cluster, vec![plan])),
            }
        }
        for (cluster, plans) in by_cluster {
            match cluster.tell_plans(plans).await {
                Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                    if !mem::replace(&mut self.has_warned, true) {
                        tracing::warn!("the nodes do not fetch ahead for this loader: {error}");
                    }
                }
                Err(error) => tracing::debug!(%error, "the nodes were not told the read plan"),
                Ok(()) => {}
            }
        }
    }
}

impl Place {
    fn to_plan(&self, job: &str, source: &AnnouncedSource, rate: Option<f64>) -> ReadPlan {
        let runs = self.keys.declared.runs();
        let both = self.keys.keys.iter().flatten().flat_map(|key| key.to_le_bytes());
        ReadPlan {
            reader: source.reader.to_vec().into(),
            snapshot: source.snapshot.as_bytes().to_vec().into(),
            job: job.to_owned(),
            pass: self.pass,
            shards: runs.flat_map(|run| [run.start, run.end - run.start]).collect(),
            window_shards: self.keys.width,
            keys: both.collect::<Vec<u8>>().into(),
            first_window: self.first_window,
            last_window: self.last_window,
            rate,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{
        loader::order::{Lane, LoaderJob},
        sampler::{DatasetShape, Last, LoaderState, Mixture, View},
    };

    /// Thirty samples in ten shards, in windows of two, read by two at a time.
    fn job(seed: u64) -> LoaderJob {
        let shape = DatasetShape::from_rows([3; 10]).unwrap();
        let two = NonZeroU32::new(2).unwrap();
        LoaderJob {
            mixture: Mixture::single(View::all([7; 32], shape)),
            seed,
            shuffle: Shuffle::Window { shards: two },
            batch_size: two,
            world: NonZeroU32::MIN,
            rank: 0,
            lane: Lane { index: 0, count: NonZeroU32::MIN },
            last: Last::Uneven,
            divider: None,
        }
    }

    fn reading(job: &LoaderJob, epoch: u64) -> Arc<Reading> {
        let pass = job.pass(LoaderState::new(job.pass_id(epoch), 0)).unwrap();
        Reading::new(Arc::new(pass))
    }

    fn told(teller: &mut Teller, reading: &Reading) -> (u64, u32, u32) {
        let place = teller.places(reading, [0].into_iter()).pop().unwrap();
        (place.pass, place.first_window, place.last_window)
    }

    #[test]
    fn windows_are_those_from_the_oldest_batch_to_the_newest() {
        let (job, mut teller) = (job(5), Teller::default());
        let reading = reading(&job, 3);
        assert_eq!(told(&mut teller, &reading), (3, 0, 0));
        // A window has six samples, which are three batches.
        (0..5).for_each(|batch| reading.begins(batch));
        assert_eq!(told(&mut teller, &reading), (3, 0, 1));
        (0..3).for_each(|batch| reading.handed_out(batch));
        assert_eq!(told(&mut teller, &reading), (3, 1, 1));
        (5..15).for_each(|batch| reading.begins(batch));
        assert_eq!(told(&mut teller, &reading), (3, 1, 4));
        reading.ended();
        assert_eq!(told(&mut teller, &reading), (3, 5, 5), "the next pass has not begun");
    }

    #[test]
    fn keys_are_those_of_the_pass_also_after_a_resume() {
        let mut teller = Teller::default();
        let mut keys = |seed, epoch| {
            let reading = reading(&job(seed), epoch);
            let place = teller.places(&reading, [0].into_iter()).pop().unwrap();
            place.keys.keys.unwrap()
        };
        let [first, second] = keys(5, 0);
        assert_eq!(keys(5, 1)[0], second);
        assert_ne!(keys(6, 0)[0], first);
    }

    #[test]
    fn rate_is_that_of_the_last_minute() {
        let (mut teller, start) = (Teller::default(), process::now());
        let mut rate = |second, passed| {
            teller.rates(vec![passed], start + Duration::from_secs(second)).pop().unwrap()
        };
        assert_eq!(rate(0, 4.0), None);
        assert_eq!(rate(1, 6.0), Some(2.0));
        for second in 2..100_u32 {
            rate(second.into(), 6.0 + f64::from(second - 1));
        }
        let last = rate(100, 105.0).unwrap();
        assert!((last - 1.0).abs() < 1e-9, "{last}");
        // The loader began anew elsewhere.
        assert_eq!(rate(101, 0.0), None);
    }
}
