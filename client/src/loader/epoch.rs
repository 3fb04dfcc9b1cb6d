//! The iterator over the batches of one epoch, and the record of what it handed out.

use std::{fmt, mem, sync::Arc, task::Poll, time::Duration};

use arc_swap::ArcSwap;

use super::{
    batch::Batch,
    fetch::BatchFetcher,
    pass::Pass,
    prefetch::Prefetch,
    slowest::{SlowBatch, Slowest},
};
use crate::{
    Error,
    patience::CancelToken,
    process,
    sampler::{EpochDigest, LoaderState, PassName, PlanId},
    stats::{BatchCost, LoaderStats},
};

/// What was handed out so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) state: LoaderState,
    pub(super) digest: EpochDigest,
    pub(super) stats: LoaderStats,
}

/// The batches of one epoch, in order, fetched ahead by threads of its own. Made by
/// [`Loader::epoch`](super::Loader::epoch).
///
/// An error is the last item: the batches before it have come, and
/// [`Loader::state`](super::Loader::state) says where to go on. Dropping it cancels what its threads
/// are fetching, and does not wait for them: they end within about a tenth of a second, whatever
/// they waited for (within a second if that was a host that does not answer).
pub struct Epoch {
    pass: Arc<Pass>,
    prefetch: Prefetch<Batch>,
    /// Of all that is fetched ahead.
    cancel: CancelToken,
    /// Batches handed out.
    handed_out: u64,
    progress: Progress,
    /// Where the loader looks.
    published: Arc<ArcSwap<Progress>>,
    /// For the next batch, so far.
    waited: Duration,
    slowest: Arc<Slowest>,
}

/// How far ahead batches are fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// Batches being fetched at once, each on a thread of its own.
    pub(super) threads: usize,
    /// Batches that may lie ready beside those.
    pub(super) ready: usize,
}

impl Progress {
    /// Before the first batch of a pass.
    pub(super) fn at_start(pass: &Pass, stats: LoaderStats) -> Self {
        Self { state: pass.state_at_start(), digest: EpochDigest::new(pass.plan()), stats }
    }
}

impl Epoch {
    pub(super) fn begin(
        pass: Arc<Pass>,
        ahead: Ahead,
        fetcher: Arc<BatchFetcher>,
        published: Arc<ArcSwap<Progress>>,
        slowest: Arc<Slowest>,
    ) -> Result<Self, Error> {
        let (progress, cancel) = (**published.load(), CancelToken::new());
        let work = {
            let (pass, cancel) = (Arc::clone(&pass), cancel.clone());
            move |batch| fetcher.fetch(&pass, batch, &cancel)
        };
        let prefetch = Prefetch::start(pass.count(), ahead.threads, ahead.ready, work)?;
        let waited = Duration::ZERO;
        Ok(Self { pass, prefetch, cancel, handed_out: 0, progress, published, waited, slowest })
    }

    /// The name of this pass: equal on all ranks, or they do not iterate the same order.
    #[must_use]
    pub fn plan(&self) -> PlanId {
        self.pass.plan()
    }

    /// What all ranks call this pass: hold it against another rank's by [`PassName::agrees_with`].
    #[must_use]
    pub fn name(&self) -> PassName {
        self.pass.name()
    }

    /// How many batches this rank gets in all, from where the epoch was begun or resumed.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.pass.count()
    }

    /// As [`next`](Iterator::next), but waits no longer than `patience`: for programs that must look
    /// up from waiting now and then, as an interpreter that handles signals must.
    pub fn poll(&mut self, patience: Duration) -> Poll<Option<Result<Batch, Error>>> {
        let begun = process::now();
        let ready = self.prefetch.wait(patience);
        self.waited += process::now().saturating_duration_since(begun);
        if ready { Poll::Ready(self.next()) } else { Poll::Pending }
    }

    /// Counts a batch that is handed out.
    fn record(&mut self, batch: &Batch, waiting: Duration) {
        let counted = batch.len() - batch.padding();
        batch.samples.count(counted, &mut self.progress.digest);
        self.progress.stats.record(&BatchCost {
            samples: counted as u64,
            padding: batch.padding() as u64,
            sources: batch.sources(),
            fetching: batch.fetching(),
            waiting,
        });
        self.slowest.offer(waiting, batch.fetching(), || SlowBatch {
            epoch: self.plan().epoch(),
            batch: self.handed_out,
            waiting,
            fetching: batch.fetching(),
            hops: batch.sources().hops(),
            longest: batch.longest_wait().cloned(),
        });
        self.handed_out += 1;
        self.progress.state = batch.state();
        self.publish();
    }

    fn publish(&self) {
        self.published.store(Arc::new(self.progress));
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let begun = process::now();
        let next = self.prefetch.next();
        match &next {
            Some(Ok(batch)) => {
                let waited = mem::take(&mut self.waited);
                self.record(batch, waited + process::now().saturating_duration_since(begun));
            }
            None if !self.prefetch.failed() => {
                // Also on a rank that had nothing of the last batch.
                self.progress.state = self.pass.state_at_end();
                self.publish();
            }
            Some(Err(_)) | None => {}
        }
        next
    }
}

impl std::iter::FusedIterator for Epoch {}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch")
            .field("plan", &self.plan())
            .field("batches", &self.batches())
            .finish_non_exhaustive()
    }
}
