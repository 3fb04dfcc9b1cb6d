//! One read of the origin that doesn't give up at the first error.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_dataset::{FetchError, PartRead};
use larder_wire::limits;
use tokio::sync::Semaphore;
use tokio::time;

use super::retry::{RetryBudget, wait_after};
use crate::cache::GaveUp;
use crate::catalog::{Dataset, OriginHealth};
use crate::counters::Counters;
use crate::{clock, errors};

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

    /// Fills `target` with exactly the bytes of `read`, in as many tries as it is worth. A try takes
    /// one of `gets`; a wait between two takes none.
    pub(crate) async fn read(
        &self,
        dataset: &Dataset,
        read: &PartRead,
        gets: &Semaphore,
        target: &mut [u8],
    ) -> Result<(), GaveUp> {
        let health = dataset.health();
        let (mut tries, answers) = (1, health.answers());
        self.budget.earn();
        loop {
            let tried = {
                let _one = gets.acquire().await.expect("the semaphore is never closed");
                self.try_once(dataset, read, target).await
            };
            let Err(error) = tried else {
                health.answered();
                return Ok(());
            };
            if !error.is_retryable() {
                health.answered();
                return Err(gave_up(dataset, read, error, tries));
            }
            if !self.pause(health, &mut tries).await {
                health.gave_up(answers);
                return Err(gave_up(dataset, read, error, tries));
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

    async fn try_once(
        &self,
        dataset: &Dataset,
        read: &PartRead,
        target: &mut [u8],
    ) -> Result<(), FetchError> {
        let came = AtomicU64::new(0);
        let mut rest = &mut *target;
        let mut sink = |chunk: &[u8]| {
            let Some((here, after)) = std::mem::take(&mut rest).split_at_mut_checked(chunk.len())
            else {
                return ControlFlow::Break(());
            };
            here.copy_from_slice(chunk);
            rest = after;
            came.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        self.counters.origin_requests.add(1);
        let origin = dataset.origin();
        let reading = origin.read_exact_range(dataset.manifest(), read, &mut sink);
        let outcome = unless_stalled(reading, &came, dataset, read).await;
        self.counters.origin_bytes.add(came.load(Ordering::Relaxed));
        outcome
    }
}

fn gave_up(dataset: &Dataset, read: &PartRead, error: FetchError, tries: u32) -> GaveUp {
    let object = dataset.manifest().object(read.object).key.to_owned();
    GaveUp { why: errors::of_fetch(error), object: Some(object), attempts: tries }
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
            let key = dataset.manifest().object(read.object).key;
            return Err(FetchError::Failed {
                object: dataset.uri().join(key).unwrap_or_else(|_| dataset.uri().clone()),
                why: format!(
                    "nothing came for {} s after {now} of {} bytes",
                    patience.as_secs(),
                    read.bytes
                ),
            });
        }
        (seen, patience) = (now, limits::ORIGIN_STALL_TIMEOUT);
    }
}
