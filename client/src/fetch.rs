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
mod placed;
mod session;
mod sources;
mod strikes;
mod target;
mod view;

use std::{fmt, sync::Arc, time::Duration};

use larder_dataset::Manifest;
use larder_wire::{
    ErrorKind,
    data::{DistinctShards, RowRef},
    limits,
};

use crate::{
    Cluster, Copies, DatasetName, Error,
    origin::Fallback,
    patience::{CancelToken, Patience},
    process,
    process::PerProcess,
    remote::{Batch, Wanted},
};
use gather::{Gathering, Means};
use mapped::copy_mapped;
use session::Session;
use target::Target;

pub(crate) use placed::Placed;
pub(crate) use sources::Gathered;
pub use sources::{Hop, LongestWait, Sources};
pub use target::FetchOptions;
pub(crate) use view::Asking;
pub use view::RowsView;

/// A shard whose mapped bytes turned out to be damaged is not mapped again before this.
const ASK_AGAIN_CORRUPT: Duration = Duration::from_secs(60);

/// Reads rows of one snapshot.
pub struct Fetcher {
    target: Target,
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
        let target = Target::new(manifest, name, cluster, options);
        let fallback = Fallback::new(name.manifest.clone());
        Arc::new(Self { target, session: PerProcess::new(), fallback })
    }

    /// The snapshot's index.
    pub fn manifest(&self) -> &Manifest {
        &self.target.manifest
    }

    /// The cluster, if there is one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.target.cluster.as_ref()
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
        self.gather_unless(rows.into(), tensors, out, &CancelToken::never())
            .map(|gathered| gathered.sources)
    }

    /// As [`gather`](Self::gather), but ends with an error soon after it is cancelled; and says what
    /// it waited for longest. Rows with places go there, and the rest of the buffers is left alone.
    pub(crate) fn gather_unless(
        &self,
        placed: Placed<'_>,
        tensors: &[usize],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let begun = process::now();
        let rows = placed.rows;
        let (tensors, row_bytes) = self.check(placed, tensors, out)?;
        let shards = DistinctShards::of(rows);
        self.check_rows(rows, &shards)?;
        let session = self.session();
        let mut batch = Batch { out, row_bytes: &row_bytes };
        let rest = copy_mapped(&session, placed, &shards, &tensors, &mut batch);
        let wait_local = process::now() - begun;
        let left = rest.missing.len() + rest.damaged.len();
        let (rows_local, all) = (rows.len() - left, rows.len() as u64);
        let mut gathered = Gathered::default();
        if rows_local < rows.len() {
            let snapshot = self.target.manifest.snapshot();
            let (rows, tensors, copies) = (&*placed.by_place(), &tensors, Copies::default());
            let wanted = Wanted { snapshot, ring_version: 0, rows, tensors, batch, copies };
            let (target, fallback) = (&self.target, &self.fallback);
            let means = Means { target, session: &session, fallback };
            let patience = Patience::new(target.options.patience, cancel);
            let mut gathering = Gathering::new(means, wanted, patience);
            gathering.want(rest.missing, false);
            gathering.want(rest.damaged, true);
            gathered = gathering.run()?;
        }
        let row_bytes: u64 = row_bytes.iter().map(|&bytes| bytes as u64).sum();
        let sources = &mut gathered.sources;
        sources.rows_local = rows_local as u64;
        sources.bytes = all * row_bytes;
        sources.wait_local = if rows_local > 0 { wait_local } else { Duration::ZERO };
        sources.copies += Copies::local(sources.rows_local * row_bytes);
        sources.copies.count();
        Ok(gathered)
    }

    fn session(&self) -> Arc<process::Owned<Session>> {
        self.session.get(|parents| {
            if let Some(parents) = parents {
                parents.abandon();
            }
            Session::new(&self.target.manifest)
        })
    }

    /// The tensors as the wire numbers them, and the bytes of a row of each.
    fn check(
        &self,
        placed: Placed<'_>,
        tensors: &[usize],
        out: &[&mut [u8]],
    ) -> Result<(Vec<u16>, Vec<usize>), Error> {
        let refused =
            |why: String| Err(Error::new(ErrorKind::InvalidArgument, "cannot gather").because(why));
        let known = self.target.manifest.tensors();
        let tensors_max = limits::GATHER_TENSORS_MAX as usize;
        if tensors.len() != out.len() || tensors.len() > tensors_max {
            return refused(format!(
                "{} tensors into {} buffers; one each, and at most {tensors_max}",
                tensors.len(),
                out.len()
            ));
        }
        let rows = placed.rows.len();
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
            if !out.len().is_multiple_of(bytes) || !placed.fits(out.len() / bytes) {
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
        let count = self.target.manifest.shard_count();
        let rows_of = |&shard: &u32| match shard < count {
            true => self.target.manifest.shard(shard).rows,
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
            .field("name", &self.target.name)
            .field("cluster", &self.target.cluster)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
