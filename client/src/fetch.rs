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
mod node;
mod session;
mod sources;
mod strikes;
mod target;

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use larder_dataset::{Manifest, RowLocator};
use larder_extent::Attached;
use larder_wire::{ErrorKind, data::RowRef, limits};

use crate::{
    Cluster, Copies, DatasetName, Error,
    origin::Fallback,
    patience::{CancelToken, Patience},
    process,
    process::PerProcess,
    remote::{Batch, Wanted},
};
use gather::{Gathering, Means};
use session::Session;
use target::Target;

pub(crate) use sources::Gathered;
pub use sources::{Hop, LongestWait, Sources};
pub use target::FetchOptions;

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
        self.gather_unless(rows, tensors, out, &CancelToken::never())
            .map(|gathered| gathered.sources)
    }

    /// As [`gather`](Self::gather), but ends with an error soon after it is cancelled; and says what
    /// it waited for longest.
    pub(crate) fn gather_unless(
        &self,
        rows: &[RowRef],
        tensors: &[usize],
        out: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let begun = process::now();
        let (tensors, row_bytes) = self.check(rows, tensors, out)?;
        let session = self.session();
        let mut batch = Batch { out, row_bytes: &row_bytes };
        let (missing, damaged) = copy_mapped(&session, rows, &tensors, &mut batch);
        let wait_local = process::now() - begun;
        let (rows_local, all) = (rows.len() - missing.len() - damaged.len(), rows.len() as u64);
        let mut gathered = Gathered::default();
        if rows_local < rows.len() {
            let snapshot = self.target.manifest.snapshot();
            let (tensors, copies) = (&tensors, Copies::default());
            let wanted = Wanted { snapshot, rows, tensors, batch, copies };
            let (target, fallback) = (&self.target, &self.fallback);
            let means = Means { target, session: &session, fallback };
            let patience = Patience::new(target.options.patience, cancel);
            let mut gathering = Gathering::new(means, wanted, patience);
            gathering.want(missing, false);
            gathering.want(damaged, true);
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

    /// A row where it lies, if its shard is mapped or the node on this host hands it out at once. Its
    /// checksum is compared here. `None` says that the row has to be gathered.
    pub fn view(&self, row: RowRef, tensor: usize) -> Option<RowView> {
        self.check_rows(&[row]).ok()?;
        let strided = |tensor: &larder_dataset::Tensor| {
            matches!(tensor.locator(), RowLocator::Strided { .. })
        };
        self.target.manifest.tensors().get(tensor).filter(|tensor| strided(tensor))?;
        let session = self.session();
        let extent = match session.slots.get(row.shard) {
            Some(extent) => extent.clone()?,
            None => session.attach(&self.target, row.shard)?,
        };
        let view = RowView { extent, region: tensor, row: u64::from(row.row) };
        if view.extent.verify_row(view.region, view.row) {
            Copies::viewed(view.len() as u64).count();
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
            Session::new(&self.target.manifest)
        })
    }

    /// The tensors as the wire numbers them, and the bytes of a row of each.
    fn check(
        &self,
        rows: &[RowRef],
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
            if bytes.checked_mul(rows.len()) != Some(out.len()) {
                let (name, rows, out) = (known.name(), rows.len(), out.len());
                return refused(format!(
                    "{rows} rows of {bytes} bytes of tensor {name} do not fill {out} bytes"
                ));
            }
            numbers.push(u16::try_from(tensor).expect("a dataset has at most 4,096 tensors"));
            row_bytes.push(bytes);
        }
        if u32::try_from(rows.len()).is_err() {
            return refused(format!("{} rows in one call, the limit is {}", rows.len(), u32::MAX));
        }
        self.check_rows(rows)?;
        Ok((numbers, row_bytes))
    }

    fn check_rows(&self, rows: &[RowRef]) -> Result<(), Error> {
        let shards = self.target.manifest.shard_count();
        let mut last = (u32::MAX, 0);
        for row in rows {
            if row.shard != last.0 && row.shard < shards {
                last = (row.shard, self.target.manifest.shard(row.shard).rows);
            }
            if row.shard != last.0 || row.row >= last.1 {
                let (shard, row) = (row.shard, row.row);
                let why = format!("there is no row {row} in a shard {shard} of {shards} shards");
                return Err(Error::new(ErrorKind::InvalidArgument, "cannot gather").because(why));
            }
        }
        Ok(())
    }
}

/// Copies the rows of mapped shards into the batch. The places of those that are not mapped, and of
/// those whose mapped bytes are damaged.
fn copy_mapped(
    session: &Session,
    rows: &[RowRef],
    tensors: &[u16],
    batch: &mut Batch<'_, '_>,
) -> (Vec<u32>, Vec<u32>) {
    let slots = &session.slots;
    if slots.is_empty() {
        return ((0..).take(rows.len()).collect(), Vec::new());
    }
    let (mut missing, mut damaged) = (Vec::new(), Vec::new());
    for (place, row) in (0..).zip(rows) {
        let mapped = slots.get(row.shard);
        // A row that is not copied here must be fetched: no other way leads out of this loop's body.
        let Some(extent) = mapped.as_ref().and_then(|map| map.as_deref()) else {
            missing.push(place);
            continue;
        };
        if let Err(corrupt) = copy_row(extent, *row, place, tensors, batch) {
            tracing::warn!(shard = row.shard, %corrupt, "a mapped row is damaged: it is fetched anew");
            slots.take(row.shard, process::uptime() + ASK_AGAIN_CORRUPT);
            damaged.push(place);
        }
    }
    (missing, damaged)
}

fn copy_row(
    extent: &Attached,
    row: RowRef,
    place: u32,
    tensors: &[u16],
    batch: &mut Batch<'_, '_>,
) -> Result<(), larder_extent::CorruptRow> {
    for (slot, &tensor) in tensors.iter().enumerate() {
        let row_bytes = batch.row_bytes[slot];
        let target = &mut batch.out[slot][place as usize * row_bytes..][..row_bytes];
        extent.copy_row_verified(tensor.into(), row.row.into(), target)?;
    }
    Ok(())
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("name", &self.target.name)
            .field("cluster", &self.target.cluster)
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
