//! Rows of one snapshot, each from the nearest place that has it.
//!
//! ```text
//! rows ─▶ mapped here? ──yes──▶ copied and checked, no lock, no system call
//!           │ no
//!           ▼
//!         by the ring: one request per node, all sent before the first answer is read
//!           │                 │ a node fails: what it did not send goes to the next on the walk
//!           ▼                 ▼
//!         into the batch    no node left: strict ranged reads of the origin, with one warning
//! ```
//!
//! A row is in the batch only after its checksum was compared, on the bytes as they lie there. What
//! a node says to try again is tried again until the caller's patience ends.
//!
//! Thread rule: a [`Fetcher`] is shared by all threads that read; each call works on its caller's
//! thread. Sockets, locks and threads behind it are those of one process: a forked child starts with
//! none at its first call.
//! Non-goals: which rows are wanted when (see the sampler and the loader).

mod gather;
mod lanes;
mod mapped;
mod node;
mod session;

use std::{
    fmt,
    ops::{AddAssign, Deref},
    sync::Arc,
    time::Duration,
};

use larder_dataset::{Manifest, RowLocator};
use larder_extent::Attached;
use larder_wire::{
    ErrorKind,
    data::{DistinctShards, RowRef},
    limits,
};

use crate::{
    Cluster, DatasetName, Error, origin::Fallback, process, process::PerProcess, remote::Batch,
};
use gather::Gathering;
use mapped::copy_mapped;
use session::Session;

/// How long a call goes on trying when nodes or the origin say "try again", unless told otherwise.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(120);

/// A shard whose mapped bytes turned out to be damaged is not mapped again before this.
const ASK_AGAIN_CORRUPT: Duration = Duration::from_secs(60);

/// How rows are fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Whether to map the extents of nodes on this host.
    pub local: bool,
    /// Nodes, by id, that are read over the network even if they are on this host.
    pub over_network: Vec<String>,
    /// How long one call goes on trying when nodes or the origin say "try again".
    pub patience: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { local: true, over_network: Vec::new(), patience: PATIENCE_DEFAULT }
    }
}

impl FetchOptions {
    /// Whether the memory of this node may be mapped.
    fn maps(&self, node: &str) -> bool {
        self.local && !self.over_network.iter().any(|id| id == node)
    }
}

/// Where the rows of a gather came from, and what they cost. A row counts once, however many tensors
/// it has. Those of several gathers add up with `+=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Copied out of extents mapped from a node on this host.
    pub rows_local: u64,
    /// Sent by a node out of its memory.
    pub rows_remote: u64,
    /// Read from the origin: by a node that had to, or by this process.
    pub rows_origin: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Time spent asking nodes and receiving from them.
    pub wait_nodes: Duration,
    /// Time spent reading from the origin in this process.
    pub wait_origin: Duration,
    /// Time spent waiting before another try.
    pub wait_retries: Duration,
}

impl AddAssign for Sources {
    fn add_assign(&mut self, other: Self) {
        self.rows_local += other.rows_local;
        self.rows_remote += other.rows_remote;
        self.rows_origin += other.rows_origin;
        self.bytes += other.bytes;
        self.wait_nodes += other.wait_nodes;
        self.wait_origin += other.wait_origin;
        self.wait_retries += other.wait_retries;
    }
}

/// Reads rows of one snapshot.
pub struct Fetcher {
    manifest: Manifest,
    name: DatasetName,
    /// The same, pinned to the snapshot.
    pinned: DatasetName,
    cluster: Option<Arc<Cluster>>,
    options: FetchOptions,
    session: PerProcess<Session>,
    fallback: Fallback,
}

impl Fetcher {
    /// A reader of `manifest`'s snapshot. Nothing is connected before the first row is asked for.
    /// Without a cluster all rows come from the origin.
    pub fn new(
        manifest: Manifest,
        name: &DatasetName,
        cluster: Option<Arc<Cluster>>,
        options: FetchOptions,
    ) -> Arc<Self> {
        let pinned = name.pinned(manifest.snapshot());
        let (session, fallback) = (PerProcess::new(), Fallback::new());
        Arc::new(Self { manifest, name: name.clone(), pinned, cluster, options, session, fallback })
    }

    /// The snapshot's index.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The cluster, if there is one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Fills `out[k]` with the rows of tensor `tensors[k]`, in the order of `rows`:
    /// `rows.len() * row_bytes` bytes each. After an error the buffers hold nothing of use.
    ///
    /// # Errors
    /// `InvalidArgument` for rows, tensors or buffers that are not the snapshot's; else what remained
    /// after every node on the walk and the origin were asked, and patience ended.
    pub fn gather(
        &self,
        rows: &[RowRef],
        tensors: &[usize],
        out: &mut [&mut [u8]],
    ) -> Result<Sources, Error> {
        let (tensors, row_bytes) = self.check(rows.len(), tensors, out)?;
        let shards = DistinctShards::of(rows);
        self.check_rows(rows, &shards)?;
        let session = self.session();
        let mut batch = Batch { out, row_bytes: &row_bytes };
        let rest = copy_mapped(&session, rows, &shards, &tensors, &mut batch);
        let (count, left) = (rows.len() as u64, rest.missing.len() + rest.damaged.len());
        let mut sources = Sources {
            rows_local: count - left as u64,
            bytes: count * row_bytes.iter().map(|&bytes| bytes as u64).sum::<u64>(),
            ..Sources::default()
        };
        if left > 0 {
            let mut gathering = Gathering::new(self, &session, rows, &tensors, batch, &mut sources);
            gathering.want(rest.missing, false);
            gathering.want(rest.damaged, true);
            gathering.run()?;
        }
        Ok(sources)
    }

