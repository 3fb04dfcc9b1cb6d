//! Those who want the same reference opened at the same time: one of them resolves it, for all who came before
//! it began.
//!
//! Who comes while a reference is being resolved waits for that to end and is told the outcome of the next one, which
//! is begun after they came: what a tag named before they asked is no answer to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use larder_base::Error;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{Dataset, Reference};

/// The queues of all references that are being opened.
#[derive(Debug, Default)]
pub(super) struct Queues(HashMap<Reference, Weak<Queue>>);

/// Those who want one reference.
#[derive(Debug, Default)]
pub(super) struct Queue {
    arrived: AtomicU64,
    last: Arc<Mutex<Option<Outcome>>>,
}

/// What came of resolving a reference.
#[derive(Debug)]
struct Outcome {
    /// How many had come when it began.
    covers: u64,
    found: Result<Arc<Dataset>, Error>,
}

/// The right to resolve a reference; nobody else does as long as this is held.
#[derive(Debug)]
pub(crate) struct Turn {
    covers: u64,
    outcome: OwnedMutexGuard<Option<Outcome>>,
    _queue: Arc<Queue>,
}

impl Queues {
    /// The queue for a reference.
    pub(super) fn of(&mut self, reference: &Reference) -> Arc<Queue> {
        self.0.retain(|_, queue| queue.strong_count() > 0);
        if let Some(queue) = self.0.get(reference).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::default();
        self.0.insert(reference.clone(), Arc::downgrade(&queue));
        queue
    }
}

impl Queue {
    /// Waits until somebody has resolved the reference since this was called, or it is the caller's turn.
    pub(super) async fn wait(self: Arc<Self>) -> Result<Result<Arc<Dataset>, Error>, Turn> {
        let ticket = self.arrived.fetch_add(1, SeqCst);
        let outcome = Arc::clone(&self.last).lock_owned().await;
        match &*outcome {
            Some(outcome) if ticket < outcome.covers => Ok(outcome.found.clone()),
            _ => Err(Turn { covers: self.arrived.load(SeqCst), outcome, _queue: self }),
        }
    }
}

impl Turn {
    /// Tells all who had come when the turn began, and lets the next one have it.
    pub(super) fn end(mut self, found: Result<Arc<Dataset>, Error>) {
        *self.outcome = Some(Outcome { covers: self.covers, found });
    }
}
