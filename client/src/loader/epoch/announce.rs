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
    loader::{
        content::{Sequence, SourcePlace},
        pass::Pass,
    },
    process,
    process::PerProcess,
    runtime,
    sampler::{ShardKeys, Shuffle},
};

/// How often the task looks for another window.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The rate is that of the time since the oldest of so many seconds.
const RATE_SECONDS: usize = 60;

/// No rate is told before so much time has passed.
const RATE_AFTER: Duration = Duration::from_millis(200);

/// What a loader announces.
pub(in crate::loader) struct Announced {
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
        self.oldest.fetch_max(self.pass.sequence().len(), Release);
    }

    fn place(&self) -> (u64, u64) {
        let oldest = self.oldest.load(Acquire);
        (oldest, self.newest.load(Acquire).max(oldest))
    }
}

impl Announced {
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
async fn announce(announced: Weak<Announced>) {
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
    /// By source and pass.
    keys: HashMap<(usize, u64), Arc<ShardKeys>>,
    /// The places of the last message, and when it was sent.
    told: Vec<(u64, u32, u32)>,
    told_at: Option<Instant>,
    /// Windows since the begin of the job, by source, at the last seconds.
    passed: VecDeque<(Instant, Vec<f64>)>,
    has_warned: bool,
}

impl Teller {
    /// Tells the nodes what has changed, if that is due.
    async fn look(&mut self, announced: &Announced) {
        let (now, reading) = (process::now(), announced.reading.load_full());
        let (oldest, newest) = reading.place();
        let sequence = reading.pass.sequence();
        if sequence.plan().shuffle() == Shuffle::Global {
            // All shards are used at all times: there is nothing to plan.
            return;
        }
        let (oldest, newest) = (sequence.places(oldest), sequence.places(newest));
        let mut places = Vec::with_capacity(announced.sources.len());
        for source in &announced.sources {
            let (from, to) = (oldest[source.number], newest[source.number]);
            let keys = self.keys(sequence, source.number, from.pass);
            let first = window(sequence, source.number, from, &keys);
            // A batch that runs into the next pass is in its first windows.
            let last = match to.pass == from.pass {
                true => window(sequence, source.number, to.before(), &keys),
                false => {
                    let ahead = self.keys(sequence, source.number, to.pass);
                    let within = window(sequence, source.number, to.before(), &ahead);
                    keys.windows().saturating_add(within)
                }
            };
            let last = last.clamp(first, keys.windows().saturating_mul(2));
            places.push((from, keys, first, last));
        }
        let told: Vec<_> =
            places.iter().map(|(from, _, first, last)| (from.pass, *first, *last)).collect();
        let age = self.told_at.map(|at| now.saturating_duration_since(at));
        if told == self.told && age.is_some_and(|age| age < limits::READ_PLAN_INTERVAL) {
            return;
        }
        let rates = self.rates(&places, sequence, announced, now);
        let plans = announced.sources.iter().zip(&places).zip(rates);
        let plans: Vec<_> = plans
            .filter(|((_, (_, keys, ..)), _)| {
                keys.declared.runs().count() <= limits::READ_PLAN_RUNS_MAX
            })
            .take(limits::READ_PLANS_OF_CLIENT_MAX)
            .map(|((source, (from, keys, first, last)), rate)| {
                (source, plan(&announced.job, source, from.pass, keys, (*first, *last), rate))
            })
            .collect();
        (self.told, self.told_at) = (told, Some(now));
        self.tell(plans).await;
    }

    /// The keys of a pass over a source.
    fn keys(&mut self, sequence: &Sequence, source: usize, pass: u64) -> Arc<ShardKeys> {
        if self.keys.len() > 4 * limits::READ_PLANS_OF_CLIENT_MAX {
            self.keys.clear();
        }
        let keys = self.keys.entry((source, pass)).or_insert_with(|| {
            let keys = sequence.order(source, pass).shard_keys();
            Arc::new(keys.expect("a global order is not announced"))
        });
        Arc::clone(keys)
    }

    /// Windows a second of each source, over the last minute.
    fn rates(
        &mut self,
        places: &[(SourcePlace, Arc<ShardKeys>, u32, u32)],
        sequence: &Sequence,
        announced: &Announced,
        now: Instant,
    ) -> Vec<Option<f64>> {
        let passed = places.iter().zip(&announced.sources).map(|((place, keys, ..), source)| {
            let len = sequence.order(source.number, place.pass).len();
            (float(place.pass) + float(place.position) / float(len.max(1)))
                * f64::from(keys.windows())
        });
        let passed: Vec<f64> = passed.collect();
        let first = self.passed.front().filter(|(_, first)| first.len() == passed.len());
        let rates = first.map(|(since, first)| {
            let seconds = now.saturating_duration_since(*since);
            let rate = |(now, before): (&f64, &f64)| (now - before) / seconds.as_secs_f64();
            let is_known = |rate: &f64| seconds >= RATE_AFTER && rate.is_finite() && *rate > 0.0;
            passed.iter().zip(first).map(rate).map(|rate| Some(rate).filter(is_known)).collect()
        });
        let rates = rates.unwrap_or_else(|| vec![None; passed.len()]);
        // After a resume elsewhere the old places mean nothing.
        if self.passed.back().is_some_and(|(_, last)| last.iter().zip(&passed).any(|(a, b)| a > b))
        {
            self.passed.clear();
        }
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

/// The window of a place.
fn window(sequence: &Sequence, source: usize, place: SourcePlace, keys: &ShardKeys) -> u32 {
    sequence.order(source, place.pass).window_at(place.position, keys)
}

fn plan(
    job: &str,
    source: &AnnouncedSource,
    pass: u64,
    keys: &ShardKeys,
    (first_window, last_window): (u32, u32),
    rate: Option<f64>,
) -> ReadPlan {
    let runs = keys.declared.runs();
    let both = keys.keys.iter().flatten().flat_map(|key| key.to_le_bytes());
    ReadPlan {
        reader: source.reader.to_vec().into(),
        snapshot: source.snapshot.as_bytes().to_vec().into(),
        job: job.to_owned(),
        pass,
        shards: runs.flat_map(|run| [run.start, run.end - run.start]).collect(),
        window_shards: keys.width,
        keys: both.collect::<Vec<u8>>().into(),
        first_window,
        last_window,
        rate,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
fn float(count: u64) -> f64 {
    count as f64
}