    /// A row where it lies, if its shard is mapped or the node on this host hands it out at once. Its
    /// checksum is compared here. `None` says that the row has to be gathered.
    pub fn view(&self, row: RowRef, tensor: usize) -> Option<RowView> {
        let shards = self.manifest.shard_count();
        if row.shard >= shards || row.row >= self.manifest.shard(row.shard).rows {
            return None;
        }
        let strided = |tensor: &larder_dataset::Tensor| {
            matches!(tensor.locator(), RowLocator::Strided { .. })
        };
        self.manifest.tensors().get(tensor).filter(|tensor| strided(tensor))?;
        let session = self.session();
        let extent = match session.slots.get(row.shard) {
            Some(extent) => extent,
            None => session.attach(self, row.shard)?,
        };
        let view = RowView { extent, region: tensor, row: u64::from(row.row) };
        if view.extent.verify_row(view.region, view.row) {
            return Some(view);
        }
        session.slots.take(row.shard, process::uptime() + ASK_AGAIN_CORRUPT);
        None
    }

    fn session(&self) -> Arc<process::Owned<Session>> {
        self.session.get(|parents| {
            if let Some(parents) = parents {
                parents.abandon();
            }
            Session::new(&self.manifest, self.cluster.as_deref())
        })
    }

    /// The tensors as the wire numbers them, and the bytes of a row of each.
    fn check(
        &self,
        rows: usize,
        tensors: &[usize],
        out: &[&mut [u8]],
    ) -> Result<(Vec<u16>, Vec<usize>), Error> {
        let refused =
            |why: String| Err(Error::new(ErrorKind::InvalidArgument, "cannot gather").because(why));
        let known = self.manifest.tensors();
        let tensors_max = limits::GATHER_TENSORS_MAX as usize;
        if tensors.len() != out.len() || tensors.len() > tensors_max {
            return refused(format!(
                "{} tensors into {} buffers; one each, and at most {tensors_max}",
                tensors.len(),
                out.len()
            ));
        }
        let mut numbers = Vec::with_capacity(tensors.len());
        let mut row_bytes = Vec::with_capacity(tensors.len());
        for (&tensor, out) in tensors.iter().zip(out) {
            let Some(known) = known.get(tensor) else {
                return refused(format!("there is no tensor {tensor}, only {}", known.len()));
            };
            let bytes = usize::try_from(known.row_bytes()).unwrap_or(0);
            if bytes == 0 {
                return refused(format!("rows of tensor {} have no fixed length", known.name()));
            }
            if bytes.checked_mul(rows) != Some(out.len()) {
                let (name, out) = (known.name(), out.len());
                return refused(format!(
                    "{rows} rows of {bytes} bytes of tensor {name} do not fill {out} bytes"
                ));
            }
            numbers.push(u16::try_from(tensor).expect("a dataset has at most 4,096 tensors"));
            row_bytes.push(bytes);
        }
        if u32::try_from(rows).is_err() {
            return refused(format!("{rows} rows in one call, the limit is {}", u32::MAX));
        }
        Ok((numbers, row_bytes))
    }

    fn check_rows(&self, rows: &[RowRef], shards: &DistinctShards) -> Result<(), Error> {
        let count = self.manifest.shard_count();
        let rows_of = |&shard: &u32| match shard < count {
            true => self.manifest.shard(shard).rows,
            false => 0,
        };
        let row_counts: Vec<u32> = shards.shards().iter().map(rows_of).collect();
        let mut checked = rows.iter().zip(shards.of_rows());
        match checked.find(|&(row, &shard)| row.row >= row_counts[shard as usize]) {
            None => Ok(()),
            Some((RowRef { shard, row }, _)) => {
                let why = format!("there is no row {row} in a shard {shard} of {count} shards");
                Err(Error::new(ErrorKind::InvalidArgument, "cannot gather").because(why))
            }
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("name", &self.name)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// One row of one tensor where it lies in a mapped extent, which it keeps mapped. Derefs to its
/// bytes.
#[derive(Debug, Clone)]
pub struct RowView {
    extent: Arc<Attached>,
    region: usize,
    row: u64,
}

impl Deref for RowView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.extent.row(self.region, self.row)
    }
}

#[cfg(test)]
mod tests;
