//! The iterator over the batches of one epoch, and its progress.

mod announce;

use std::{fmt, mem, sync::Arc, task::Poll, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::{
    caller_buffers::CallerBuffers,
    prefetch::Prefetch,
    stats::{LoaderStats, SlowBatch, Slowest},
};
use crate::{
    Error,
    deadline::{CancelToken, FirstRead},
    fetch::RowsWait,
    loader::{
        batch::{Batch, BatchFetcher, BatchMemory, Choice, Fetch, OnHost},
        order::Pass,
    },
    process,
    progress::Progress,
    sampler::{EpochDigest, LoaderState, PassId, PassName},
};

pub(in crate::loader) use announce::{AnnouncedJob, Reading};

/// The progress of an epoch, without batches that are only fetched ahead.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct EpochProgress {
    pub(in crate::loader) state: LoaderState,
    pub(in crate::loader) digest: EpochDigest,
    pub(in crate::loader) stats: LoaderStats,
}

/// The batches of one epoch, in order, fetched ahead by its own threads. Created by
/// [`Loader::epoch`](crate::Loader::epoch).
///
/// An error is the last item. All batches before it were handed out, and
/// [`Loader::state`](crate::Loader::state) is the position to continue at. Dropping an epoch
/// cancels its fetches and does not wait. Its threads end within about 0.1 s, or within 1 s if they
/// wait for a host that does not answer.
pub struct Epoch<P: BatchMemory = OnHost> {
    start: Start,
    prefetch: Prefetch<Batch<P>>,
    /// Present if the caller gives memory for batches.
    buffers: Option<CallerBuffers<P::Given>>,
    /// Cancels all fetches.
    cancel: CancelToken,
    handed_out: u64,
    progress: EpochProgress,
    /// The time waited so far for the next batch.
    waited: Duration,
    /// Present once a program asked for the progress of that wait.
    wait: Option<RowsWait>,
}

/// How far ahead batches are fetched.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct Ahead {
    /// Batches fetched at once, each on its own thread.
    pub(in crate::loader) threads: usize,
    /// Further batches that may lie ready.
    pub(in crate::loader) ready: usize,
}

impl Ahead {
    pub(in crate::loader) fn batches(self) -> usize {
        self.threads + self.ready
    }
}

impl EpochProgress {
    /// The progress before the first batch of a pass.
    pub(in crate::loader) fn at_start(pass: &Pass, stats: LoaderStats) -> Self {
        Self { state: pass.state_at_start(), digest: EpochDigest::new(pass.pass_id()), stats }
    }
}

/// The values that an epoch begins with, which it shares with the loader.
#[derive(Clone)]
pub(in crate::loader) struct Start {
    /// The pass that began last, or that a resume prepared.
    pub(in crate::loader) pass: Arc<Pass>,
    /// The pass that a resume prepared, until an epoch with its number begins.
    pub(in crate::loader) resumed: Arc<ArcSwapOption<Pass>>,
    pub(in crate::loader) ahead: Ahead,
    pub(in crate::loader) fetcher: Arc<BatchFetcher>,
    /// How far `pass` is, for the nodes.
    pub(in crate::loader) reading: Arc<Reading>,
    /// The progress of `pass`. Its epoch writes it, the loader reads it.
    pub(in crate::loader) published: Arc<ArcSwap<EpochProgress>>,
    pub(in crate::loader) slowest: Arc<Slowest>,
    /// The first read of the loader's first batch.
    pub(in crate::loader) first: Arc<FirstRead>,
}

/// An epoch before its begin, for batches in memory of the caller. Created by
/// [`Loader::prepare`](crate::Loader::prepare).
#[must_use = "nothing is fetched before begin()"]
pub struct PreparedEpoch<P: BatchMemory = OnHost> {
    start: Start,
    buffers: CallerBuffers<P::Given>,
    by: P::By,
}

#[expect(private_bounds, reason = "only the loader fetches, into the two kinds of memory it knows")]
impl<P: Fetch> PreparedEpoch<P> {
    pub(in crate::loader) fn new(start: Start, by: P::By) -> Self {
        let (pass, fetcher) = (Arc::clone(&start.pass), Arc::clone(&start.fetcher));
        let buffers = CallerBuffers::new(pass, fetcher, start.ahead.batches(), P::bytes_of);
        Self { start, buffers, by }
    }

    /// Begins the epoch and starts to fetch.
    ///
    /// # Errors
    /// `ResourceExhausted` if the system refuses a thread.
    pub fn begin(self) -> Result<Epoch<P>, Error> {
        Epoch::begin(self.start, Some(self.buffers), self.by)
    }
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

impl<P: BatchMemory> fmt::Debug for PreparedEpoch<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedEpoch")
            .field("pass_id", &self.start.pass.pass_id())
            .finish_non_exhaustive()
    }
}

