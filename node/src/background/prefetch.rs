//! Fetches shards before their readers ask, and recalls those that must leave for them.
//!
//! ```text
//! plans ──▶ future: the uses of this node's shards ──▶ MIN ──▶ shards to fetch, and to give up
//!                                                              │            │
//!                         fills, soonest first ◀───────────────┘            │
//!                         the store: a fetch may take their room, no other ◀┘
//! ```
//!
//! The future is computed anew when a loader enters a window, and every few seconds otherwise. Both
//! lists are carried out as early as there is room. Shards that are given up and mapped by clients
//! are recalled first.
//!
//! Thread rule: one tokio task, which computes on a blocking thread and takes at most one part in a
//! hundred of a core. Non-goals: the plans themselves (`plans`), and the books of memory.

mod future;
mod pass_on;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::SnapshotId;
use larder_foresight::{Looked, SET_ASIDE};
use larder_store::Foreseen;
use tokio::task::{self, JoinSet};
use tokio::time;

use crate::cache::Priority;
use crate::clock;
use crate::dataset::Dataset;
use crate::fill::Brought;
use crate::shared::Shared;
use future::{Future, Situation};

/// Shards that are due, the soonest ones, among which one is looked for whose bucket may begin.
const DUE_SEEN_MAX: usize = 1_024;

/// How often the future is computed if nothing changes.
const INTERVAL: Duration = Duration::from_secs(5);

/// How soon a new ring is noticed.
const RING_INTERVAL: Duration = Duration::from_millis(250);

/// The shortest time between two computations.
const REST_MIN: Duration = Duration::from_millis(10);

/// Computations take at most one part in this many of the time.
const SHARE: u32 = 100;

/// How soon a failed fetch is tried again.
const FAILED_INTERVAL: Duration = Duration::from_secs(1);

/// How soon a fetch without room is tried again. Clients may return recalled maps meanwhile.
const ROOM_INTERVAL: Duration = Duration::from_millis(20);

/// A shard to fetch.
#[derive(Debug)]
struct Due {
    dataset: Arc<Dataset>,
    /// Its number in the dataset.
    shard: u32,
    bytes: u64,
    /// When it is needed, in milliseconds from the computation.
    deadline: u64,
}

/// The state of the task.
pub(crate) struct Prefetcher {
    shared: Arc<Shared>,
    future: Future,
    /// The shards to fetch that no fill brings yet, soonest first.
    due: VecDeque<Due>,
    fetching: JoinSet<(Due, Brought)>,
    /// The last fetch found no room.
    lacks_room: bool,
    /// The version of the ring at the last computation.
    ring_version: u64,
    /// When to compute next, and the time before which that must not be.
    look_at: Instant,
    rests_until: Instant,
}

impl Prefetcher {
    /// Starts the task, and the one that passes plans on. They end when the node stops.
    pub(crate) fn start(shared: &Arc<Shared>) {
        let prefetcher = Self {
            shared: Arc::clone(shared),
            future: Future::default(),
            due: VecDeque::new(),
            fetching: JoinSet::new(),
            lacks_room: false,
            ring_version: 0,
            look_at: clock::now(),
            rests_until: clock::now(),
        };
        let stopping = shared.stopping.clone();
        let work = async move { stopping.run_until_cancelled_owned(prefetcher.run()).await };
        shared.runtime.spawn(work);
        pass_on::start(shared);
    }

    async fn run(mut self) {
        loop {
            if self.ring_version != self.ring_in_use() {
                self.look_at = self.rests_until;
            }
            let until_look = self.look_at.saturating_duration_since(clock::now());
            tokio::select! {
                () = self.shared.plans.changed() => self.look_at = self.rests_until,
                () = time::sleep(until_look.min(RING_INTERVAL)) => {
                    if self.look_at <= clock::now() {
                        self.look().await;
                    }
                }
                Some(ended) = self.fetching.join_next() => self.ended(ended.ok()),
                () = time::sleep(ROOM_INTERVAL), if self.lacks_room => {
                    self.lacks_room = false;
                    self.feed();
                }
            }
        }
    }

