//! The settings of a loader, as set by the caller and as validated.

use std::{fmt, num::NonZeroU32, ops::Range, sync::Arc};

use larder_base::limits;

use super::epoch::{Ahead, AnnouncedJob};
use crate::{
    Error, Loader, Locality, ShuffleMode,
    loader::{
        batch::{
            BatchFetcher, Decoding, LoaderSource, SnapshotRows,
            layout::{self, BatchLayout, Decode, invalid},
        },
        order::{
            Divider, Lane, LoaderJob,
            shuffle::{self, Extent, Pool, RankHosts},
        },
    },
    memory::BufferPool,
    sampler::{Last, LoaderState, Mixture, Shuffle},
};

const BATCH_SIZE_DEFAULT: u32 = 256;

/// Settings of a [`Loader`], all with defaults. Created by
/// [`Dataset::loader`](crate::Dataset::loader) and [`Mixture::loader`](crate::Mixture::loader).
#[must_use = "nothing is loaded before build()"]
pub struct LoaderBuilder {
    /// One for each view of the mixture.
    sources: Vec<LoaderSource>,
    mixture: Mixture,
    batch_size: u32,
    shuffle: ShuffleMode,
    seed: u64,
    rank: u32,
    world: u32,
    worker: u32,
    workers: u32,
    last: Last,
    tensors: Option<Vec<String>>,
    decode: Vec<(String, Decode)>,
    skip_bad: bool,
    samples: Option<Range<u64>>,
    prefetch: usize,
    resume: Option<LoaderState>,
    locality: Option<Locality>,
    rank_hosts: RankHosts,
    quiet: bool,
    job: String,
    unannounced: bool,
}

impl LoaderBuilder {
    /// A loader of a mixture. Each of its views has one source.
    pub(crate) fn new(sources: Vec<LoaderSource>, mixture: Mixture) -> Self {
        Self {
            sources,
            mixture,
            batch_size: BATCH_SIZE_DEFAULT,
            shuffle: ShuffleMode::Auto,
            seed: 0,
            rank: 0,
            world: 1,
            worker: 0,
            workers: 1,
            last: Last::Drop,
            tensors: None,
            decode: Vec::new(),
            skip_bad: false,
            samples: None,
            prefetch: limits::PREFETCH_DEPTH_DEFAULT,
            resume: None,
            locality: None,
            rank_hosts: RankHosts::default(),
            quiet: false,
            job: String::new(),
            unannounced: false,
        }
    }

    /// Samples per batch on each rank: 1 to 65,536, 256 by default.
    pub fn batch_size(self, samples: u32) -> Self {
        Self { batch_size: samples, ..self }
    }

    /// Sets how far samples are shuffled. Default: [`ShuffleMode::Auto`].
    pub fn shuffle(self, shuffle: impl Into<ShuffleMode>) -> Self {
        Self { shuffle: shuffle.into(), ..self }
    }

    /// The seed of the order, 0 by default. All ranks set the same.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The rank of this process and the number of ranks, 0 of 1 by default. Each sample comes on
    /// one rank.
    pub fn rank(self, rank: u32, world: u32) -> Self {
        Self { rank, world, ..self }
    }

    /// The index of this loader and the number of loaders that divide the rank's batches, 0 of 1 by
    /// default. One batch from each in turn, worker 0 first, gives the order of a single loader.
    /// The state of a batch covers the other workers' earlier batches too. A worker that resumes
    /// from its own state therefore takes the last turn.
    pub fn worker(self, worker: u32, workers: u32) -> Self {
        Self { worker, workers, ..self }
    }

    /// Sets how an incomplete last batch is treated. Default: [`Last::Drop`].
    pub fn last(self, last: Last) -> Self {
        Self { last, ..self }
    }

