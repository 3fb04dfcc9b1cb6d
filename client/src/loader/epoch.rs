//! The iterator over the batches of one epoch, and the record of what it handed out.

use std::{fmt, mem, sync::Arc, task::Poll, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{
    batch::{Batch, BatchMemory, OnHost},
    caller_buffers::CallerBuffers,
    fetch::{BatchFetcher, HostChoice},
    pass::Pass,
    prefetch::Prefetch,
    slowest::{SlowBatch, Slowest},
};
use crate::{
    Error,
    deadline::CancelToken,
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
/// [`Loader::state`](super::Loader::state) says where to go on. Dropping it cancels what its
/// threads are fetching, and does not wait for them: they end within about a tenth of a second,
/// whatever they waited for (within a second if that was a host that does not answer).
pub struct Epoch<P: BatchMemory = OnHost> {
    pass: Arc<Pass>,
    prefetch: Prefetch<Batch<P>>,
    /// Present if batches come in memory of the caller.
    buffers: Option<CallerBuffers<P::Given>>,
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

impl Ahead {
    /// Batches that may be in flight or ready.
    pub(super) fn batches(self) -> usize {
        self.threads + self.ready
    }
}

impl Progress {
    /// Before the first batch of a pass.
    pub(super) fn at_start(pass: &Pass, stats: LoaderStats) -> Self {
        Self { state: pass.state_at_start(), digest: EpochDigest::new(pass.plan()), stats }
    }
}

/// What an epoch is begun with.
pub(super) struct Start {
    pub(super) pass: Arc<Pass>,
    /// Where the loader keeps the pass of a resume, which may be this one.
    pub(super) resumed: Arc<ArcSwapOption<Pass>>,
    pub(super) ahead: Ahead,
    pub(super) fetcher: Arc<BatchFetcher>,
    pub(super) published: Arc<ArcSwap<Progress>>,
    pub(super) slowest: Arc<Slowest>,
}

/// An epoch that is not begun yet, whose batches are to come in memory of the caller. Made by
/// [`Loader::prepare`](super::Loader::prepare).
#[must_use = "nothing is fetched before begin()"]
pub struct PreparedEpoch<P: BatchMemory = OnHost> {
    pub(super) start: Start,
    pub(super) buffers: CallerBuffers<P::Given>,
    pub(super) by: P::By,
}

impl<P: BatchMemory> PreparedEpoch<P> {
    /// As [`Epoch::wanted`].
    pub fn wanted(&mut self) -> Option<usize> {
        self.buffers.wanted(0)
    }

    /// As [`Epoch::give`].
    pub fn give(&mut self, memory: P::Given) {
        self.buffers.give(0, memory);
    }
}

impl PreparedEpoch {
    pub(super) fn new(start: Start) -> Self {
        let (pass, fetcher) = (Arc::clone(&start.pass), Arc::clone(&start.fetcher));
        let buffers =
            CallerBuffers::new(pass, fetcher, start.ahead.batches(), BatchFetcher::buffer_bytes);
        Self { start, buffers, by: () }
    }

    /// Begins it: fetching begins at once.
    ///
    /// # Errors
    /// `ResourceExhausted` when no thread can be started.
    pub fn begin(self) -> Result<Epoch, Error> {
        Epoch::on_host(self.start, Some(self.buffers))
    }
}

impl<P: BatchMemory> fmt::Debug for PreparedEpoch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedEpoch")
            .field("plan", &self.start.pass.plan())
            .finish_non_exhaustive()
    }
}

impl Epoch {
    /// Begins an epoch whose batches are in the memory of the host.
    pub(super) fn on_host(
        start: Start,
        buffers: Option<CallerBuffers<<OnHost as BatchMemory>::Given>>,
    ) -> Result<Self, Error> {
        let (pass, fetcher) = (Arc::clone(&start.pass), Arc::clone(&start.fetcher));
        let given = buffers.as_ref().map(CallerBuffers::given);
        Self::begin(start, buffers, move |batch, cancel| {
            let choice = match &given {
                None => HostChoice::Any,
                Some(given) => HostChoice::Given(given.take(batch)),
            };
            fetcher.batch(&pass, batch, |samples| fetcher.to_host(samples, choice, cancel))
        })
    }
}

impl<P: BatchMemory> Epoch<P> {
    /// Begins an epoch: `fetch` brings each of its batches, unless the token is used first.
    pub(super) fn begin(
        start: Start,
        buffers: Option<CallerBuffers<P::Given>>,
        fetch: impl Fn(u64, &CancelToken) -> Result<Batch<P>, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let Start { pass, resumed, ahead, published, slowest, .. } = start;
        let (progress, cancel) = (**published.load(), CancelToken::new());
        let work = {
            let cancel = cancel.clone();
            move |batch| fetch(batch, &cancel)
        };
        let prefetch = Prefetch::start(pass.count(), ahead.threads, ahead.ready, work)?;
        // Only now is a resume used up: a beginning that fails can be tried again.
        resumed.compare_and_swap(&Some(Arc::clone(&pass)), None);
        Ok(Self {
            pass,
            prefetch,
            buffers,
            cancel,
            handed_out: 0,
            progress,
            published,
            waited: Duration::ZERO,
            slowest,
        })
    }

    /// Bytes of the memory that is to be [given](Self::give) next, for a batch to come; `None` if
    /// none is wanted before another batch is handed out, or if the epoch was not
    /// [prepared](super::Loader::prepare) for it. Of ragged rows this puts a batch in order, as
    /// fetching it does once more.
    pub fn wanted(&mut self) -> Option<usize> {
        let handed_out = self.handed_out;
        self.buffers.as_mut()?.wanted(handed_out)
    }

    /// Gives memory for a batch to come, of as many bytes as were [wanted](Self::wanted). A batch
    /// that has none, or too little, comes in memory of the loader's.
    pub fn give(&mut self, memory: P::Given) {
        if let Some(buffers) = &mut self.buffers {
            buffers.give(self.handed_out, memory);
        }
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

    /// As [`next`](Iterator::next), but waits no longer than `patience`: for programs that must
    /// look up from waiting now and then, as an interpreter that handles signals must.
    pub fn poll(&mut self, patience: Duration) -> Poll<Option<Result<Batch<P>, Error>>> {
        let begun = process::now();
        let ready = self.prefetch.wait(patience);
        self.waited += process::now().saturating_duration_since(begun);
        if ready { Poll::Ready(self.next()) } else { Poll::Pending }
    }

    /// Counts a batch that is handed out.
    fn record(&mut self, batch: &Batch<P>, waiting: Duration) {
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

impl<P: BatchMemory> Iterator for Epoch<P> {
    type Item = Result<Batch<P>, Error>;

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

impl<P: BatchMemory> std::iter::FusedIterator for Epoch<P> {}

impl<P: BatchMemory> Drop for Epoch<P> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl<P: BatchMemory> fmt::Debug for Epoch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch")
            .field("plan", &self.plan())
            .field("batches", &self.batches())
            .finish_non_exhaustive()
    }
}
