//! The settings of a loader, as asked for and then checked.

use std::{fmt, num::NonZeroU32, ops::Range, sync::Arc};

use larder_base::limits;
use larder_dataset::Manifest;

use super::{
    Loader, ShuffleMode,
    content::Content,
    divider::Divider,
    epoch::Ahead,
    fetch::{BatchFetcher, Gather, Look, Mapped, SnapshotRows},
    layout::{self, Layout, invalid},
    pass::{Job, Lane},
    shuffle::{Extent, narrower, resolve_auto},
};
use crate::{
    Cluster, Error, Locality,
    memory::BufferPool,
    sampler::{Last, LoaderState, Mixture, Shuffle, View},
};

/// Samples of a batch when the caller does not say.
const BATCH_SIZE_DEFAULT: u32 = 256;

/// A dataset, as a loader needs it.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) manifest: Manifest,
    pub(crate) view: View,
    pub(crate) gather: Arc<Gather>,
    /// Absent when rows are to be gathered always.
    pub(crate) look: Option<Arc<Look>>,
    /// Absent when nothing is to be read where it lies.
    pub(crate) mapped: Option<Arc<Mapped>>,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

/// Settings of a [`Loader`]; made by [`Dataset::loader`](crate::Dataset::loader) and
/// [`Mixture::loader`](crate::Mixture::loader). All have defaults.
#[must_use = "nothing is loaded before build()"]
pub struct LoaderBuilder {
    /// One without a mixture.
    sources: Vec<Source>,
    mixture: Option<Mixture>,
    batch_size: u32,
    shuffle: ShuffleMode,
    seed: u64,
    rank: u32,
    world: u32,
    worker: u32,
    workers: u32,
    last: Last,
    tensors: Option<Vec<String>>,
    samples: Option<Range<u64>>,
    prefetch: usize,
    resume: Option<LoaderState>,
    locality: Option<Locality>,
}

impl LoaderBuilder {
    /// A loader of a dataset.
    pub(crate) fn new(source: Source) -> Self {
        Self::of(vec![source], None)
    }

    /// A loader of a mixture of datasets, one for each view it has.
    pub(crate) fn mixed(sources: Vec<Source>, mixture: Mixture) -> Self {
        Self::of(sources, Some(mixture))
    }

