//! Concurrent requests to open one reference: one caller resolves it for all that came before it
//! began.
//!
//! A caller that arrives during a resolve waits for its end, and then gets the outcome of the next
//! one. The running resolve may have read the tag before the caller asked, so its outcome does not
//! count.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use larder_base::Error;
use larder_dataset::{IndexProgress, Origin, OriginUri};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{Dataset, Reference};

/// The queues of all references that are being opened.
#[derive(Debug, Default)]
pub(super) struct Queues(HashMap<Reference, Weak<Queue>>);

/// The callers that request one reference.
#[derive(Debug, Default)]
pub(super) struct Queue {
    arrived: AtomicU64,
    last: Arc<Mutex<Option<ResolveOutcome>>>,
    running: std::sync::Mutex<Resolve>,
}

/// The running resolve.
#[derive(Debug, Default)]
struct Resolve {
    /// How far it has indexed the prefix. `None` if it has not begun to.
    step: Option<IndexProgress>,
    /// The store that it reads.
    origin: Option<Origin>,
}

/// The outcome of resolving a reference.
#[derive(Debug)]
struct ResolveOutcome {
    /// How many callers had arrived when it began.
    covers: u64,
    found: Result<Arc<Dataset>, Error>,
}

/// The exclusive right to resolve a reference.
#[derive(Debug)]
pub(crate) struct ResolveTurn {
    covers: u64,
    outcome: OwnedMutexGuard<Option<ResolveOutcome>>,
    queue: Arc<Queue>,
}

impl Queues {
    /// Returns the queue for a reference.
    pub(super) fn of(&mut self, reference: &Reference) -> Arc<Queue> {
        self.0.retain(|_, queue| queue.strong_count() > 0);
        if let Some(queue) = self.0.get(reference).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::default();
        self.0.insert(reference.clone(), Arc::downgrade(&queue));
        queue
    }

    /// Returns the queue for a dataset, if callers request it now. Any identity will do: all read
    /// the same files.
    pub(super) fn find(&self, dataset: &str, manifest: Option<&OriginUri>) -> Option<Arc<Queue>> {
        let is_it = |reference: &Reference| {
            (reference.0.as_str(), reference.1.as_ref()) == (dataset, manifest)
        };
        let mut queues = self.0.iter().filter(|(reference, _)| is_it(reference));
        queues.find_map(|(_, queue)| queue.upgrade())
    }
}

impl Queue {
    /// Notes the progress of the running resolve.
    pub(super) fn indexes(&self, step: IndexProgress) {
        self.running().step = Some(step);
    }

    /// Notes the store that the running resolve reads.
    pub(super) fn reads(&self, origin: &Origin) {
        self.running().origin = Some(origin.clone());
    }

    /// Notes that the resolve has ended.
    pub(super) fn ends(&self) {
        *self.running() = Resolve::default();
    }

    /// Returns how far the running resolve has indexed the prefix, and why its store keeps it
    /// waiting. `None` if it has not begun, or does not wait.
    pub(super) fn progress(&self) -> (Option<IndexProgress>, Option<String>) {
        let Resolve { step, origin } = &*self.running();
        (*step, origin.as_ref().and_then(Origin::trouble))
    }

    fn running(&self) -> MutexGuard<'_, Resolve> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the reference was resolved since this call, or it is the caller's turn.
    pub(super) async fn wait(self: Arc<Self>) -> Result<Result<Arc<Dataset>, Error>, ResolveTurn> {
        let ticket = self.arrived.fetch_add(1, SeqCst);
        let outcome = Arc::clone(&self.last).lock_owned().await;
        match &*outcome {
            Some(outcome) if ticket < outcome.covers => Ok(outcome.found.clone()),
            _ => Err(ResolveTurn { covers: self.arrived.load(SeqCst), outcome, queue: self }),
        }
    }
}

impl ResolveTurn {
    pub(super) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// Gives the outcome to all callers that had arrived when the turn began, and ends the turn.
    pub(super) fn end(mut self, found: Result<Arc<Dataset>, Error>) {
        *self.outcome = Some(ResolveOutcome { covers: self.covers, found });
    }
}
