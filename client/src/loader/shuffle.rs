//! Resolves the shuffle `auto`.

use std::{fmt, str::FromStr};

use larder_dataset::Manifest;

use crate::{
    ClusterMemory, Error, ErrorKind,
    sampler::{self, Shuffle, View, WINDOW_SHARDS_DEFAULT},
};

/// How far samples are shuffled, as set by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShuffleMode {
    /// All samples if the dataset fits into the memory of the cluster, otherwise a window of
    /// shards. Several ranks that each use their host's node take a window of 64. Decided once,
    /// when the loader is built.
    #[default]
    Auto,
    /// This shuffle.
    Fixed(Shuffle),
}

impl From<Shuffle> for ShuffleMode {
    fn from(shuffle: Shuffle) -> Self {
        Self::Fixed(shuffle)
    }
}

impl fmt::Display for ShuffleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(shuffle) => shuffle.fmt(f),
        }
    }
}

impl FromStr for ShuffleMode {
    type Err = sampler::Error;

    /// Parses `auto`, or a [`Shuffle`]: `none`, `window`, `window:SHARDS`, `global`.
    fn from_str(text: &str) -> Result<Self, sampler::Error> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Fixed) }
    }
}

/// The shards that an epoch reads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) bytes: u64,
    pub(super) shards: u64,
}

impl Extent {
    /// The shards that contain a sample of a view.
    pub(super) fn of(manifest: &Manifest, view: &View) -> Self {
        let used = (0..manifest.shard_count()).filter(|&shard| view.shape().has(shard));
        used.fold(Self::default(), |sum, shard| {
            sum.with(Self { bytes: manifest.shard(shard).bytes, shards: 1 })
        })
    }

    pub(super) fn with(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Self { bytes, shards: self.shards + other.shards }
    }
}

/// Resolves `auto` for one of `world` ranks. `memory` is the cluster's, `None` without a cluster.
///
/// Ranks that share no cluster take a window of the default size, which reads each object in one
/// stretch of the epoch. They cannot talk to each other and must still agree.
///
/// # Errors
/// Some node did not answer, and there are several ranks. Ranks that see different sums could
/// choose different orders and silently lose samples.
pub(super) fn resolve_auto(
    extent: Extent,
    memory: Option<ClusterMemory>,
    world: u32,
) -> Result<Shuffle, Error> {
    let window = Shuffle::Window { shards: WINDOW_SHARDS_DEFAULT };
    let Some(memory) = memory else { return Ok(window) };
    let ClusterMemory { budget_bytes, members, answered, .. } = memory;
    let uncertain = answered < members || members == 0;
    if uncertain && world > 1 {
        let what = "cannot decide what shuffle 'auto' is for several ranks";
        return Err(Error::new(ErrorKind::Unavailable, what)
            .because(format!(
                "{answered} of {members} nodes answer, so ranks could decide differently"
            ))
            .hint("say shuffle 'global' or 'window', or wait until all nodes are up"));
    }
    if answered == 0 {
        return Ok(window);
    }
    let shard_bytes = extent.bytes.div_ceil(extent.shards.max(1));
    Ok(Shuffle::auto(extent.bytes, budget_bytes, shard_bytes))
}

/// The one of two shuffles that needs less memory.
pub(super) fn narrower(one: Shuffle, other: Shuffle) -> Shuffle {
    match (one, other) {
        (Shuffle::Window { shards: one }, Shuffle::Window { shards: other }) => {
            Shuffle::Window { shards: one.min(other) }
        }
        (Shuffle::Global, other) => other,
        (one, _) => one,
    }
}