    fn of(sources: Vec<Source>, mixture: Option<Mixture>) -> Self {
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
            samples: None,
            prefetch: limits::PREFETCH_DEPTH_DEFAULT,
            resume: None,
            locality: None,
        }
    }

    /// Samples of a batch on each rank: 1 to 65,536, by default 256.
    pub fn batch_size(self, samples: u32) -> Self {
        Self { batch_size: samples, ..self }
    }

    /// How far samples are shuffled: by default [`ShuffleMode::Auto`].
    pub fn shuffle(self, shuffle: impl Into<ShuffleMode>) -> Self {
        Self { shuffle: shuffle.into(), ..self }
    }

    /// Names the order, together with the epoch: by default 0. The same on all ranks.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Which of how many ranks this is: by default 0 of 1. Each sample comes on one rank.
    pub fn rank(self, rank: u32, world: u32) -> Self {
        Self { rank, world, ..self }
    }

    /// Which of how many loaders this is that divide the rank's batches: by default 0 of 1. Taken
    /// from them in turn, worker 0 first, batches come in the order of a loader that is alone. A
    /// batch's state is that of a job which also used the other workers' batches before it, so that
    /// the worker itself resumes as the last one: the others are due first.
    pub fn worker(self, worker: u32, workers: u32) -> Self {
        Self { worker, workers, ..self }
    }

    /// What becomes of the last batch when it is not full: by default [`Last::Drop`].
    pub fn last(self, last: Last) -> Self {
        Self { last, ..self }
    }

    /// Which tensors a batch has, in this order: by default all of the dataset's. The datasets of a
    /// mixture must have the same, with the same elements and shape; by default those that all
    /// have.
    pub fn tensors<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { tensors: Some(names), ..self }
    }

    /// Only samples of this range of the dataset's (of its view, if it is one): by default all.
    /// What is mixed is selected from before: see [`Dataset::select`](crate::Dataset::select).
    pub fn samples(self, samples: Range<u64>) -> Self {
        Self { samples: Some(samples), ..self }
    }

    /// How many batches are fetched at once ahead, each on a thread of its own: 1 to 64, by default
    /// 2. Two keep a network busy; more help where fetching times vary, and cost a batch of memory
    /// each. Batches of up to 8 MiB also lie ready beside those, 8 MiB of them and at most eight.
    pub fn prefetch(self, batches: usize) -> Self {
        Self { prefetch: batches, ..self }
    }

    /// Goes on where a saved state stands. Seed and shuffle are then those of the state, whatever
    /// is set here; batch size, rank and world may differ from those it was saved with.
    pub fn resume(self, state: LoaderState) -> Self {
        Self { resume: Some(state), ..self }
    }

    /// Divides each global batch among the ranks by where its rows are held, so that each rank
    /// reads as many as can be from the memory of its own host; by default in consecutive slices.
    /// The samples of a global batch, states and digests stay the same, and a state goes on with
    /// another locality or with none.
    ///
    /// All ranks must have the same one, or rows are lost and repeated: it is made by one process,
    /// and handed to all. See [`Loader::pass_name`]. To find its part each rank puts the whole
    /// global batch in order: some 50 to 90 ns a row, on the threads that fetch ahead.
    pub fn locality(self, locality: Locality) -> Self {
        Self { locality: Some(locality), ..self }
    }

    /// The loader. Asks the cluster for its memory if the shuffle is `auto`; no row is read yet.
    ///
    /// # Errors
    /// `InvalidArgument` for a setting out of its range, a tensor that is not there, no tensor at all, a locality
    /// of other ranks or datasets, or a state of another dataset or selection; `Unavailable` when `auto` can't be decided.
    pub fn build(self) -> Result<Loader, Error> {
        let (batch_size, world, lane) = self.check()?;
        let layout = self.layout()?;
        let job = Job {
            content: self.content()?,
            seed: self.seed,
            shuffle: match (self.resume, self.shuffle) {
                (Some(state), _) => state.plan().shuffle(),
                (None, ShuffleMode::Fixed(shuffle)) => shuffle,
                (None, ShuffleMode::Auto) => self.auto()?,
            },
            batch_size,
            world,
            rank: self.rank,
            lane,
            last: self.last,
            divider: self.divider()?,
        };
        let ahead = Ahead { threads: self.prefetch, ready: ready_ahead(&layout) };
        // One more than are fetched ahead: the one in use.
        let buffers = BufferPool::new(ahead.threads + ahead.ready + 1);
        let snapshot = |Source { manifest, gather, look, mapped, .. }: Source| {
            SnapshotRows::new(manifest, gather, look, mapped, &layout)
        };
        let snapshots = self.sources.into_iter().map(snapshot).collect::<Result<_, _>>()?;
        let fetcher = Arc::new(BatchFetcher { snapshots, layout, buffers });
        let mut loader = Loader::new(job, fetcher, ahead)?;
        self.resume.map_or(Ok(()), |state| loader.resume(state))?;
        Ok(loader)
    }

    /// The tensors of a batch; all datasets have them.
    fn layout(&self) -> Result<Arc<Layout>, Error> {
        let mut manifests = self.sources.iter().map(|source| &source.manifest);
        let first = manifests.next().expect("a loader has a source");
        let names = match &self.tensors {
            Some(names) => names.clone(),
            None => layout::common_tensors(first, manifests.clone())?,
        };
        let layout = Layout::new(first, Some(&names), self.batch_size)?;
        for other in manifests {
            let context = || format!("cannot mix {} with {}", first.uri(), other.uri());
            layout.tensors_in(other).map_err(|error| error.context(context()))?;
        }
        Ok(layout)
    }

    fn content(&self) -> Result<Content, Error> {
        match (&self.mixture, &self.samples) {
            (Some(_), Some(_)) => Err(invalid("a range of samples of a mixture")
                .hint("select from the datasets before they are mixed")),
            (Some(mixture), None) => Ok(Content::Mixed(mixture.clone())),
            (None, Some(range)) => Ok(Content::One(self.sources[0].view.select(range.clone())?)),
            (None, None) => Ok(Content::One(self.sources[0].view.clone())),
        }
    }

    fn divider(&self) -> Result<Option<Arc<Divider>>, Error> {
        let Some(locality) = self.locality.clone() else { return Ok(None) };
        let manifests = self.sources.iter().map(|source| &source.manifest);
        Divider::new(locality, self.world, manifests).map(|divider| Some(Arc::new(divider)))
    }

    /// What `auto` comes to: for several datasets the least that any of their clusters bears. The
    /// node of a host counts for one rank only: of several some may be on another host, whose node
    /// has other memory.
    fn auto(&self) -> Result<Shuffle, Error> {
        let extent = self.sources.iter().map(|source| Extent::of(&source.manifest, &source.view));
        let extent = extent.fold(Extent::default(), Extent::with);
        let mut shuffle = Shuffle::Global;
        for (index, source) in self.sources.iter().enumerate() {
            let same = |other: &Source| match (&other.cluster, &source.cluster) {
                (Some(other), Some(cluster)) => Arc::ptr_eq(other, cluster),
                (None, None) => true,
                _ => false,
            };
            if !self.sources[..index].iter().any(same) {
                let shared = |cluster: &&Arc<Cluster>| self.world == 1 || cluster.host().is_none();
                let memory = source.cluster.as_ref().filter(shared).map(|cluster| cluster.memory());
                shuffle = narrower(shuffle, resolve_auto(extent, memory, self.world)?);
            }
        }
        Ok(shuffle)
    }

    /// Checks the numbers; what is left is batch size, world and lane.
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

/// How many batches may lie ready. Small ones are fetched in less time than it takes to wake a
/// thread up, so threads that wait for each to be taken would mostly wait.
fn ready_ahead(layout: &Layout) -> usize {
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
            .field("views", &self.sources.iter().map(|source| &source.view).collect::<Vec<_>>())
            .field("mixture", &self.mixture)
            .field("batch_size", &self.batch_size)
            .field("shuffle", &self.shuffle)
            .field("seed", &self.seed)
            .field("rank", &self.rank)
            .field("world", &self.world)
            .field("worker", &self.worker)
            .field("workers", &self.workers)
            .field("last", &self.last)
            .field("tensors", &self.tensors)
            .field("samples", &self.samples)
            .field("prefetch", &self.prefetch)
            .field("resume", &self.resume)
            .field("locality", &self.locality)
            .finish_non_exhaustive()
    }
}
