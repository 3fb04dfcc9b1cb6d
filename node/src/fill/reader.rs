//! Reads one range from the origin, with retries.
//!
//! An error that may pass (a reset, a 503, a stall) is retried as often as the retry budget allows.
//! An error that would end the shard (denied, changed, gone) is confirmed by one more request.
//! Gateways and skewed clocks return such errors for valid requests. The second such answer is
//! final. So an object that really changed costs one extra request, and that one carries no bytes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_base::{Error, ErrorKind, limits};
use larder_dataset::{FetchError, OriginError};
use tokio::sync::Semaphore;
use tokio::time;

use super::retry::{RetryBudget, wait_after};
use crate::cache::{Counters, FailedRead, GaveUp};
use crate::clock;
use crate::dataset::{Dataset, OriginHealth};
use crate::fill::{ByteSink, ObjectRange};

/// Tries of one part before its fill gives up. With the waits below about 15 seconds, which
/// outlasts the usual "slow down" of an object store.
const FILL_TRIES_MAX: u32 = 8;

/// Timeout between two pieces of a body. A retry continues a stalled read elsewhere.
const ORIGIN_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a try failed.
enum Failed {
    Fetch(FetchError),
    /// The target refused the bytes. The origin is not at fault.
    Target(Error),
}

/// The state that all reads of a node share.
#[derive(Debug)]
pub(crate) struct Reader {
    budget: RetryBudget,
    counters: Arc<Counters>,
}

impl Reader {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { budget: RetryBudget::new(clock::now()), counters }
    }

    /// Reads exactly the bytes of `read` into `target`, with retries. Each try holds a permit of
    /// `gets`; a wait between two tries holds none.
    pub(crate) async fn read(
        &self,
        dataset: &Dataset,
        read: &ObjectRange<'_>,
        gets: &Semaphore,
        target: &mut impl ByteSink,
    ) -> Result<(), GaveUp> {
        let health = dataset.health();
        let (mut tries, answers) = (1, health.answers());
        let mut confirming = false;
        self.budget.earn();
        loop {
            let tried = {
                let _one = gets.acquire().await.expect("the semaphore is never closed");
                self.try_once(dataset, read, target).await
            };
            let error = match tried {
                Ok(()) => {
                    health.answered();
                    return Ok(());
                }
                Err(Failed::Target(why)) => return Err(GaveUp::from(why)),
                Err(Failed::Fetch(error)) => error,
            };
            if error.is_retryable() {
                if !self.pause(health, &mut tries).await {
                    health.gave_up(answers);
                    return Err(gave_up(read, error, tries));
                }
            } else {
                health.answered();
                let doubted = error.may_be_spurious() && !confirming;
                if !doubted || !self.pause_to_confirm(&mut tries).await {
                    return Err(gave_up(read, error, tries));
                }
                confirming = true;
            }
            self.counters.origin_retries.add(1);
        }
    }

    /// Waits before the next try. Returns false if there is to be none. Without a retry in the
    /// budget it waits the longest time and counts that as a try. This bounds both the wait and the
    /// load on the origin.
    async fn pause(&self, health: &OriginHealth, tries: &mut u32) -> bool {
        while *tries < FILL_TRIES_MAX && !health.is_away() {
            let may = self.budget.spend(clock::now());
            let exponent = if may { *tries } else { u32::MAX };
            time::sleep(wait_after(exponent, |most| fastrand::u64(0..=most))).await;
            *tries += 1;
            if may {
                return !health.is_away();
            }
        }
        false
    }

    /// Waits a moment before a final answer is confirmed. Returns false if the retry budget is
    /// empty.
    async fn pause_to_confirm(&self, tries: &mut u32) -> bool {
        let may = self.budget.spend(clock::now());
        if may {
            time::sleep(limits::ORIGIN_CONFIRM_WAIT).await;
            *tries += 1;
        }
        may
    }

    async fn try_once(
        &self,
        dataset: &Dataset,
        read: &ObjectRange<'_>,
        target: &mut impl ByteSink,
    ) -> Result<(), Failed> {
        let came = AtomicU64::new(0);
        let mut full = None;
        target.begin();
        let mut sink = |chunk: &[u8]| {
            if let Err(why) = target.put(chunk) {
                full = Some(why);
                return ControlFlow::Break(());
            }
            came.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        self.counters.origin_requests.add(1);
        let origin = dataset.origin();
        let ObjectRange { leaf, object, range } = read;
        let reading = origin.read_exact_range(leaf, *object, range, &mut sink);
        let outcome = unless_stalled(reading, &came, read).await;
        self.counters.origin_bytes.add(came.load(Ordering::Relaxed));
        full.map_or(Ok(()), |why| Err(Failed::Target(why)))?;
        outcome.map_err(Failed::Fetch)
    }
}

fn gave_up(read: &ObjectRange<'_>, error: FetchError, tries: u32) -> GaveUp {
    let object = read.leaf.object_uri(read.object);
    let place = FailedRead { object, offset: read.range.start, bytes: read.bytes() };
    let why = Error::new(ErrorKind::from(&error), error.to_string()).with_source(error);
    GaveUp { why, place: Some(place), attempts: tries }
}

/// Ends a read that receives no bytes for a while.
async fn unless_stalled(
    reading: impl Future<Output = Result<(), FetchError>>,
    came: &AtomicU64,
    read: &ObjectRange<'_>,
) -> Result<(), FetchError> {
    let mut reading = std::pin::pin!(reading);
    let (mut seen, mut patience) = (0, limits::ORIGIN_FIRST_BYTE_TIMEOUT);
    loop {
        if let Ok(outcome) = time::timeout(patience, &mut reading).await {
            return outcome;
        }
        let now = came.load(Ordering::Relaxed);
        if now == seen {
            let (seconds, wanted) = (patience.as_secs(), read.bytes());
            let why = format!("nothing came for {seconds} s after {now} of {wanted} bytes");
            return Err(
                OriginError::Failed { object: read.leaf.object_uri(read.object), why }.into()
            );
        }
        (seen, patience) = (now, ORIGIN_STALL_TIMEOUT);
    }
}
