//! Opens datasets for plans: in parallel, each only once at a time, and failed ones not again for a
//! while.
//!
//! A plan waits for limited time. An opening that takes longer goes on, for the next plan.
//!
//! Thread rule: async, inside a runtime; the lock is held for microseconds. Non-goal: opening a
//! dataset.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_base::{Error, ErrorKind, SnapshotId, limits};
use tokio::sync::Semaphore;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

/// Time that a plan waits for datasets to be opened; it is then made without the missing ones.
/// Enough for a thousand manifests, and a fraction of the time that the death of a node may wait.
const PLAN_OPENINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// Datasets being opened for plans at once: half of all, so that clients open theirs meanwhile.
const PLAN_OPENINGS_MAX: usize = limits::OPENINGS_MAX / 2;

/// Timeout of one of these openings: a large manifest from a slow origin takes less.
const PLAN_OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// Time before a failed opening is tried again for a plan.
const PLAN_OPENING_RETRY: Duration = Duration::from_secs(180);

/// The openings tried so far.
#[derive(Debug)]
pub(super) struct Opener {
    tries: Arc<Mutex<HashMap<SnapshotId, Try>>>,
    room: Arc<Semaphore>,
    timeouts: OpenTimeouts,
}

/// Time limits of openings.
#[derive(Debug, Clone, Copy)]
struct OpenTimeouts {
    /// For all openings that one plan waits for.
    plan: Duration,
    /// For one dataset, from its turn on.
    dataset: Duration,
    /// Before a failed opening is tried again.
    retry: Duration,
}

/// The state of one dataset that was not open.
#[derive(Debug)]
enum Try {
    /// It is being opened, until this is cancelled.
    UnderWay(CancellationToken),
    /// It failed, and is not tried again before this.
    Failed(Instant),
}

impl Opener {
    pub(super) fn new() -> Self {
        Self::with_timeouts(OpenTimeouts {
            plan: PLAN_OPENINGS_TIMEOUT,
            dataset: PLAN_OPENING_TIMEOUT,
            retry: PLAN_OPENING_RETRY,
        })
    }

    fn with_timeouts(timeouts: OpenTimeouts) -> Self {
        let room = Arc::new(Semaphore::new(PLAN_OPENINGS_MAX));
        Self { tries: Arc::default(), room, timeouts }
    }

    /// Opens each of these, unless its opening is running or failed lately. Waits until all have
    /// ended, or for as long as a plan may wait.
    pub(super) async fn open_all<F>(&self, wanted: impl IntoIterator<Item = (SnapshotId, F)>)
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let ends: Vec<_> = {
            let mut tries = lock(&self.tries);
            let now = Instant::now();
            tries.retain(|_, tried| tried.counts(now));
            let begun = wanted.into_iter().filter_map(|(snapshot, open)| {
                let tried = tries.entry(snapshot);
                match tried.or_insert_with(|| Try::UnderWay(self.begin(snapshot, open))) {
                    Try::UnderWay(ended) => Some(ended.clone()),
                    Try::Failed(_) => None,
                }
            });
            begun.collect()
        };
        let all = async {
            for ended in ends {
                ended.cancelled().await;
            }
        };
        // Datasets that are not open by then are left out.
        let _ = time::timeout(self.timeouts.plan, all).await;
    }

    /// Opens one dataset, in its turn.
    fn begin<F>(&self, snapshot: SnapshotId, open: F) -> CancellationToken
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let ended = CancellationToken::new();
        let ending = ended.clone().drop_guard();
        let (room, tries) = (Arc::clone(&self.room), Arc::clone(&self.tries));
        let OpenTimeouts { dataset: timeouts, retry, .. } = self.timeouts;
        tokio::spawn(async move {
            let _ending = ending;
            let _turn = room.acquire().await;
            let opened = time::timeout(timeouts, open).await;
            match opened.unwrap_or_else(|_| Err(too_slow(timeouts))) {
                Ok(()) => drop(lock(&tries).remove(&snapshot)),
                Err(why) => {
                    tracing::warn!("snapshot {snapshot} is left out of plans for {retry:?}: {why}");
                    lock(&tries).insert(snapshot, Try::Failed(Instant::now() + retry));
                }
            }
        });
        ended
    }
}

