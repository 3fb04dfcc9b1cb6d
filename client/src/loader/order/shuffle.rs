//! Resolves the shuffle `auto` by the memory of the nodes, and says if the data does not fit it.

use std::{collections::HashSet, fmt, str::FromStr};

use larder_base::Bytes;
use larder_dataset::{Manifest, RegionPlan};
use larder_extent::{ExtentLayout, Region};
use serde::Deserialize;

use crate::{
    Cluster, ClusterMemory, Error, ErrorKind,
    sampler::{self, Shuffle, View, WINDOW_SHARDS_DEFAULT},
};

/// How far samples are shuffled, as set by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShuffleMode {
    /// All samples if the dataset fits into the memory of the cluster, otherwise a window of
    /// shards. Ranks with host nodes take a window of 64, unless all run on this host
    /// ([`RankHosts`]). Decided once, when the loader is built.
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

/// The hosts of a job's ranks. Ranks of one host share its node, so they resolve `auto` alike by
/// its memory. Nodes of several hosts may have different sizes, and their ranks can't compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankHosts {
    /// The ranks may run on several hosts.
    #[default]
    Unknown,
    /// All ranks run on this host.
    This,
    /// Nothing says that ranks run elsewhere. Rank 0 warns that the order depends on it.
    PresumedThis,
}

/// The shards that an epoch reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::loader) struct Extent {
    pub(in crate::loader) bytes: u64,
    pub(in crate::loader) shards: u64,
    /// The memory that a node needs for all of them.
    pub(in crate::loader) cached_bytes: u64,
    /// The memory for the largest of them.
    pub(in crate::loader) largest_bytes: u64,
}

impl Extent {
    /// The shards that contain a sample of a view. One that several views use counts once.
    pub(in crate::loader) fn of<'a>(views: impl Iterator<Item = (&'a Manifest, &'a View)>) -> Self {
        let (mut extent, mut seen) = (Self::default(), HashSet::new());
        for (manifest, view) in views {
            let used = (0..manifest.shard_count()).filter(|&shard| view.shape().has(shard));
            for shard in used.filter(|&shard| seen.insert(manifest.shard(shard).id)) {
                let cached = cached_bytes(manifest, shard);
                extent.bytes = extent.bytes.saturating_add(manifest.shard(shard).bytes);
                extent.shards += 1;
                extent.cached_bytes = extent.cached_bytes.saturating_add(cached);
                extent.largest_bytes = extent.largest_bytes.max(cached);
            }
        }
        extent
    }
}

/// The bytes of a shard's extent, with its checksums.
fn cached_bytes(manifest: &Manifest, shard: u32) -> u64 {
    let region = |region: &RegionPlan| match *region {
        RegionPlan { stride_bytes: 0, bytes, .. } => Region::Blocks { bytes },
        RegionPlan { rows, row_bytes, stride_bytes, .. } => {
            Region::Rows { rows, row_bytes, stride_bytes }
        }
    };
    let regions: Vec<Region> = manifest.regions(shard).iter().map(region).collect();
    let bytes = manifest.shard(shard).bytes;
    ExtentLayout::new(&regions).map_or(bytes, |layout| layout.total_bytes())
}

/// The memory behind some of a loader's datasets.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct Pool {
    /// `None` without nodes.
    pub(in crate::loader) memory: Option<ClusterMemory>,
    /// Whether it is the node of this host.
    pub(in crate::loader) of_host: bool,
}

impl Pool {
    /// The memory of a cluster. The size of a host's node is known; the nodes of other clusters are
    /// asked.
    pub(in crate::loader) fn of(cluster: Option<&Cluster>) -> Self {
        let host = cluster.and_then(Cluster::host);
        let of_host = host.is_some();
        let sized = |budget_bytes| ClusterMemory {
            budget_bytes,
            members: 1,
            answered: 1,
            ..ClusterMemory::default()
        };
        let memory = match host {
            Some(node) => Some(sized(node.memory_bytes())),
            None => cluster.map(Cluster::memory),
        };
        Self { memory, of_host }
    }
}

/// Resolves `auto` for one of `world` ranks: the shuffle that needs the least memory among the
/// pools.
///
/// # Errors
/// As [`resolve_auto`].
pub(in crate::loader) fn auto(
    extent: Extent,
    pools: &[Pool],
    world: u32,
    hosts: RankHosts,
) -> Result<Shuffle, Error> {
    let shared = world == 1 || hosts != RankHosts::Unknown;
    pools.iter().try_fold(Shuffle::Global, |shuffle, pool| {
        let memory = pool.memory.filter(|_| shared || !pool.of_host);
        Ok(narrower(shuffle, resolve_auto(extent, memory, world)?))
    })
}

