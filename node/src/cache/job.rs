//! One fill performed by a worker. It ends in the cache state even if the worker dies.

use std::pin::pin;
use std::sync::Arc;

use larder_base::{Error, ErrorKind, ShardId};
use larder_extent::Sealed;
use larder_store::{FillPermit, HandOver, StalePermit};

use super::state::ResidentShard;
use super::{Cache, Reclaimable};
use crate::cache::InFlightFill;
use crate::cache::{FailedRead, Failure, Queued};
use crate::clock;
use crate::dataset::Dataset;
use crate::dataset::bucket::FillShare;

/// How many workers one shard may kill. After that the shard is assumed to be the cause.
const WORKERS_MAX: u32 = 3;

/// A fill and the right to perform it. Dropping it unfinished hands the fill to the next worker.
#[derive(Debug)]
pub(crate) struct FillJob {
    cache: Arc<Cache>,
    dataset: Arc<Dataset>,
    shard: u32,
    flight: Arc<InFlightFill>,
    permit: Option<FillPermit<ShardId>>,
    /// Its part of the bucket's share of workers.
    share: Option<FillShare>,
}

/// A fill that can't be completed: why, over which read, after how many tries.
#[derive(Debug)]
pub(crate) struct GaveUp {
    pub(crate) why: Error,
    pub(crate) place: Option<FailedRead>,
    pub(crate) attempts: u32,
}

impl From<Error> for GaveUp {
    fn from(why: Error) -> Self {
        Self { why, place: None, attempts: 1 }
    }
}

impl Cache {
    /// Waits for the next fill, and takes it.
    pub(crate) async fn next_job(self: &Arc<Self>) -> FillJob {
        loop {
            // Created before the look, so that no call between the two is missed.
            let mut ready = pin!(self.ready.notified());
            ready.as_mut().enable();
            let popped = self.lock().queue.pop();
            if let Some((Queued { dataset, shard, flight, permit }, share)) = popped {
                // There may be more, and shares for them.
                self.ready.notify_one();
                let (cache, permit, share) = (Arc::clone(self), Some(permit), Some(share));
                return FillJob { cache, dataset, shard, flight, permit, share };
            }
            ready.await;
        }
    }

    /// Ends a fill that no worker holds.
    pub(super) fn abandon(
        &self,
        permit: FillPermit<ShardId>,
        flight: &Arc<InFlightFill>,
        why: &Arc<Error>,
    ) {
        let given_up = self.lock().store.give_up(permit, clock::now());
        let begun = flight.fail(Arc::clone(why));
        let remains = Reclaimable::InFlightFill(Arc::clone(flight), begun);
        if let Ok(orphan) = given_up {
            self.free(orphan.token, remains);
        }
    }
}

fn died() -> Arc<Error> {
    Arc::new(Error::new(ErrorKind::Internal, "the worker that filled the shard died; ask again"))
}

impl FillJob {
    /// Returns the flight of the shard to fill.
    pub(crate) fn flight(&self) -> &Arc<InFlightFill> {
        &self.flight
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Returns the index of the shard in the dataset.
    pub(crate) fn shard(&self) -> u32 {
        self.shard
    }

    /// Notes that bytes of the shard are read from the origin, for the readers that wait for it.
    pub(crate) fn reads_from_origin(&self, bytes: u64) {
        if self.flight.is_hurried() {
            self.cache.unreported.add(self.flight.id(), bytes);
        }
    }

    /// The shard is in: from here on it is served from memory.
    pub(crate) fn complete(mut self, sealed: Sealed) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let (page_size, sealed) = (sealed.page_size(), Arc::new(sealed));
        let now = clock::now();
        let mut kept = ResidentShard::new(Arc::clone(&sealed));
        kept.came_ahead = self.flight.is_hurried() && !self.flight.is_awaited();
        let completed = {
            let mut state = self.cache.lock();
            state.page_size = Some(page_size);
            state.store.complete(permit, kept, now)
        };
        if let Ok(flight) = completed {
            self.cache.counters.fills_completed.add(1);
            flight.seal(sealed);
        }
    }

    /// The shard can't be had: every waiting reader gets the reason, and for a moment every reader
    /// that asks.
    pub(crate) fn give_up(mut self, gave_up: GaveUp) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let why = self.list(gave_up);
        self.cache.abandon(permit, &self.flight, &why);
    }

    /// Lists the failure. Returns the reason, to be told.
    fn list(&self, gave_up: GaveUp) -> Arc<Error> {
        let GaveUp { why, place, attempts } = gave_up;
        let (dataset, shard) = (&self.dataset, self.shard);
        let why = Arc::new(why.context(format_args!("shard {shard} of {}", dataset.uri())));
        tracing::warn!(shard = %self.flight.id(), attempts, "a fill failed: {why}");
        self.cache.counters.fills_failed.add(1);
        self.cache.lock().failures.add(Failure {
            id: self.flight.id(),
            snapshot: dataset.snapshot(),
            shard,
            place,
            why: Arc::clone(&why),
            attempts,
            at: clock::now(),
        });
        why
    }

    /// Hands over a fill after its worker died or was stopped. With waiting readers it is queued
    /// again with the parts that are in. Without any, the shard is absent again.
    fn hand_over(&self, permit: FillPermit<ShardId>) {
        let (cache, flight) = (&self.cache, &self.flight);
        let mut state = cache.lock();
        let closed = state.closed.clone();
        match state.store.fail(permit, clock::now()) {
            Ok(HandOver::Retry { handle: flight, permit, .. })
                if closed.is_none() && flight.attempts() < WORKERS_MAX =>
            {
                let (dataset, shard) = (Arc::clone(&self.dataset), self.shard);
                state.queue.push_again(Queued { dataset, shard, flight, permit });
                drop(state);
                cache.counters.fills_handed_over.add(1);
                cache.ready.notify_one();
            }
            Ok(HandOver::Retry { permit, .. }) => {
                drop(state);
                cache.abandon(permit, flight, &closed.unwrap_or_else(died));
            }
            Ok(HandOver::Dropped(orphan)) => {
                drop(state);
                let begun = flight.fail(closed.unwrap_or_else(died));
                let remains = Reclaimable::InFlightFill(Arc::clone(flight), begun);
                cache.free(orphan.token, remains);
            }
            Err(StalePermit) => {}
        }
    }
}

impl Drop for FillJob {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.hand_over(permit);
        }
        drop(self.share.take());
        self.cache.ready.notify_one();
    }
}
