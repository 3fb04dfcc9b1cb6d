//! The options of a loader, as its caller sets them: by methods of the builder, or by JSON.
//!
//! An option is a field of [`LoaderOptions`], its default, and a method of [`LoaderBuilder`]. JSON
//! names it by its field. Thread rule: plain values. Non-goals: the use of an option, which is in
//! `builder`, and values that have no text, such as a locality.

use std::{fmt, num::NonZeroU32, str::FromStr};

use larder_base::limits;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::LoaderBuilder;
use crate::{
    Error, ShuffleMode,
    loader::{
        batch::layout::{self, Decode, invalid},
        order::{Lane, shuffle::RankHosts},
    },
    sampler::Last,
};

/// Options of a [`Loader`](crate::Loader), all with defaults. The methods of [`LoaderBuilder`]
/// describe them.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderOptions {
    pub(super) batch_size: u32,
    #[serde(deserialize_with = "parsed")]
    pub(super) shuffle: ShuffleMode,
    pub(super) seed: u64,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) worker: u32,
    pub(super) workers: u32,
    #[serde(deserialize_with = "parsed")]
    pub(super) last: Last,
    pub(super) tensors: Option<Vec<String>>,
    pub(super) decode: Vec<(String, Decode)>,
    pub(super) skip_bad: bool,
    pub(super) prefetch: usize,
    pub(super) rank_hosts: RankHosts,
    pub(super) quiet: bool,
    pub(super) job: String,
    pub(super) unannounced: bool,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 256,
            shuffle: ShuffleMode::Auto,
            seed: 0,
            rank: 0,
            world_size: 1,
            worker: 0,
            workers: 1,
            last: Last::Drop,
            tensors: None,
            decode: Vec::new(),
            skip_bad: false,
            prefetch: limits::PREFETCH_DEPTH_DEFAULT,
            rank_hosts: RankHosts::Unknown,
            quiet: false,
            job: String::new(),
            unannounced: false,
        }
    }
}

impl LoaderOptions {
    /// Reads options from a JSON object. An option that it lacks has its default.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown option, and for a value that an option can't have.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let read = |options: Map<String, Value>| serde_json::from_value(Value::Object(options));
        let given: Map<String, Value> = serde_json::from_str(json)
            .map_err(|error| invalid("the options are no JSON object").with_source(error))?;
        // serde does not name the option that it can't read, so each is read alone.
        for (name, value) in &given {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            let refused = |error| invalid(format!("{name} can't be read")).with_source(error);
            read(alone).map(|_: Self| ()).map_err(refused)?;
        }
        read(given).map_err(|error| invalid("the options can't be read").with_source(error))
    }

    /// Validates the numbers, and returns batch size, world and lane.
    pub(super) fn check(&self) -> Result<(NonZeroU32, NonZeroU32, Lane), Error> {
        let batch_size = NonZeroU32::new(self.batch_size)
            .ok_or_else(|| invalid("the batch size is 0 where at least 1 is needed"))?;
        layout::check_rows(self.batch_size)?;
        let world = NonZeroU32::new(self.world_size)
            .ok_or_else(|| invalid("the world size is 0 where at least 1 is needed"))?;
        if self.rank >= self.world_size {
            let (rank, world) = (self.rank, self.world_size);
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

/// Reads a value from its text.
fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// The methods that set options.
impl LoaderBuilder {
    fn set(mut self, set: impl FnOnce(&mut LoaderOptions)) -> Self {
        set(&mut self.options);
        self
    }

    /// Sets all options anew.
    pub fn options(self, options: LoaderOptions) -> Self {
        Self { options, ..self }
    }

    /// Samples per batch on each rank: 1 to 65,536, 256 by default.
    pub fn batch_size(self, samples: u32) -> Self {
        self.set(|options| options.batch_size = samples)
    }

    /// Sets how far samples are shuffled. Default: [`ShuffleMode::Auto`].
    pub fn shuffle(self, shuffle: impl Into<ShuffleMode>) -> Self {
        self.set(|options| options.shuffle = shuffle.into())
    }

    /// The seed of the order, 0 by default. All ranks set the same.
    pub fn seed(self, seed: u64) -> Self {
        self.set(|options| options.seed = seed)
    }

    /// The rank of this process and the number of ranks, 0 of 1 by default. Each sample comes on
    /// one rank.
    pub fn rank(self, rank: u32, world: u32) -> Self {
        self.set(|options| (options.rank, options.world_size) = (rank, world))
    }

    /// The index of this loader and the number of loaders that divide the rank's batches, 0 of 1 by
    /// default. One batch from each in turn, worker 0 first, gives the order of a single loader.
    /// The state of a batch covers the other workers' earlier batches too. A worker that resumes
    /// from its own state therefore takes the last turn.
    pub fn worker(self, worker: u32, workers: u32) -> Self {
        self.set(|options| (options.worker, options.workers) = (worker, workers))
    }

    /// Sets how an incomplete last batch is treated. Default: [`Last::Drop`].
    pub fn last(self, last: Last) -> Self {
        self.set(|options| options.last = last)
    }

    /// The tensors of a batch, in this order. Default: the columns of the dataset. All datasets of
    /// a mixture must have them with the same elements and shape. Default for a mixture: the
    /// tensors that all datasets have.
    pub fn tensors<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.set(|options| options.tensors = Some(names))
    }

    /// Decodes the rows of a tensor on the loader's threads, straight into the batch. Its rows are
    /// encoded files; they become rows of one shape. Each of the threads that fetch ahead decodes
    /// a batch of its own, so set [`prefetch`](Self::prefetch) to the number of cores. Random crops
    /// depend on seed, epoch and sample alone.
    pub fn decode(self, tensor: impl Into<String>, decode: impl Into<Decode>) -> Self {
        self.set(|options| options.decode.push((tensor.into(), decode.into())))
    }

    /// Skips samples that can't be decoded. The next good sample of the batch stands for each, and
    /// they are [counted](crate::LoaderStats::skipped). By default they are an error.
    pub fn skip_bad(self) -> Self {
        self.set(|options| options.skip_bad = true)
    }

    /// How many batches are fetched ahead at once, each on its own thread: 1 to 64, 2 by default.
    /// Two keep a network busy. More help if fetching times vary, and each costs the memory of a
    /// batch. Beside these, up to 8 MiB of batches and at most eight may lie ready.
    pub fn prefetch(self, batches: usize) -> Self {
        self.set(|options| options.prefetch = batches)
    }

    /// The hosts of the ranks, by which several ranks resolve [`ShuffleMode::Auto`]. All ranks set
    /// the same. Default: [`RankHosts::Unknown`].
    pub fn rank_hosts(self, hosts: RankHosts) -> Self {
        self.set(|options| options.rank_hosts = hosts)
    }

    /// Warns of nothing. For a further loader of a job that has warned already. By default, rank 0
    /// warns if the data does not fit the memory of the nodes.
    pub fn quiet(self) -> Self {
        self.set(|options| options.quiet = true)
    }

    /// Names the job in listings of the nodes, by at most 64 bytes. Loaders with different names
    /// never count as ranks of one job.
    pub fn job(self, name: impl Into<String>) -> Self {
        self.set(|options| options.job = name.into())
    }

    /// Tells the nodes nothing of the order. They then keep the shards that they have, and fetch
    /// nothing ahead. The variable `LARDER_PLANS=off` does so for all loaders of a process.
    pub fn unannounced(self) -> Self {
        self.set(|options| options.unannounced = true)
    }
}
