//! Reads rows of one snapshot, each from the nearest source.
//!
//! ```text
//! rows ─▶ mapped here? ──yes──▶ copied and checked, no lock, no system call
//!           │ no
//!           ▼
//!         by owner: one request per node, all sent before the first answer is read
//!           │                 │ a node fails: its missing rows go to the next owner
//!           ▼                 ▼
//!         into the batch    no node left: strict ranged reads of the origin, with one warning
//! ```
//!
//! A row counts as read only after its checksum was compared, on the mapped bytes or on the bytes
//! in the batch. Answers of "try again" are retried until the call's deadline.
//!
//! Thread rule: all threads share a [`Fetcher`]. Each call works on its caller's thread. Sockets,
//! locks and threads belong to one process: a forked child makes its own at its first call.
//! Non-goals: choosing rows and their order (see the sampler and the loader).

mod check;
mod failure_policy;
mod gather;
mod lanes;
mod leaves;
mod mapped;
mod node;
mod origin;
mod progress;
mod route;
mod row_source;
mod session;
mod sources;
mod view;

use std::{
    fmt,
    ops::Range,
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use larder_base::{Placement, RowRef, WaitNotice};
use larder_dataset::{Leaf, Manifest};
use larder_wire::data::DistinctShards;

use crate::{
    Cluster, CopyStats, DatasetName, Error, deadline::CancelToken, directory::OwnerDirectory,
    process, process::PerProcess, remote::Placed, runtime,
};
use origin::Fallback;
use session::Session;

pub(crate) use check::begins;
pub(crate) use leaves::Leaves;
pub(crate) use progress::Awaited;
pub use progress::RowsWait;
pub(crate) use row_source::RowSource;
pub(crate) use sources::Gathered;
pub use sources::{Hop, LongestWait, Sources};
pub use view::RowsView;

/// A shard with damaged mapped bytes is not mapped again for this long.
const ASK_AGAIN_CORRUPT: Duration = Duration::from_secs(60);

/// How long a call retries by default while nodes or the origin say "try again".
const PATIENCE_DEFAULT: Duration = Duration::from_secs(120);

/// The settings of a [`Fetcher`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Whether to map the extents of nodes on this host.
    pub local: bool,
    /// Nodes, by id, that are read over the network even if they are on this host.
    pub over_network: Vec<String>,
    /// How long one call retries while nodes or the origin say "try again".
    pub patience: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { local: true, over_network: Vec::new(), patience: PATIENCE_DEFAULT }
    }
}

impl FetchOptions {
    fn maps(&self, node: &str) -> bool {
        self.local && !self.over_network.iter().any(|id| id == node)
    }
}

/// A snapshot, its names, and its cluster.
pub(crate) struct Target {
    manifest: Manifest,
    /// The name that the user opened.
    name: DatasetName,
    /// The name, pinned to the snapshot.
    pinned: DatasetName,
    cluster: Option<Arc<Cluster>>,
    owner_directory: Arc<OwnerDirectory>,
    options: FetchOptions,
    /// Waits for rows of the snapshot.
    notice: WaitNotice,
    /// Why rows did not come, and when that was.
    trouble: ArcSwapOption<(Duration, String)>,
    /// Waits of this process whose fills are followed.
    followers: AtomicUsize,
}

impl Target {
    fn new(
        manifest: Manifest,
        name: &DatasetName,
        cluster: Option<Arc<Cluster>>,
        options: FetchOptions,
    ) -> Self {
        let pinned = name.pinned(manifest.snapshot());
        let owner_directory = OwnerDirectory::new(manifest.snapshot(), manifest.shard_count());
        Self {
            manifest,
            name: name.clone(),
            pinned,
            cluster,
            owner_directory,
            options,
            notice: WaitNotice::default(),
            trouble: ArcSwapOption::const_empty(),
            followers: AtomicUsize::new(0),
        }
    }

    /// Tells users why rows have not come since `begun`, if that is due.
    fn tell_wait(&self, begun: Instant, why: impl fmt::Display) {
        let waited = process::now() - begun;
        if self.notice.is_due(waited, process::uptime()) {
            let (uri, seconds) = (self.manifest.uri(), waited.as_secs());
            let patience = self.options.patience.as_secs();
            tracing::warn!(
                "rows of {uri} have not come for {seconds} s ({why}); larder waits up to {patience} s"
            );
        }
    }
}

/// Reads rows of one snapshot.
pub struct Fetcher {
    target: Arc<Target>,
    session: PerProcess<Session>,
    leaves: Arc<Leaves>,
    fallback: Fallback,
}

impl Fetcher {
    /// Creates a reader of `manifest`'s snapshot. It connects at the first row. Without a cluster
    /// all rows come from the origin.
    pub fn new(
        manifest: Manifest,
        name: &DatasetName,
        cluster: Option<Arc<Cluster>>,
        options: FetchOptions,
    ) -> Arc<Self> {
        Self::with_leaves(manifest, Vec::new(), name, cluster, options)
    }