#[expect(private_bounds, reason = "only the loader fetches, into the two kinds of memory it knows")]
impl<P: Fetch> Epoch<P> {
    /// Begins an epoch whose batches come in memory of the caller's `buffers`, if there are any.
    pub(in crate::loader) fn begin(
        start: Start,
        buffers: Option<CallerBuffers<P::Given>>,
        by: P::By,
    ) -> Result<Self, Error> {
        let (progress, cancel) = (**start.published.load(), CancelToken::new());
        let given = buffers.as_ref().map(CallerBuffers::given);
        let (pass, fetcher) = (Arc::clone(&start.pass), Arc::clone(&start.fetcher));
        let (cancelled, reading) = (cancel.clone(), Arc::clone(&start.reading));
        let first = Arc::clone(&start.first);
        let fetch = move |batch| {
            reading.begins(batch);
            let cancelled = cancelled.among(&first, batch == 0);
            let _answered = (batch == 0).then(|| first.answered_at_end());
            let fetch = |draws: &_| {
                let choice = match &given {
                    None => Choice::Any,
                    Some(given) => Choice::Given(given.take(batch)),
                };
                P::fetch(&fetcher, draws, choice, &by, &cancelled)
            };
            fetcher.batch(&pass, batch, fetch)
        };
        let Ahead { threads, ready } = start.ahead;
        let prefetch = Prefetch::start(start.pass.count(), threads, ready, fetch)?;
        // The resume is used up only here, so that an epoch that failed to begin can be tried
        // again.
        start.resumed.compare_and_swap(&Some(Arc::clone(&start.pass)), None);
        let (handed_out, waited, wait) = (0, Duration::ZERO, None);
        Ok(Self { start, prefetch, buffers, cancel, handed_out, progress, waited, wait })
    }
}

impl<P: BatchMemory> Epoch<P> {
    /// The bytes of the memory to [give](Self::give) next, for a later batch. `None` if the epoch
    /// wants no memory before the next batch is handed out, or was not
    /// [prepared](crate::Loader::prepare) for given memory. For ragged rows this computes the
    /// batch's order, which fetching repeats.
    pub fn wanted(&mut self) -> Option<usize> {
        let handed_out = self.handed_out;
        self.buffers.as_mut()?.wanted(handed_out)
    }

    /// Gives memory for a later batch, with as many bytes as [wanted](Self::wanted). A batch
    /// without memory, or with too little, uses memory of the loader.
    pub fn give(&mut self, memory: P::Given) {
        if let Some(buffers) = &mut self.buffers {
            buffers.give(self.handed_out, memory);
        }
    }

    /// The name of this pass's order. Ranks that iterate the same order have equal names.
    pub fn pass_id(&self) -> PassId {
        self.start.pass.pass_id()
    }

    /// The name of this pass. Compare it with another rank's by [`PassName::agrees_with`].
    pub fn name(&self) -> PassName {
        self.start.pass.name()
    }

    /// The number of batches that this rank gets, from the position where the epoch began.
    pub fn batches(&self) -> u64 {
        self.start.pass.count()
    }

    /// As [`next`](Iterator::next), but waits at most `patience`. For programs that must interrupt
    /// a wait now and then, such as an interpreter that handles signals.
    pub fn poll(&mut self, patience: Duration) -> Poll<Option<Result<Batch<P>, Error>>> {
        let begun = process::now();
        let ready = self.prefetch.wait(patience);
        self.waited += process::now().saturating_duration_since(begun);
        if ready { Poll::Ready(self.next()) } else { Poll::Pending }
    }

    /// How far the fills are that the next batch waits for, for a program that [polls](Self::poll).
    /// The first call for a batch begins to ask the nodes, once a second, and returns `None`.
    pub fn progress(&mut self) -> Option<Progress> {
        let (start, batch) = (&self.start, self.handed_out);
        if batch >= self.batches() {
            return None;
        }
        let begin = || {
            let reader = if batch == 0 { "first batch" } else { "next batch" };
            RowsWait::begin(start.fetcher.awaits(&start.pass, batch), reader)
        };
        self.wait.get_or_insert_with(begin).progress()
    }

    /// Counts a batch as handed out.
    fn record(&mut self, batch: &Batch<P>, waiting: Duration) {
        batch.draws.add_to(&mut self.progress.digest, batch.len() - batch.padding());
        self.progress.stats.record(batch, waiting);
        self.start.slowest.offer(waiting, batch.fetching(), || SlowBatch {
            epoch: self.pass_id().epoch(),
            batch: self.handed_out,
            waiting,
            fetching: batch.fetching(),
            hops: batch.sources().hops(),
            longest: batch.longest_wait().cloned(),
        });
        self.start.reading.handed_out(self.handed_out);
        self.handed_out += 1;
        self.progress.state = batch.state();
        self.publish();
    }

    fn publish(&self) {
        self.start.published.store(Arc::new(self.progress));
    }
}

impl<P: BatchMemory> Iterator for Epoch<P> {
    type Item = Result<Batch<P>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let begun = process::now();
        let next = self.prefetch.next();
        self.wait = None;
        match &next {
            Some(Ok(batch)) => {
                let waited = mem::take(&mut self.waited);
                self.record(batch, waited + process::now().saturating_duration_since(begun));
            }
            None if !self.prefetch.failed() => {
                // Also on a rank without a share of the last batch.
                self.progress.state = self.start.pass.state_at_end();
                self.start.reading.ended();
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
            .field("pass_id", &self.pass_id())
            .field("batches", &self.batches())
            .finish_non_exhaustive()
    }
}
