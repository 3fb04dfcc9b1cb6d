//! Turns of large answers: pieces of manifests, and pages of listings.
//!
//! An answer that its client does not read is held until it does. So a request waits for its turn
//! before its answer is made, and a client that takes nothing loses its turn if others wait.
//!
//! Thread rule: a lock for microseconds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_base::limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::allowance::Share;
use crate::clock;

/// Units of a page of a listing: 1 MiB.
const LARGE_ANSWER_UNITS_OF_PAGE: u32 = 8;

/// Time after which a client that takes nothing of a large answer loses its connection, if others
/// wait.
const LARGE_ANSWER_STALL: Duration = Duration::from_secs(5);

/// The turns of a node.
#[derive(Debug)]
pub(super) struct LargeAnswers {
    units: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    turns: BTreeMap<u64, BegunTurn>,
    next: u64,
}

/// A turn that has begun.
#[derive(Debug)]
struct BegunTurn {
    share: Arc<Share>,
    /// Since when a piece waits for the client.
    made: Option<Instant>,
}

/// A turn. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct AnswerTurn {
    answers: Arc<LargeAnswers>,
    number: u64,
    _units: OwnedSemaphorePermit,
}

/// Returns the units of the answer to a call, if it may be large.
pub(super) fn units(path: &str) -> Option<u32> {
    let (service, call) = path.strip_prefix("/larder.v1.")?.split_once('/')?;
    match (service, call) {
        ("Node", "FetchManifest" | "GetExceptions" | "GetFillProgress") => Some(1),
        ("Node", "ListLastUses" | "ListShards" | "ListDatasets" | "ListFailures")
        | ("Admin", "GetCluster" | "GetHistory" | "PlanChange") => Some(LARGE_ANSWER_UNITS_OF_PAGE),
        _ => None,
    }
}

impl LargeAnswers {
    pub(super) fn new() -> Arc<Self> {
        let units = Arc::new(Semaphore::new(limits::LARGE_ANSWER_UNITS_MAX));
        Arc::new(Self { units, state: Mutex::default() })
    }

    /// Waits for a turn.
    pub(super) async fn turn(self: &Arc<Self>, units: u32, share: &Arc<Share>) -> AnswerTurn {
        let acquiring = Arc::clone(&self.units).acquire_many_owned(units);
        tokio::pin!(acquiring);
        let units = loop {
            match timeout(LARGE_ANSWER_STALL, &mut acquiring).await {
                Ok(units) => break units.expect("the semaphore is never closed"),
                Err(_) => self.close_stalled(),
            }
        };
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.turns.insert(number, BegunTurn { share: Arc::clone(share), made: None });
        AnswerTurn { answers: Arc::clone(self), number, _units: units }
    }

    /// Ends the connections of clients that take nothing.
    fn close_stalled(&self) {
        let now = clock::now();
        let stalled =
            |taken: &&BegunTurn| taken.made.is_some_and(|made| now - made >= LARGE_ANSWER_STALL);
        self.lock().turns.values().filter(stalled).for_each(|taken| taken.share.close());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerTurn {
    /// Notes that a piece is being made, or that one is made and the client must take it.
    pub(super) fn note_made(&self, is_made: bool) {
        if let Some(taken) = self.answers.lock().turns.get_mut(&self.number) {
            taken.made = is_made.then(clock::now);
        }
    }
}

impl Drop for AnswerTurn {
    fn drop(&mut self) {
        self.answers.lock().turns.remove(&self.number);
    }
}