impl Try {
    /// Returns true while the entry is valid. A cancelled entry that is still here is not: its task
    /// panicked.
    fn counts(&self, now: Instant) -> bool {
        match self {
            Self::UnderWay(ended) => !ended.is_cancelled(),
            Self::Failed(until) => now < *until,
        }
    }
}

fn lock(tries: &Mutex<HashMap<SnapshotId, Try>>) -> MutexGuard<'_, HashMap<SnapshotId, Try>> {
    tries.lock().unwrap_or_else(PoisonError::into_inner)
}

fn too_slow(timeouts: Duration) -> Error {
    let message = format!("it is not open after {timeouts:?}");
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);
    const NEVER: Duration = Duration::from_secs(1 << 20);

    /// Counts the openings that have begun.
    #[derive(Debug, Clone, Default)]
    struct Begun(Arc<AtomicUsize>);

    impl Begun {
        /// Returns the opening of a dataset that ends with this future.
        fn by<F: Future<Output = Result<(), Error>>>(
            &self,
            number: u8,
            end: F,
        ) -> (SnapshotId, impl Future<Output = Result<(), Error>> + use<F>) {
            let begun = Arc::clone(&self.0);
            let open = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                end.await
            };
            (SnapshotId::from_bytes([number; 32]), open)
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        async fn until(&self, count: usize) {
            while self.count() < count {
                yield_now().await;
            }
        }
    }

    fn fails() -> impl Future<Output = Result<(), Error>> {
        ready(Err(Error::new(ErrorKind::NotFound, "it is gone")))
    }

    #[tokio::test]
    async fn a_plan_does_not_wait_for_a_dataset_that_hangs() {
        let opener =
            Opener::with_timeouts(OpenTimeouts { plan: SOON, dataset: NEVER, retry: NEVER });
        let begun = Begun::default();
        opener.open_all([1, 2].map(|number| begun.by(number, pending()))).await;
        begun.until(2).await;
        opener.open_all([1, 2].map(|number| begun.by(number, pending()))).await;
        yield_now().await;
        assert_eq!(begun.count(), 2, "they are under way");
    }

    #[tokio::test]
    async fn datasets_that_open_in_time_are_opened() {
        let opener =
            Opener::with_timeouts(OpenTimeouts { plan: NEVER, dataset: NEVER, retry: NEVER });
        let begun = Begun::default();
        opener.open_all((0..100).map(|number| begun.by(number, ready(Ok(()))))).await;
        assert_eq!(begun.count(), 100);
        opener.open_all([begun.by(1, ready(Ok(())))]).await;
        assert_eq!(begun.count(), 101, "it was closed meanwhile");
    }

    #[tokio::test]
    async fn hung_or_failed_opening_is_not_retried_at_once() {
        let opener =
            Opener::with_timeouts(OpenTimeouts { plan: NEVER, dataset: SOON, retry: NEVER });
        let begun = Begun::default();
        opener.open_all([begun.by(1, pending())]).await;
        opener.open_all([begun.by(2, fails())]).await;
        opener.open_all([1, 2].map(|number| begun.by(number, ready(Ok(()))))).await;
        assert_eq!(begun.count(), 2);
    }

    #[tokio::test]
    async fn failed_opening_is_retried_after_its_time() {
        let retry = Duration::ZERO;
        let opener = Opener::with_timeouts(OpenTimeouts { plan: NEVER, dataset: NEVER, retry });
        let begun = Begun::default();
        opener.open_all([begun.by(1, fails())]).await;
        opener.open_all([begun.by(1, fails())]).await;
        assert_eq!(begun.count(), 2);
    }

    #[tokio::test]
    async fn opens_only_a_few_datasets_at_once() {
        let opener =
            Opener::with_timeouts(OpenTimeouts { plan: SOON, dataset: NEVER, retry: NEVER });
        let begun = Begun::default();
        opener.open_all((0..=u8::MAX).map(|number| begun.by(number, pending()))).await;
        begun.until(PLAN_OPENINGS_MAX).await;
        yield_now().await;
        assert_eq!(begun.count(), PLAN_OPENINGS_MAX);
    }
}
