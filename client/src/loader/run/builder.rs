//! Builds a loader from its options: the layout of its batches, its order, and its threads.

mod options;

use std::{fmt, ops::Range, sync::Arc};

use super::epoch::{Ahead, AnnouncedJob};
use crate::{
    Error, Loader, Locality, ShuffleMode,
    loader::{
        batch::{
            BatchFetcher, Decoding, LoaderSource, SnapshotRows,
            layout::{self, BatchLayout, invalid},
        },
        order::{
            Divider, LoaderJob,
            shuffle::{self, Extent, Pool},
        },
    },
    memory::BufferPool,
    sampler::{LoaderState, Mixture, Shuffle},
};

pub use options::LoaderOptions;

/// Settings of a [`Loader`], all with defaults. Created by
/// [`Dataset::loader`](crate::Dataset::loader) and [`Mixture::loader`](crate::Mixture::loader).
#[must_use = "nothing is loaded before build()"]
pub struct LoaderBuilder {
    /// One for each view of the mixture.
    sources: Vec<LoaderSource>,
    mixture: Mixture,
    options: LoaderOptions,
    samples: Option<Range<u64>>,
    resume: Option<LoaderState>,
    locality: Option<Locality>,
}

impl LoaderBuilder {
    /// A loader of a mixture. Each of its views has one source.
    pub(crate) fn new(sources: Vec<LoaderSource>, mixture: Mixture) -> Self {
        Self {
            sources,
            mixture,
            options: LoaderOptions::default(),
            samples: None,
            resume: None,
            locality: None,
        }
    }

    /// Selects samples of this range of the dataset or its view. Default: all. Not for mixtures:
    /// select from the datasets before they are mixed, by
    /// [`Dataset::select`](crate::Dataset::select).
    pub fn samples(self, samples: Range<u64>) -> Self {
        Self { samples: Some(samples), ..self }
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
        let (batch_size, world, lane) = self.options.check()?;
        let layout = self.layout()?;
        let shuffle = self.resolve_shuffle()?;
        let job = LoaderJob {
            mixture: self.mixture()?,
            seed: self.options.seed,
            shuffle,
            batch_size,
            world,
            rank: self.options.rank,
            lane,
            last: self.options.last,
            divider: self.divider()?,
        };
        let ahead = Ahead { threads: self.options.prefetch, ready: ready_ahead(&layout) };
        // One for each batch fetched ahead, and one in use.
        let buffers = BufferPool::new(ahead.threads + ahead.ready + 1);
        let decoding = self.decoding(&layout, ahead.threads)?;
        let sources = self.sources;
        let snapshot = |source| SnapshotRows::new(source, &layout);
        let snapshots = sources.iter().map(snapshot).collect::<Result<_, _>>()?;
        let fetcher = Arc::new(BatchFetcher { snapshots, layout, buffers, decoding });
        let announced = |pass: &_| {
            let announces = !self.options.unannounced;
            let read = sources.iter();
            let read = read.map(|one| (one.cluster.clone(), one.manifest().snapshot()));
            announces.then(|| AnnouncedJob::new(&self.options.job, read, pass)).flatten()
        };
        let mut loader = Loader::new(job, fetcher, ahead, announced)?;
        self.resume.map_or(Ok(()), |state| loader.resume(state))?;
        Ok(loader)
    }

    /// The layout of a batch. All datasets have its tensors.
    fn layout(&self) -> Result<Arc<BatchLayout>, Error> {
        let mut manifests = self.sources.iter().map(LoaderSource::manifest);
        let first = manifests.next().expect("a loader has a source");
        let names = match &self.options.tensors {
            Some(names) => names.clone(),
            None => self.columns()?,
        };
        for (name, _) in &self.options.decode {
            layout::tensor_index(first, name)?;
            if !names.contains(name) {
                let why = format!("tensor '{name}' is to be decoded and not in the batch");
                return Err(invalid(why).hint("add it to tensors, or leave it out of decode"));
            }
        }
        let decode = |name: &str| {
            let found = self.options.decode.iter().find(|(own, _)| own == name);
            found.map(|(_, decode)| *decode)
        };
        let layout = BatchLayout::decoded(first, Some(&names), self.options.batch_size, decode)?;
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
        let layout = BatchLayout::new(manifest, Some(&names), self.options.batch_size)?;
        let snapshot = |source| SnapshotRows::new(source, &layout);
        let snapshots = self.sources.iter().map(snapshot).collect::<Result<_, _>>()?;
        let buffers = BufferPool::new(threads);
        let encoded = BatchFetcher { snapshots, layout, buffers, decoding: None };
        Ok(Some(Box::new(Decoding::new(encoded, columns, self.options.skip_bad))))
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
        Divider::new(locality, self.options.world_size, manifests)
            .map(|divider| Some(Arc::new(divider)))
    }

    /// The shuffle of the job. Rank 0 warns if the data does not fit the memory of the nodes.
    fn resolve_shuffle(&self) -> Result<Shuffle, Error> {
        let fixed = match (self.resume, self.options.shuffle) {
            (Some(state), _) => Some(state.pass_id().shuffle()),
            (None, ShuffleMode::Fixed(shuffle)) => Some(shuffle),
            (None, ShuffleMode::Auto) => None,
        };
        let warns = self.options.rank == 0 && !self.options.quiet;
        if let (Some(shuffle), false) = (fixed, warns) {
            return Ok(shuffle);
        }
        let manifests = self.sources.iter().map(LoaderSource::manifest);
        let extent = Extent::of(manifests.zip(self.mixture.views()));
        let (pools, world, hosts) =
            (self.pools(), self.options.world_size, self.options.rank_hosts);
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
            .field("options", &self.options)
            .field("resume", &self.resume)
            .finish_non_exhaustive()
    }
}