/// Resolves `auto` for one of `world` ranks. `memory` is the cluster's, `None` without a cluster.
///
/// Ranks that share no cluster take a window of the default size, which reads each object in one
/// stretch of the epoch. They cannot talk to each other and must still agree.
///
/// # Errors
/// Some node did not answer, and there are several ranks. Ranks that see different sums could
/// choose different orders and silently lose samples.
pub(in crate::loader) fn resolve_auto(
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

/// The warning if the order depends on facts that this process does not know: `auto` became
/// `shuffle`, and ranks run on other hosts, or may.
pub(in crate::loader) fn warn_of_hosts(
    shuffle: Shuffle,
    extent: Extent,
    pools: &[Pool],
    world: u32,
    hosts: RankHosts,
) -> Option<String> {
    if world == 1 || !pools.iter().any(|pool| pool.of_host) {
        return None;
    }
    let alone = auto(extent, pools, 1, hosts).ok()?;
    match hosts {
        RankHosts::This => None,
        RankHosts::Unknown if alone == shuffle => None,
        RankHosts::Unknown => Some(format!(
            "shuffle 'auto' is '{shuffle}' on {world} ranks, where one rank has '{alone}': the ranks may run on \
             several hosts with caches of different sizes; say shuffle='{alone}', or set LOCAL_WORLD_SIZE if \
             all of them run on this host"
        )),
        RankHosts::PresumedThis => Some(format!(
            "shuffle 'auto' is '{shuffle}' by the cache of this host: if some of the {world} ranks run on other \
             hosts, say shuffle='{shuffle}', because they could choose another order and lose samples"
        )),
    }
}

/// The warning if the data does not fit the memory of the nodes. `auto` says that `shuffle` was
/// resolved.
pub(in crate::loader) fn warn_of_memory(
    extent: Extent,
    pools: &[Pool],
    shuffle: Shuffle,
    auto: bool,
) -> Option<String> {
    let known = |pool: &Pool| Some((pool.of_host, pool.memory?));
    let small = |&(_, memory): &(bool, ClusterMemory)| {
        memory.answered == memory.members
            && memory.members > 0
            && extent.cached_bytes > memory.budget_bytes
    };
    let (of_host, memory) = pools.iter().filter_map(known).find(small)?;
    let (bytes, budget, nodes) = (extent.cached_bytes, memory.budget_bytes, memory.members as u64);
    let cache = match (of_host, nodes) {
        (true, _) => "the cache of this host".to_owned(),
        (false, 1) => "the memory of the node".to_owned(),
        (false, nodes) => format!("the memory of the {nodes} nodes"),
    };
    let enough = enough(bytes);
    let remedy = match (of_host, nodes) {
        (true, _) => {
            format!("LARDER_MEMORY={enough} would hold it all from the cache's next start")
        }
        (false, 1) => format!("a node with --memory {enough} would hold it all"),
        (false, _) => format!("nodes with --memory {enough} in all would hold it all"),
    };
    let auto = if auto { format!("shuffle 'auto' is '{shuffle}'; ") } else { String::new() };
    let node = budget / nodes;
    let coarse = if extent.largest_bytes > node / 8 {
        format!(
            "; shards of up to {} leave part of the cache empty: index with shard_bytes={} to fill it",
            Bytes(extent.largest_bytes),
            (node / 16).max(1),
        )
    } else {
        String::new()
    };
    Some(format!(
        "the data ({}) does not fit {cache} ({}): each epoch reads the rest from the origin; {auto}{remedy}{coarse}",
        Bytes(bytes),
        Bytes(budget),
    ))
}

/// The memory in which this data fits with a quarter to spare, as a setting.
fn enough(bytes: u64) -> String {
    let bytes = bytes.saturating_add(bytes / 4);
    let (unit, name) = if bytes > 10 << 30 { (1 << 30, "GiB") } else { (1 << 20, "MiB") };
    format!("{}{name}", bytes.div_ceil(unit))
}

/// The one of two shuffles that needs less memory.
fn narrower(one: Shuffle, other: Shuffle) -> Shuffle {
    match (one, other) {
        (Shuffle::Window { shards: one }, Shuffle::Window { shards: other }) => {
            Shuffle::Window { shards: one.min(other) }
        }
        (Shuffle::Global, other) => other,
        (one, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn warned(
        nodes: usize,
        answered: usize,
        budget_bytes: u64,
        shard_bytes: u64,
    ) -> Option<String> {
        let bytes = 100 * MIB;
        let extent = Extent { bytes, shards: 9, cached_bytes: bytes, largest_bytes: shard_bytes };
        let memory =
            Some(ClusterMemory { budget_bytes, resident_bytes: 0, members: nodes, answered });
        warn_of_memory(extent, &[Pool { memory, of_host: false }], Shuffle::Global, false)
    }

    #[test]
    fn data_beyond_the_memory_of_the_nodes_is_told() {
        assert_eq!(warned(2, 2, 100 * MIB, MIB), None);
        assert_eq!(warned(2, 1, 99 * MIB, MIB), None);
        assert_eq!(
            warned(2, 2, 99 * MIB, MIB).unwrap(),
            "the data (100 MiB) does not fit the memory of the 2 nodes (99 MiB): each epoch reads the rest \
             from the origin; nodes with --memory 125MiB in all would hold it all"
        );
        assert_eq!(
            warned(1, 1, 64 * MIB, 40 * MIB).unwrap(),
            "the data (100 MiB) does not fit the memory of the node (64 MiB): each epoch reads the rest from \
             the origin; a node with --memory 125MiB would hold it all; shards of up to 40 MiB leave part of \
             the cache empty: index with shard_bytes=4194304 to fill it"
        );
    }

    #[test]
    fn sizes_are_told_in_settings_that_hold_the_data() {
        assert_eq!(enough(100 * MIB), "125MiB");
        assert_eq!(enough(100 * MIB + 1), "126MiB");
        assert_eq!(enough(100 << 30), "125GiB");
    }
}
