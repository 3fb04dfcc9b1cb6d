//! The loader: shuffled batches of a dataset, fetched ahead. Also [`Take`]: rows that a program
//! chooses, in the same layout.
//!
//! ```text
//! order  LoaderJob --pass()--> Pass: the draws of batch i  (pure; `sampler` gives the order,
//!                          |                          `locality` the rows of each rank)
//!                          |
//! batch           BatchFetcher: draws -> rows -> one gather per dataset, into one buffer
//! send                     |    and from there to a device
//!                          |
//! run             Prefetch: a few threads, a bounded window, outcomes in order
//!                          |
//!                 Epoch: hands a batch out, and only then counts it in state, digest and stats
//! ```
//!
//! Thread rule: a [`Loader`] owns no thread. An [`Epoch`] owns one thread for each batch that it
//! fetches at once. After a fork a loader works on both sides, and an epoch only in the process
//! that began it. Non-goals: reading rows (see `RowSource`), devices and frameworks.

mod batch;
mod order;
mod run;
mod send;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;

use crate::{
    Device, DeviceWay, Error, ErrorKind, Pump,
    sampler::{self, EpochDigest, LoaderState, PassId, PassName, Shuffle},
};
use batch::BatchFetcher;
use order::{LoaderJob, Pass};
use run::{Ahead, AnnouncedJob, EpochProgress, Reading, Start};

pub use batch::layout::Decode;
pub(crate) use batch::layout::{check_columns, common_tensors, tensor_index};
pub use batch::{Batch, BatchTensor, OnHost, Take};
pub(crate) use batch::{LoaderSource, private_views};
pub use order::{Locality, RankHosts, Schedule, ScheduledBatch, ShuffleMode};
pub use run::{Epoch, LoaderBuilder, LoaderOptions, LoaderStats, PreparedEpoch, SlowBatch};
pub use send::{DeviceTensor, OnDevice};

/// Iterates a dataset in batches. Each declared sample comes once per epoch. Seed and epoch alone
/// decide the order.
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
/// for epoch in loader.state().pass_id().epoch()..90 {
///     for batch in loader.epoch(epoch)? {
///         let batch = batch?;
///         train(batch.tensor("image"));
///         save(batch.state().to_string());
///     }
/// }
/// # Ok::<(), larder_client::Error>(())
/// ```
pub struct Loader {
    job: LoaderJob,
    /// The values of the current epoch.
    start: Start,
    /// Absent if the nodes are not told how far it is.
    announced: Option<Arc<AnnouncedJob>>,
}

impl Loader {
    fn new(
        job: LoaderJob,
        fetcher: Arc<BatchFetcher>,
        ahead: Ahead,
        announced: impl FnOnce(&Arc<Pass>) -> Option<Arc<AnnouncedJob>>,
    ) -> Result<Self, Error> {
        let pass = Arc::new(job.pass(LoaderState::new(job.pass_id(0), 0))?);
        let progress = EpochProgress::at_start(&pass, LoaderStats::default());
        let published = Arc::new(ArcSwap::from_pointee(progress));
        let (resumed, slowest) = (Arc::default(), Arc::default());
        let reading = Reading::new(Arc::clone(&pass));
        let announced = announced(&pass);
        let first = Arc::default();
        let start = Start { pass, resumed, ahead, fetcher, reading, published, slowest, first };
        Ok(Self { job, start, announced })
    }

    /// Begins an epoch (0, 1, 2, ...) and starts to fetch. It begins at the [resumed](Self::resume)
    /// position if that is in this epoch, otherwise at its start.
    ///
    /// From now on the loader's state, digest and counts are those of this epoch. An earlier epoch
    /// can still be iterated, but the loader no longer reports it.
    ///
    /// # Errors
    /// `ResourceExhausted` if the system refuses a thread.
    pub fn epoch(&mut self, epoch: u64) -> Result<Epoch, Error> {
        Epoch::begin(self.start(epoch)?, None, ())
    }

    /// As [`epoch`](Self::epoch), for batches in memory of the caller, such as a framework's pinned
    /// memory. Each batch is gathered into its given memory, even if its rows could be viewed in
    /// place.
    ///
    /// ```no_run
    /// # use larder_client::{Batch, Error, CallerMemory, Loader};
    /// # type Allocate = fn(usize) -> Box<dyn CallerMemory>;
    /// # fn example(mut loader: Loader, alloc: Allocate, train: fn(Batch)) -> Result<(), Error> {
    /// let mut prepared = loader.prepare(0)?;
    /// while let Some(bytes) = prepared.wanted() {
    ///     prepared.give(alloc(bytes));
    /// }
    /// let mut epoch = prepared.begin()?;
    /// while let Some(batch) = epoch.next() {
    ///     train(batch?);
    ///     while let Some(bytes) = epoch.wanted() {
    ///         epoch.give(alloc(bytes));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No known case. [`PreparedEpoch::begin`] starts the threads.
    pub fn prepare(&mut self, epoch: u64) -> Result<PreparedEpoch, Error> {
        Ok(PreparedEpoch::new(self.start(epoch)?, ()))
    }