    fn ring_in_use(&self) -> u64 {
        self.shared.placements.load().ring().version()
    }

    /// Computes the future, and begins to carry it out.
    async fn look(&mut self) {
        let begun = clock::now();
        (self.ring_version, self.look_at) = (self.ring_in_use(), begun + INTERVAL);
        let mut jobs = self.shared.plans.jobs(begun);
        if jobs.is_empty() {
            (self.future, self.due) = (Future::default(), VecDeque::new());
            self.shared.cache.foresee(Foreseen::default());
        } else {
            let (shared, mut future) = (Arc::clone(&self.shared), std::mem::take(&mut self.future));
            let look = move || {
                let situation = Situation::of(&shared);
                let (set_aside, news) = future.judge(&jobs, &situation, begun);
                news.iter().for_each(|snapshot| warn_of_doubt(&shared, *snapshot));
                jobs.retain(|job| !set_aside.contains(&job.snapshot));
                shared.plans.set_aside(set_aside);
                let looked = future.look(&shared.catalog, &jobs, &situation, begun);
                (future, looked)
            };
            let Ok((future, (looked, datasets))) = task::spawn_blocking(look).await else { return };
            self.future = future;
            let Looked { fetches, given_up, due, recalled } = looked;
            self.shared.cache.foresee(Foreseen { fetches, given_up: given_up.into() });
            recalled.into_iter().for_each(|id| self.shared.cache.recall(id));
            let due = due.into_iter().map(|due| Due {
                dataset: Arc::clone(&datasets[due.reads]),
                shard: due.number,
                bytes: due.bytes,
                deadline: due.deadline,
            });
            (self.due, self.lacks_room) = (due.collect(), false);
            self.feed();
        }
        let now = clock::now();
        let rest = now.saturating_duration_since(begun) * SHARE;
        self.rests_until = now + rest.max(REST_MIN);
        self.look_at = self.rests_until.max(now + INTERVAL);
    }

    /// Begins as many fetches as may be under way.
    fn feed(&mut self) {
        while !self.lacks_room {
            let begun = |(at, due): (usize, &Due)| {
                due.dataset.bucket().begin_prefetch().map(|share| (at, share))
            };
            let Some((at, share)) = self.due.iter().take(DUE_SEEN_MAX).enumerate().find_map(begun)
            else {
                return;
            };
            let Some(due) = self.due.remove(at) else { return };
            let shared = Arc::clone(&self.shared);
            self.fetching.spawn_on(
                async move {
                    let brought = shared.bring(&due.dataset, due.shard, Priority::Prefetch).await;
                    drop(share);
                    (due, brought)
                },
                &self.shared.runtime,
            );
        }
    }

    /// Goes on after a fetch.
    fn ended(&mut self, ended: Option<(Due, Brought)>) {
        match ended {
            Some((due, Brought::Here)) => {
                self.shared.counters.prefetched_bytes.add(due.bytes);
                self.future.fetched(&due.dataset, due.shard);
            }
            Some((due, Brought::NoRoom)) => {
                let place = self.due.partition_point(|other| other.deadline < due.deadline);
                self.due.insert(place, due);
                self.lacks_room = true;
            }
            // A reader may still come for it, and is told why it fails.
            Some((_, Brought::Gone | Brought::Failed)) | None => {
                let again = self.rests_until.max(clock::now() + FAILED_INTERVAL);
                self.look_at = self.look_at.min(again);
            }
        }
        self.feed();
    }
}

fn warn_of_doubt(shared: &Shared, snapshot: SnapshotId) {
    let uri = shared.catalog.get(snapshot).map(|dataset| dataset.uri().to_string());
    let (uri, seconds) = (uri.unwrap_or_default(), SET_ASIDE.as_secs());
    tracing::warn!(
        %uri,
        %snapshot,
        "no reader came for shards fetched ahead; its read plans are not used for {seconds} s",
    );
}