    /// The tensors of a batch, in this order. Default: the columns of the dataset. All datasets of
    /// a mixture must have them with the same elements and shape. Default for a mixture: the
    /// tensors that all datasets have.
    pub fn tensors<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { tensors: Some(names), ..self }
    }

    /// Decodes the rows of a tensor on the loader's threads, straight into the batch. Its rows are
    /// encoded files; they become rows of one shape. Each of the threads that fetch ahead decodes
    /// a batch of its own, so set [`prefetch`](Self::prefetch) to the number of cores. Random crops
    /// depend on seed, epoch and sample alone.
    pub fn decode(mut self, tensor: impl Into<String>, decode: impl Into<Decode>) -> Self {
        self.decode.push((tensor.into(), decode.into()));
        self
    }

    /// Skips samples that can't be decoded. The next good sample of the batch stands for each, and
    /// they are [counted](crate::LoaderStats::skipped). By default they are an error.
    pub fn skip_bad(self) -> Self {
        Self { skip_bad: true, ..self }
    }

    /// Selects samples of this range of the dataset or its view. Default: all. Not for mixtures:
    /// select from the datasets before they are mixed, by
    /// [`Dataset::select`](crate::Dataset::select).
    pub fn samples(self, samples: Range<u64>) -> Self {
        Self { samples: Some(samples), ..self }
    }

    /// How many batches are fetched ahead at once, each on its own thread: 1 to 64, 2 by default.
    /// Two keep a network busy. More help if fetching times vary, and each costs the memory of a
    /// batch. Beside these, up to 8 MiB of batches and at most eight may lie ready.
    pub fn prefetch(self, batches: usize) -> Self {
        Self { prefetch: batches, ..self }
    }

    /// Continues at a saved state. Seed and shuffle are then those of the state, and the settings
    /// here are ignored. Batch size, rank and world may differ from those of the state.
    pub fn resume(self, state: LoaderState) -> Self {
        Self { resume: Some(state), ..self }
    }

    /// Divides each global batch among the ranks by the location of its rows. Each rank then reads
    /// as many rows as possible from the memory of its own host. By default each rank reads a
    /// consecutive slice. The samples of a global batch, states and digests stay the same. A state
    /// can continue with another locality, or without one.
    ///
    /// All ranks must use the same locality, or rows are lost and repeated. So one process makes it
    /// and hands it to all; see [`Loader::pass_name`]. Each rank orders the whole global batch to
    /// find its part. This takes 50 to 90 ns a row on the threads that fetch ahead.
    pub fn locality(self, locality: Locality) -> Self {
        Self { locality: Some(locality), ..self }
    }

    /// The hosts of the ranks, by which several ranks resolve [`ShuffleMode::Auto`]. All ranks set
    /// the same. Default: [`RankHosts::Unknown`].
    pub fn rank_hosts(self, hosts: RankHosts) -> Self {
        Self { rank_hosts: hosts, ..self }
    }

    /// Warns of nothing. For a further loader of a job that has warned already. By default, rank 0
    /// warns if the data does not fit the memory of the nodes.
    pub fn quiet(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Names the job in listings of the nodes, by at most 64 bytes. Loaders with different names
    /// never count as ranks of one job.
    pub fn job(self, name: impl Into<String>) -> Self {
        Self { job: name.into(), ..self }
    }

    /// Tells the nodes nothing of the order. They then keep the shards that they have, and fetch
    /// nothing ahead. The variable `LARDER_PLANS=off` does so for all loaders of a process.
    pub fn unannounced(self) -> Self {
        Self { unannounced: true, ..self }
    }

    /// Builds the loader. Asks the cluster for its memory if the shuffle is `auto`, and on rank 0.
    /// Reads no row.
    ///
    /// # Errors
    /// - `InvalidArgument` for a setting out of range, no tensor, a locality of other ranks or
    ///   datasets, or a state of another dataset or selection.
    /// - `InvalidArgument` for a tensor to decode whose rows are not encoded, or not in the batch.
    /// - `NotFound` for a missing tensor.
    /// - `Unavailable` if `auto` can't be decided.
    pub fn build(self) -> Result<Loader, Error> {
        let (batch_size, world, lane) = self.check()?;
        let layout = self.layout()?;
        let shuffle = self.resolve_shuffle()?;
        let job = LoaderJob {
            mixture: self.mixture()?,
            seed: self.seed,
            shuffle,
            batch_size,
            world,
            rank: self.rank,
            lane,
            last: self.last,
            divider: self.divider()?,
        };
        let ahead = Ahead { threads: self.prefetch, ready: ready_ahead(&layout) };
        // One for each batch fetched ahead, and one in use.
        let buffers = BufferPool::new(ahead.threads + ahead.ready + 1);
        let decoding = self.decoding(&layout, ahead.threads)?;
        let sources = self.sources;
        let snapshot = |source| SnapshotRows::new(source, &layout);
        let snapshots = sources.iter().map(snapshot).collect::<Result<_, _>>()?;
        let fetcher = Arc::new(BatchFetcher { snapshots, layout, buffers, decoding });
        let announced = |pass: &_| {
            let announces = !self.unannounced;
            let read = sources.iter();
            let read = read.map(|one| (one.cluster.clone(), one.manifest().snapshot()));
            announces.then(|| AnnouncedJob::new(&self.job, read, pass)).flatten()
        };
        let mut loader = Loader::new(job, fetcher, ahead, announced)?;
        self.resume.map_or(Ok(()), |state| loader.resume(state))?;
        Ok(loader)
    }

    /// The layout of a batch. All datasets have its tensors.
    fn layout(&self) -> Result<Arc<BatchLayout>, Error> {
        let mut manifests = self.sources.iter().map(LoaderSource::manifest);
        let first = manifests.next().expect("a loader has a source");
        let names = match &self.tensors {
            Some(names) => names.clone(),
            None => self.columns()?,
        };
        for (name, _) in &self.decode {
            layout::tensor_index(first, name)?;
            if !names.contains(name) {
                let why = format!("tensor '{name}' is to be decoded and not in the batch");
                return Err(invalid(why).hint("add it to tensors, or leave it out of decode"));
            }
        }
        let decode = |name: &str| {
            let found = self.decode.iter().find(|(own, _)| own == name);
            found.map(|(_, decode)| *decode)
        };
        let layout = BatchLayout::decoded(first, Some(&names), self.batch_size, decode)?;
        for other in manifests {
            let context = || format!("cannot mix {} with {}", first.uri(), other.uri());
            layout.tensors_in(other).map_err(|error| error.context(context()))?;
        }
        Ok(layout)
    }

    /// The columns of a batch by default: those that all datasets have, and none leaves out.
    fn columns(&self) -> Result<Vec<String>, Error> {
        let mut manifests = self.sources.iter().map(LoaderSource::manifest);
        let first = manifests.next().expect("a loader has a source");
        let mut names = layout::common_tensors(first, manifests)?;
        for chosen in self.sources.iter().filter_map(|source| source.columns.as_deref()) {
            names = chosen.iter().filter(|name| names.contains(name)).cloned().collect();
        }
        Ok(names)
    }

    /// The decoding of columns of this layout, if there are any, on so many threads.
    fn decoding(
        &self,
        layout: &BatchLayout,
        threads: usize,
    ) -> Result<Option<Box<Decoding>>, Error> {
        let columns: Box<[_]> = layout.columns().iter().map(|column| column.decode).collect();
        if columns.iter().all(Option::is_none) {
            return Ok(None);
        }
        let encoded = layout.columns().iter().filter(|column| column.decode.is_some());
        let names: Vec<String> = encoded.map(|column| column.name.to_string()).collect();
        let manifest = self.sources[0].manifest();
        let layout = BatchLayout::new(manifest, Some(&names), self.batch_size)?;
        let snapshot = |source| SnapshotRows::new(source, &layout);
        let snapshots = self.sources.iter().map(snapshot).collect::<Result<_, _>>()?;
        let buffers = BufferPool::new(threads);
        let encoded = BatchFetcher { snapshots, layout, buffers, decoding: None };
        Ok(Some(Box::new(Decoding::new(encoded, columns, self.skip_bad))))
    }

    /// The samples of the job.
    fn mixture(&self) -> Result<Mixture, Error> {
        let Some(range) = self.samples.clone() else { return Ok(self.mixture.clone()) };
        let view = self.mixture.single_view().ok_or_else(|| {
            invalid("a range of samples of a mixture")
                .hint("select from the datasets before they are mixed")
        })?;
        Ok(Mixture::single(view.select(range)?))
    }

    fn divider(&self) -> Result<Option<Arc<Divider>>, Error> {
        let Some(locality) = self.locality.clone() else { return Ok(None) };
        let manifests = self.sources.iter().map(LoaderSource::manifest);
        Divider::new(locality, self.world, manifests).map(|divider| Some(Arc::new(divider)))
    }

    /// The shuffle of the job. Rank 0 warns if the data does not fit the memory of the nodes.
    fn resolve_shuffle(&self) -> Result<Shuffle, Error> {
        let fixed = match (self.resume, self.shuffle) {
            (Some(state), _) => Some(state.pass_id().shuffle()),
            (None, ShuffleMode::Fixed(shuffle)) => Some(shuffle),
            (None, ShuffleMode::Auto) => None,
        };
        let warns = self.rank == 0 && !self.quiet;
        if let (Some(shuffle), false) = (fixed, warns) {
            return Ok(shuffle);
        }
        let extent = self.sources.iter().zip(self.mixture.views());
        let extent = extent.map(|(source, view)| Extent::of(source.manifest(), view));
        let extent = extent.fold(Extent::default(), Extent::with);
        let (pools, world, hosts) = (self.pools(), self.world, self.rank_hosts);
        let shuffle = match fixed {
            Some(shuffle) => shuffle,
            None => shuffle::auto(extent, &pools, world, hosts)?,
        };
        if warns {
            let auto = fixed.is_none();
            let of_hosts =
                auto.then(|| shuffle::warn_of_hosts(shuffle, extent, &pools, world, hosts));
            let of_memory = shuffle::warn_of_memory(extent, &pools, shuffle, auto);
            for warning in of_hosts.flatten().into_iter().chain(of_memory) {
                tracing::warn!("{warning}");
            }
        }
        Ok(shuffle)
    }

    /// The memory of each cluster of the datasets.
    fn pools(&self) -> Vec<Pool> {
        let mut pools = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let same = |other: &LoaderSource| match (&other.cluster, &source.cluster) {
                (Some(other), Some(cluster)) => Arc::ptr_eq(other, cluster),
                (None, None) => true,
                _ => false,
            };
            if !self.sources[..index].iter().any(same) {
                pools.push(Pool::of(source.cluster.as_deref()));
            }
        }
        pools
    }

    /// Validates the numbers, and returns batch size, world and lane.
    fn check(&self) -> Result<(NonZeroU32, NonZeroU32, Lane), Error> {
        let batch_size = NonZeroU32::new(self.batch_size)
            .ok_or_else(|| invalid("the batch size is 0 where at least 1 is needed"))?;
        layout::check_rows(self.batch_size)?;
        let world = NonZeroU32::new(self.world)
            .ok_or_else(|| invalid("the world size is 0 where at least 1 is needed"))?;
        if self.rank >= self.world {
            let (rank, world) = (self.rank, self.world);
            return Err(invalid(format!("rank {rank} is not below the world size {world}"))
                .hint("ranks count from 0"));
        }
        let lane = self.lane()?;
        if self.job.len() > limits::JOB_NAME_BYTES_MAX {
            let (bytes, max) = (self.job.len(), limits::JOB_NAME_BYTES_MAX);
            return Err(invalid(format!(
                "the name of the job has {bytes} bytes; at most {max} fit"
            )));
        }
        let limit = limits::PREFETCH_DEPTH_MAX;
        if !(1..=limit).contains(&self.prefetch) {
            let found = self.prefetch;
            return Err(invalid(format!("{found} batches ahead where 1 to {limit} are possible")));
        }
        Ok((batch_size, world, lane))
    }

    fn lane(&self) -> Result<Lane, Error> {
        let Self { worker, workers, .. } = *self;
        match NonZeroU32::new(workers) {
            Some(count) if worker < workers => Ok(Lane { index: worker, count }),
            _ => Err(invalid(format!(
                "worker {worker} is not below the number of workers {workers}"
            ))
            .hint("workers count from 0")),
        }
    }
}

/// The number of batches that may lie ready. Fetching a small batch takes less time than waking a
/// thread, so threads that wait after each small batch would mostly wait.
fn ready_ahead(layout: &BatchLayout) -> usize {
    const BYTES: usize = 8 << 20;
    const BATCHES: usize = 8;
    if layout.is_ragged() {
        return 0;
    }
    (BYTES / layout.buffer_bytes().max(1)).min(BATCHES)
}

impl fmt::Debug for LoaderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderBuilder")
            .field("mixture", &self.mixture)
            .field("batch_size", &self.batch_size)
            .field("shuffle", &self.shuffle)
            .field("seed", &self.seed)
            .field("rank", &self.rank)
            .field("world", &self.world)
            .field("resume", &self.resume)
            .finish_non_exhaustive()
    }
}
