//! One fill in a worker's hands: it ends in the books, whatever becomes of the worker.

use std::sync::Arc;
use std::time::Instant;

use larder_dataset::ShardId;
use larder_extent::Sealed;
use larder_store::{FillPermit, HandOver};
use larder_wire::{Error, ErrorKind};

use super::{Cache, Remains};
use crate::clock;
use crate::fill::{Failure, Queued};
use crate::flight::Flight;

/// Workers that may die over one shard; more would say that the shard kills them.
const WORKERS_MAX: u32 = 3;

/// A fill and the right to perform it. Dropping it unfinished hands the fill to the next worker.
#[derive(Debug)]
pub(crate) struct Job {
    cache: Arc<Cache>,
    flight: Arc<Flight>,
    permit: Option<FillPermit<ShardId>>,
}

/// A fill that can't be completed: why, over which object, after how many tries.
#[derive(Debug)]
pub(crate) struct GaveUp {
    pub(crate) why: Error,
    pub(crate) object: Option<String>,
    pub(crate) attempts: u32,
}

impl From<Error> for GaveUp {
    fn from(why: Error) -> Self {
        Self { why, object: None, attempts: 1 }
    }
}

impl Cache {
    /// The next fill to perform, as soon as there is one.
    pub(crate) async fn next_job(self: &Arc<Self>) -> Job {
        loop {
            let one = self.queued.acquire().await;
            one.expect("the semaphore is never closed").forget();
            if let Some(Queued { flight, permit }) = self.lock().queue.pop() {
                return Job { cache: Arc::clone(self), flight, permit: Some(permit) };
            }
        }
    }

    /// Ends a fill that is in nobody's hands.
    pub(super) fn abandon(&self, permit: FillPermit<ShardId>, flight: &Flight, why: &Arc<Error>) {
        let given_up = self.lock().store.give_up(permit, clock::now());
        let remains = flight.fail(Arc::clone(why)).map_or(Remains::Nothing, Remains::Filling);
        if let Ok(orphan) = given_up {
            self.free(orphan.token, remains);
        }
    }

    fn hand_over(&self, permit: FillPermit<ShardId>, flight: &Flight) {
        let why = Error::new(ErrorKind::Internal, "the worker that filled the shard died");
        let why = self.lock().closed.clone().unwrap_or_else(|| Arc::new(why));
        let mut books = self.lock();
        match books.store.fail(permit, clock::now()) {
            Ok(HandOver::Retry { permit, .. }) if may_go_on(flight) && books.closed.is_none() => {
                let flight = Arc::clone(books.flight_of(&permit));
                books.queue.push_again(Queued { flight, permit });
                drop(books);
                self.counters.fills_handed_over.add(1);
                self.queued.add_permits(1);
            }
            Ok(HandOver::Retry { permit, .. }) => {
                drop(books);
                self.abandon(permit, flight, &why);
            }
            Ok(HandOver::Dropped(orphan)) => {
                drop(books);
                let remains = flight.fail(why).map_or(Remains::Nothing, Remains::Filling);
                self.free(orphan.token, remains);
            }
            Err(_) => {}
        }
    }
}