    /// As [`new`](Self::new), with all leaves of the manifest.
    pub(crate) fn with_leaves(
        manifest: Manifest,
        leaves: Vec<Leaf>,
        name: &DatasetName,
        cluster: Option<Arc<Cluster>>,
        options: FetchOptions,
    ) -> Arc<Self> {
        let target = Arc::new(Target::new(manifest, name, cluster, options));
        let leaves = Leaves::new(Arc::clone(&target), leaves);
        let fallback = Fallback::new(name.manifest.clone());
        Arc::new(Self { target, session: PerProcess::new(), leaves, fallback })
    }

    /// The leaves of the manifest.
    pub(crate) fn leaves(&self) -> &Arc<Leaves> {
        &self.leaves
    }

    /// The manifest of the snapshot.
    pub fn manifest(&self) -> &Manifest {
        &self.target.manifest
    }

    /// The cluster, if there is one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.target.cluster.as_ref()
    }

    pub(crate) fn options(&self) -> &FetchOptions {
        &self.target.options
    }

    /// Fills `out[k]` with the rows of tensor `tensors[k]`, back to back in the order of `rows`.
    /// Each buffer has `rows.len() * row_bytes` bytes. The manifest's leaves give the lengths of
    /// ragged rows. After an error the contents of the buffers are undefined.
    ///
    /// # Errors
    /// `InvalidArgument` for rows, tensors or buffers that do not fit the snapshot. Otherwise the
    /// last error, after all owners and the origin failed and the deadline passed.
    pub fn gather(
        &self,
        rows: &[RowRef],
        tensors: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<Sources, Error> {
        let begins = self.begins(rows, tensors)?;
        let begins: Vec<Option<&[usize]>> = begins.iter().map(Option::as_deref).collect();
        let placed = Placed::all(rows).beginning(&begins);
        let gathered = RowSource::gather(self, placed, tensors, out, &CancelToken::never());
        gathered.map(|gathered| gathered.sources)
    }

    /// For each ragged tensor, the offsets of rows that lie back to back.
    fn begins(
        &self,
        rows: &[RowRef],
        tensors: &[usize],
    ) -> Result<Vec<Option<Box<[usize]>>>, Error> {
        let manifest = &self.target.manifest;
        check::check_rows(manifest, rows, &DistinctShards::of(rows))?;
        let places = self.leaves.places(rows)?;
        let of = |&tensor: &usize| {
            let Some(known) = manifest.tensors().get(tensor).filter(|known| known.is_ragged())
            else {
                return Ok(None);
            };
            let lengths = rows.iter().map(|&row| places.row(row, tensor).1);
            begins(known.name(), lengths, 0).map(Some)
        };
        tensors.iter().map(of).collect()
    }

    /// Views a row in place, if its shard is mapped or the node on this host hands it out at once.
    /// The checksum was compared. `None` means that the row must be gathered.
    pub fn view(&self, row: RowRef, tensor: usize) -> Option<RowsView> {
        self.view_rows(row.shard, row.row..row.row.checked_add(1)?, tensor)
    }

    /// Views consecutive rows of a shard in place, as [`view`](Self::view). Also `None` for no
    /// rows, and for rows that do not lie back to back, such as overlapping windows. Ragged rows
    /// always do.
    pub fn view_rows(&self, shard: u32, rows: Range<u32>, tensor: usize) -> Option<RowsView> {
        let view = self.look(shard, &rows, tensor, Some(&CancelToken::never()))?;
        CopyStats::viewed(view.len() as u64).count();
        Some(view)
    }

    /// Whether the shards of all these rows are mapped.
    pub(crate) fn has_mapped(&self, rows: &[RowRef]) -> bool {
        let (session, shards) = (self.session(), DistinctShards::of(rows));
        shards.shards().iter().all(|&shard| session.slots.get(shard).is_some())
    }

    /// Learns the owners of all shards, so that the first requests go to the right nodes. If this
    /// fails, reading rows learns them in the background.
    pub(crate) fn learn_owners(&self) {
        if let Some(cluster) = &self.target.cluster {
            let _ = runtime::block_on(self.target.owner_directory.learn(cluster));
        }
    }

    /// The owners of all shards, as nodes last answered.
    pub(crate) fn placement(&self) -> Option<Placement> {
        let cluster = self.cluster()?;
        self.learn_owners();
        Some(self.target.owner_directory.directory(cluster)?.placement().clone())
    }

    fn session(&self) -> Arc<process::Owned<Session>> {
        self.session.get(|parents| {
            if let Some(parents) = parents {
                parents.abandon();
            }
            Session::new(&self.target.manifest)
        })
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("name", &self.target.name)
            .field("cluster", &self.target.cluster)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