    /// Creates the pump that copies this loader's batches to a device. It has its own stream, and
    /// one page-locked buffer for each batch that is fetched at once, and two more. Create it once.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn pump(&self, device: &Device, way: DeviceWay) -> Result<Arc<Pump>, Error> {
        Pump::new(device, way, self.start.ahead.threads, self.start.ahead.batches())
    }

    /// As [`epoch`](Self::epoch), for batches in the memory of a device. A batch is copied there
    /// while the program uses earlier ones.
    /// [`DeviceSlice::begin_use`](crate::DeviceSlice::begin_use) makes a program's stream wait for
    /// a batch.
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
    /// `ResourceExhausted` if the system refuses a thread.
    pub fn epoch_on(&mut self, epoch: u64, pump: &Arc<Pump>) -> Result<Epoch<OnDevice>, Error> {
        pump.check()?;
        Epoch::begin(self.start(epoch)?, None, Arc::clone(pump))
    }

    /// As [`prepare`](Self::prepare), for device memory of the caller.
    ///
    /// # Errors
    /// The device can't be used: in a forked child, or after it was lost.
    pub fn prepare_on(
        &mut self,
        epoch: u64,
        pump: &Arc<Pump>,
    ) -> Result<PreparedEpoch<OnDevice>, Error> {
        pump.check()?;
        Ok(PreparedEpoch::new(self.start(epoch)?, Arc::clone(pump)))
    }

    /// Makes `epoch` the loader's current epoch, and returns the values to begin it with.
    fn start(&mut self, epoch: u64) -> Result<Start, Error> {
        let resumed = self.start.resumed.load_full().filter(|pass| pass.pass_id().epoch() == epoch);
        let pass = match resumed {
            Some(pass) => pass,
            None => Arc::new(self.job.pass(LoaderState::new(self.job.pass_id(epoch), 0))?),
        };
        self.turn_to(pass);
        self.announced.iter().for_each(AnnouncedJob::start);
        Ok(self.start.clone())
    }

    /// Continues at a saved state. The next [`epoch`](Self::epoch) with the state's number begins
    /// at its position, even if other epochs begin first or fail to begin. Seed and shuffle become
    /// those of the state. The state may come from another world size or batch size: no sample is
    /// lost or repeated if all ranks resume it.
    ///
    /// # Errors
    /// `InvalidArgument` for a state of another snapshot, selection or order version. The loader is
    /// then unchanged.
    pub fn resume(&mut self, state: LoaderState) -> Result<(), Error> {
        let pass = Arc::new(self.job.pass(state)?);
        self.job.seed = state.pass_id().seed();
        self.job.shuffle = state.pass_id().shuffle();
        self.turn_to(Arc::clone(&pass));
        self.start.resumed.store(Some(pass));
        Ok(())
    }

    /// Lists the samples of the batches from `state` on, for a program with its own reader. Seed
    /// and shuffle are those of the state. The loader itself does not move.
    ///
    /// # Errors
    /// `InvalidArgument` for a state of another snapshot, selection or order version.
    pub fn schedule(&self, state: LoaderState) -> Result<Schedule, Error> {
        Ok(Schedule::new(self.job.pass(state)?))
    }

    /// The position of the job after the last batch that was handed out. Batches fetched ahead do
    /// not count. At the end of an epoch it is the start of the next.
    ///
    /// A program that holds batches back (copies to a device run behind) saves the [`Batch::state`]
    /// of the batch it used last instead.
    pub fn state(&self) -> LoaderState {
        self.start.published.load().state
    }

    /// The digest of the samples that this rank handed out in the current epoch, without padding.
    pub fn digest(&self) -> EpochDigest {
        self.start.published.load().digest
    }

    /// The merged digest of all ranks at the end of the current epoch, if each declared sample came
    /// exactly once. After a resume it covers the remaining samples. With
    /// [`Last::Drop`](sampler::Last) it excludes the dropped tail. Takes 2 ns a sample, or 30 ns in
    /// these two cases.
    pub fn expected_digest(&self) -> EpochDigest {
        self.start.pass.expected_digest()
    }

    /// Counts and waiting times since the loader was built.
    pub fn stats(&self) -> LoaderStats {
        self.start.published.load().stats
    }

    /// The at most 32 slowest batches since the loader was built, the slowest first, each with the
    /// reasons for its wait.
    pub fn slowest(&self) -> Vec<SlowBatch> {
        self.start.slowest.list()
    }

    /// The name of the pass through an epoch. Compare it with another rank's by
    /// [`PassName::agrees_with`].
    pub fn pass_name(&self, epoch: u64) -> PassName {
        self.job.name(epoch)
    }

    /// The name of an epoch's order. Ranks that iterate the same order have equal names.
    pub fn pass_id(&self, epoch: u64) -> PassId {
        self.job.pass_id(epoch)
    }

    /// The shuffle in use: as set, or as `auto` resolved.
    pub fn shuffle(&self) -> Shuffle {
        self.job.shuffle
    }

    /// The number of batches that this rank gets in an epoch that begins at its start.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn batches_per_epoch(&self) -> Result<u64, Error> {
        let start = LoaderState::new(self.job.pass_id(0), 0);
        Ok(self.job.pass(start)?.count())
    }

    fn turn_to(&mut self, pass: Arc<Pass>) {
        let progress = EpochProgress::at_start(&pass, self.stats());
        self.start.reading = Reading::new(Arc::clone(&pass));
        self.announced.iter().for_each(|announced| announced.turn_to(&self.start.reading));
        self.start.pass = pass;
        self.start.published = Arc::new(ArcSwap::from_pointee(progress));
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("job", &self.job)
            .field("ahead", &self.start.ahead)
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
