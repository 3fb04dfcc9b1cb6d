//! One read of the origin that doesn't give up at the first error.
//!
//! What may pass (a reset, a 503, a stall) is tried again as often as the retry budget allows. What
//! would end a shard for everybody (denied, changed, gone) is confirmed by asking once more: gateways
//! and clocks that are off give such answers to requests that are in order. The second such answer
//! is taken at its word, so an object that really changed costs one request more, and that one
//! carries no bytes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_base::{Error, limits};
use larder_dataset::{FetchError, OriginError, OriginUri, PartRead};
use tokio::sync::Semaphore;
use tokio::time;

use super::retry::{RetryBudget, wait_after};
use crate::cache::GaveUp;
use crate::cache::Place;
use crate::counters::Counters;
use crate::dataset::{Dataset, OriginHealth};
use crate::target::Target;
use crate::{clock, errors};

/// Why a try brought nothing.
enum Failed {
    Fetch(FetchError),
    /// The bytes could not be put where they were to go: no fault of the origin.
    Target(Error),
}

/// What all reads of a node share.
#[derive(Debug)]
pub(crate) struct Reader {
    budget: RetryBudget,
    counters: Arc<Counters>,
}

impl Reader {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { budget: RetryBudget::new(clock::now()), counters }
    }

    /// Brings exactly the bytes of `read` to `target`, in as many tries as it is worth. A try takes
    /// one of `gets`; a wait between two takes none.
    pub(crate) async fn read(
        &self,
        dataset: &Dataset,
        read: &PartRead,
        gets: &Semaphore,
        target: &mut impl Target,
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
                    return Err(gave_up(dataset, read, error, tries));
                }
            } else {
                health.answered();
                let doubted = error.may_be_spurious() && !confirming;
                if !doubted || !self.pause_to_confirm(&mut tries).await {
                    return Err(gave_up(dataset, read, error, tries));
                }
                confirming = true;
            }
            self.counters.origin_retries.add(1);
        }
    }

    /// Waits until there may be one more try. A node that has no retries left waits for its longest
    /// time and counts that as a try: the load on the origin stays bounded, and so does the wait.
    async fn pause(&self, health: &OriginHealth, tries: &mut u32) -> bool {
        while *tries < limits::FILL_TRIES_MAX && !health.is_away() {
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

    /// Waits a moment before a final answer is asked for once more, unless the retries are used up.
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
        read: &PartRead,
        target: &mut impl Target,
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
        let reading = origin.read_exact_range(dataset.manifest(), read, &mut sink);
        let outcome = unless_stalled(reading, &came, dataset, read).await;
        self.counters.origin_bytes.add(came.load(Ordering::Relaxed));
        full.map_or(Ok(()), |why| Err(Failed::Target(why)))?;
        outcome.map_err(Failed::Fetch)
    }
}

fn gave_up(dataset: &Dataset, read: &PartRead, error: FetchError, tries: u32) -> GaveUp {
    let place =
        Place { object: object_uri(dataset, read), offset: read.object_offset, bytes: read.bytes };
    GaveUp { why: errors::of_fetch(error), place: Some(place), attempts: tries }
}

fn object_uri(dataset: &Dataset, read: &PartRead) -> OriginUri {
    let key = dataset.manifest().object(read.object).key;
    dataset.uri().join(key).expect("keys are checked with the manifest")
}

/// Ends a read that brings nothing for a while.
async fn unless_stalled(
    reading: impl Future<Output = Result<(), FetchError>>,
    came: &AtomicU64,
    dataset: &Dataset,
    read: &PartRead,
) -> Result<(), FetchError> {
    let mut reading = std::pin::pin!(reading);
    let (mut seen, mut patience) = (0, limits::ORIGIN_FIRST_BYTE_TIMEOUT);
    loop {
        if let Ok(outcome) = time::timeout(patience, &mut reading).await {
            return outcome;
        }
        let now = came.load(Ordering::Relaxed);
        if now == seen {
            let (seconds, wanted) = (patience.as_secs(), read.bytes);
            let why = format!("nothing came for {seconds} s after {now} of {wanted} bytes");
            return Err(OriginError::Failed { object: object_uri(dataset, read), why }.into());
        }
        (seen, patience) = (now, limits::ORIGIN_STALL_TIMEOUT);
    }
}
