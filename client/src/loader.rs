//! The loader: shuffled batches of a dataset, fetched ahead.
//!
//! ```text
//! Job --pass()--> Pass: which samples batch i has        (pure; the order is `sampler`,
//!                   |                                     which rank reads what `divider`)
//!                   |
//!          BatchFetcher::fetch(i): samples -> rows -> one gather a dataset into one buffer, pooled or given
//!                   |
//!          Prefetch: a few threads, a bounded window, outcomes in order
//!                   |
//!          Epoch: hands a batch out, and only then counts it: state, digest, stats
//! ```
//!
//! Thread rule: a [`Loader`] owns no thread; an [`Epoch`] has as many as batches are fetched ahead.
//! After a fork a loader can be used on both sides, an epoch only in the process that began it.
//! Non-goals: where rows come from (it is handed a function that reads them); devices and
//! frameworks.

mod batch;
mod builder;
mod caller_buffers;
mod content;
mod direct;
mod divider;
mod epoch;
mod fetch;
mod layout;
mod pass;
mod prefetch;
mod schedule;
mod send;
mod shuffle;
mod slowest;

use std::{fmt, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::{
    Device, DeviceWay, Error, ErrorKind, Pump,
    sampler::{self, EpochDigest, LoaderState, PassName, PlanId, Shuffle},
    stats::LoaderStats,
};
use epoch::{Ahead, Progress, Start};
use fetch::BatchFetcher;
use pass::{Job, Pass};
use slowest::Slowest;

pub use batch::{Batch, BatchTensor, OnHost};
pub use builder::LoaderBuilder;
pub(crate) use builder::Source;
pub use epoch::{Epoch, PreparedEpoch};
pub(crate) use fetch::{Gather, Look, Mapped, private_views, take};
pub(crate) use layout::{common_tensors, tensor_index};
pub use schedule::{Schedule, ScheduledBatch};
pub use send::{DeviceTensor, OnDevice};
pub use shuffle::ShuffleMode;
pub use slowest::SlowBatch;

/// Hands out the samples of a dataset as batches, each declared sample once an epoch, in an order
/// that seed and epoch alone decide.
///
/// ```no_run
/// # fn train(_: larder_client::BatchTensor<'_>) {}
/// # fn save(_: String) {}
/// # let saved: Option<larder_client::sampler::LoaderState> = None;
/// let dataset = larder_client::Dataset::open("s3://bucket/imagenet", Some("http://cache:7070"))?;
/// let mut loader = dataset.loader().batch_size(256).seed(7).rank(0, 4).build()?;
/// if let Some(state) = saved {
///     loader.resume(state)?;
/// }
/// for epoch in loader.state().plan().epoch()..90 {
///     for batch in loader.epoch(epoch)? {
///         let batch = batch?;
///         train(batch.tensor("image"));
///         save(batch.state().to_string());
///     }
/// }
/// # Ok::<(), larder_client::Error>(())
/// ```
pub struct Loader {
    job: Job,
    fetcher: Arc<BatchFetcher>,
    ahead: Ahead,
    /// The pass begun last, or the one that a resume prepared.
    pass: Arc<Pass>,
    /// The pass that a resume prepared, until an epoch of its number has begun.
    resumed: Arc<ArcSwapOption<Pass>>,
    /// Of `pass`; written by its epoch.
    progress: Arc<ArcSwap<Progress>>,
    /// Of all passes.
    slowest: Arc<Slowest>,
}

impl Loader {
    fn new(job: Job, fetcher: Arc<BatchFetcher>, ahead: Ahead) -> Result<Self, Error> {
        let pass = Arc::new(job.pass(LoaderState::new(job.plan(0), 0))?);
        let progress = Progress::at_start(&pass, LoaderStats::default());
        let progress = Arc::new(ArcSwap::from_pointee(progress));
        let (resumed, slowest) = (Arc::default(), Arc::default());
        Ok(Self { job, fetcher, ahead, pass, resumed, progress, slowest })
    }

    /// Begins an epoch (0, 1, 2, ...) from its start, or where [`resume`](Self::resume) stands if
    /// it stands in this epoch. Fetching begins at once.
    ///
    /// The loader's state, digest and counts are from now on those of this epoch. An epoch begun
    /// before may still be iterated; it is just no longer the one that the loader speaks of.
    ///
    /// # Errors
    /// `ResourceExhausted` when no thread can be started.
    pub fn epoch(&mut self, epoch: u64) -> Result<Epoch, Error> {
        Epoch::on_host(self.start(epoch)?, None)
    }

    /// As [`epoch`](Self::epoch), for batches in memory of the caller's: a device's framework may
    /// want them in memory of its own kind. Each batch is gathered into what was given for it, also
    /// one whose rows could be seen where they lie.
    ///
    /// ```no_run
    /// # use larder_client::{Batch, Error, CallerMemory, Loader};
    /// # type Allocate = fn(usize) -> Box<dyn CallerMemory>;
    /// # fn example(mut loader: Loader, memory_of: Allocate, train: fn(Batch)) -> Result<(), Error> {
    /// let mut prepared = loader.prepare(0)?;
    /// while let Some(bytes) = prepared.wanted() {
    ///     prepared.give(memory_of(bytes));
    /// }
    /// let mut epoch = prepared.begin()?;
    /// while let Some(batch) = epoch.next() {
    ///     train(batch?);
    ///     while let Some(bytes) = epoch.wanted() {
    ///         epoch.give(memory_of(bytes));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// None is known: it is [`PreparedEpoch::begin`] that starts threads.
    pub fn prepare(&mut self, epoch: u64) -> Result<PreparedEpoch, Error> {
        Ok(PreparedEpoch::<OnHost>::new(self.start(epoch)?))
    }

    /// What copies this loader's batches to a device: its own stream, and page-locked buffers for
    /// as many batches as are fetched at once, and two. To be made once.
    ///
    /// # Errors
    /// The driver's.
    pub fn pump(&self, device: &Device, way: DeviceWay) -> Result<Arc<Pump>, Error> {
        Pump::new(device, way, self.ahead.threads, self.ahead.batches())
    }

    /// As [`epoch`](Self::epoch), for batches in the memory of a device. Each is copied there while
    /// the program uses those before it. A program has its streams wait for a batch by
    /// [`DeviceSlice::begin_use`](crate::DeviceSlice::begin_use).
    ///
    /// ```no_run
    /// # use larder_client::{ConsumerStream, Device, DeviceTensor, DeviceWay, Error, Loader};
    /// # fn example(mut loader: Loader, train: fn(Vec<DeviceTensor>)) -> Result<(), Error> {
    /// let pump = loader.pump(&Device::cuda(0)?, DeviceWay::Auto)?;
    /// for batch in loader.epoch_on(0, &pump)? {
    ///     let batch = batch?;
    ///     let memory = batch.memory().clone();
    ///     memory.begin_use(ConsumerStream::DEFAULT)?;
    ///     train(batch.into_tensors());
    ///     memory.end_use(ConsumerStream::DEFAULT);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ResourceExhausted` when no thread can be started.
    pub fn epoch_on(&mut self, epoch: u64, pump: &Arc<Pump>) -> Result<Epoch<OnDevice>, Error> {
        pump.check()?;
        Epoch::on_device(self.start(epoch)?, None, Arc::clone(pump))
    }

    /// As [`prepare`](Self::prepare), for device memory of the caller's.
    ///
    /// # Errors
    /// Where the device can't be used: in a forked child, and after it was lost.
    pub fn prepare_on(
        &mut self,
        epoch: u64,
        pump: &Arc<Pump>,
    ) -> Result<PreparedEpoch<OnDevice>, Error> {
        pump.check()?;
        Ok(PreparedEpoch::<OnDevice>::new(self.start(epoch)?, Arc::clone(pump)))
    }

    /// What an epoch begins with; from now on the loader speaks of that epoch.
    fn start(&mut self, epoch: u64) -> Result<Start, Error> {
        let resumed = self.resumed.load_full().filter(|pass| pass.plan().epoch() == epoch);
        let pass = match resumed {
            Some(pass) => pass,
            None => Arc::new(self.job.pass(LoaderState::new(self.job.plan(epoch), 0))?),
        };
        self.turn_to(Arc::clone(&pass));
        Ok(Start {
            pass,
            resumed: Arc::clone(&self.resumed),
            ahead: self.ahead,
            fetcher: Arc::clone(&self.fetcher),
            published: Arc::clone(&self.progress),
            slowest: Arc::clone(&self.slowest),
        })
    }

    /// Goes on where a saved state stands: the next [`epoch`](Self::epoch) with the state's number
    /// begins there, whichever were begun before it or could not begin. Seed and shuffle become
    /// those of the state. It may have been saved with another world size or batch size; nothing is
    /// lost or repeated as long as all ranks resume it.
    ///
    /// # Errors
    /// `InvalidArgument` for a state of another snapshot, selection or order version; then nothing
    /// is changed.
    pub fn resume(&mut self, state: LoaderState) -> Result<(), Error> {
        let pass = Arc::new(self.job.pass(state)?);
        self.job.seed = state.plan().seed();
        self.job.shuffle = state.plan().shuffle();
        self.turn_to(Arc::clone(&pass));
        self.resumed.store(Some(pass));
        Ok(())
    }

    /// Which samples the batches from `state` on have, for a reader of another kind. Seed and
    /// shuffle are those of the state; the loader itself stays where it is.
    ///
    /// # Errors
    /// `InvalidArgument` for a state of another snapshot, selection or order version.
    pub fn schedule(&self, state: LoaderState) -> Result<Schedule, Error> {
        Ok(Schedule::new(self.job.pass(state)?))
    }

    /// Where the job stands after the batch that was handed out last, whatever was fetched ahead.
    /// At the end of an epoch: at the start of the next.
    ///
    /// A program that holds on to batches (copies to a device run behind) saves
    /// [`Batch::state`] of the batch it used last instead.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.progress.load().state
    }

    /// What this rank handed out in the epoch begun or resumed last, padding aside.
    #[must_use]
    pub fn digest(&self) -> EpochDigest {
        self.progress.load().digest
    }

    /// What the merged digests of all ranks come to at the end of the epoch begun or resumed last,
    /// if each declared sample came exactly once (after a resume: each that was left; with
    /// [`Last::Drop`](sampler::Last): each but for the dropped tail). 2 ns a sample, 30 ns in the
    /// two special cases.
    #[must_use]
    pub fn expected_digest(&self) -> EpochDigest {
        self.pass.expected_digest()
    }

    /// What was handed out since the loader was built, and what it waited for.
    #[must_use]
    pub fn stats(&self) -> LoaderStats {
        self.progress.load().stats
    }

    /// The slowest batches since the loader was built, the slowest first, with what each waited
    /// for: at most 32.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowBatch> {
        self.slowest.list()
    }

    /// What all ranks call their pass through an epoch: hold it against another rank's by
    /// [`PassName::agrees_with`].
    #[must_use]
    pub fn pass_name(&self, epoch: u64) -> PassName {
        self.job.name(epoch)
    }

    /// The name of an epoch's order: equal on all ranks, or they iterate different ones.
    #[must_use]
    pub fn plan(&self, epoch: u64) -> PlanId {
        self.job.plan(epoch)
    }

    /// How far samples are shuffled: what `auto` came to.
    #[must_use]
    pub fn shuffle(&self) -> Shuffle {
        self.job.shuffle
    }

    /// How many batches this rank gets in an epoch that is iterated from its start.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn batches_per_epoch(&self) -> Result<u64, Error> {
        let start = LoaderState::new(self.job.plan(0), 0);
        Ok(self.job.pass(start)?.count())
    }

    fn turn_to(&mut self, pass: Arc<Pass>) {
        let progress = Progress::at_start(&pass, self.stats());
        self.pass = pass;
        self.progress = Arc::new(ArcSwap::from_pointee(progress));
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("job", &self.job)
            .field("ahead", &self.ahead)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl From<sampler::Error> for Error {
    fn from(error: sampler::Error) -> Self {
        Self::new(ErrorKind::InvalidArgument, "the samples can't be put in order")
            .with_source(error)
    }
}

#[cfg(test)]
mod tests;
