//! Reads rows from the origin if no node answers.
//!
//! Adjacent rows of an object are read together. All bytes pass the strict read of
//! `larder-dataset`, which checks the version of the manifest and the exact range and length. If
//! the snapshot was indexed with checksums, those of the rows are checked too.
//!
//! Thread rule: blocks its caller. A bounded number of reads run side by side on the runtime.
//! Non-goals: caching, and retries beyond one confirmation (the caller repeats the call).

mod plan;

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{ErrorKind, limits};
use larder_dataset::{
    DatasetError, FetchError, Manifest, Origin, OriginError, OriginUri, RowChecksums,
    ShardChecksums,
};
use tokio::sync::OnceCell;

use crate::{
    CopyStats, Error,
    deadline::CancelToken,
    process::{self, PerProcess},
    remote::{Job, Wanted},
    runtime,
};
use plan::{Asked, Read};

/// How often a byte is moved: from the connection, into a collected read, into the batch.
const COPIES: u64 = 3;

/// The connection to the origin with this process's credentials, made at first use.
pub(crate) struct Fallback {
    /// The place of the manifest, if it is not beside the data.
    manifest_at: Option<OriginUri>,
    origin: PerProcess<OnceCell<Origin>>,
    tables: PerProcess<Tables>,
}

/// The checksums of one snapshot, if it has any, and the most recent shards of them.
#[derive(Default)]
struct Tables {
    found: OnceCell<Option<RowChecksums>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    shards: HashMap<u32, Arc<ShardChecksums>>,
    bytes: usize,
}

/// The longest of several reads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LongestRead {
    pub(crate) waited: Duration,
    /// The shard of its first row.
    pub(crate) shard: u32,
}

/// A finished read, and the time it took.
struct Done {
    read: Read,
    bytes: Vec<u8>,
    waited: Duration,
}

impl Fallback {
    pub(crate) fn new(manifest_at: Option<OriginUri>) -> Self {
        Self { manifest_at, origin: PerProcess::new(), tables: PerProcess::new() }
    }

    /// Reads the rows of a job into the batch.
    pub(crate) fn read(
        &self,
        manifest: &Manifest,
        job: &Job,
        wanted: &mut Wanted<'_, '_>,
        cancel: &CancelToken,
    ) -> Result<LongestRead, Error> {
        let read = runtime::block_on(cancel.unless(self.run(manifest, job, wanted)))???;
        metrics::counter!("larder_client_origin_fallback_rows").increment(job.at.len() as u64);
        Ok(read)
    }

    async fn run(
        &self,
        manifest: &Manifest,
        job: &Job,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<LongestRead, Error> {
        let cell = self.origin.get(|_| OnceCell::new());
        let origin = cell.get_or_try_init(|| Origin::connect(manifest.uri())).await;
        let origin = origin.map_err(from_origin)?;
        let tables = self.tables.get(|_| Tables::default());
        let checked = tables.are_there(origin, manifest, self.manifest_at.as_ref()).await?;
        let asked = Asked { rows: wanted.rows, tensors: wanted.tensors };
        let order = asked.in_order(job);
        // Without checksums, rows of several shards may be read together.
        let groups: Vec<&[u32]> = match checked {
            true => order.chunk_by(|&a, &b| asked.shard(a) == asked.shard(b)).collect(),
            false => vec![&order],
        };
        let plans = groups.into_iter().map(async |group| {
            let mut reads = Vec::new();
            let sums = match checked {
                true => Some(tables.shard(manifest, asked.shard(group[0])).await?),
                false => None,
            };
            for slot in job.slots.clone() {
                reads.extend(match &sums {
                    Some(sums) => plan::checked(manifest, group, slot, asked, sums),
                    None => plan::plain(manifest, group, slot, asked),
                });
            }
            Ok::<Vec<Read>, Error>(reads)
        });
        let plans: Vec<_> = plans.collect();
        let mut done = stream::iter(plans)
            .buffered(limits::ORIGIN_FALLBACK_READS_MAX)
            .map_ok(|reads| stream::iter(reads.into_iter().map(Ok::<_, Error>)))
            .try_flatten()
            .map_ok(|read| fetch(origin, manifest, read))
            .try_buffer_unordered(limits::ORIGIN_FALLBACK_READS_MAX);
        let mut longest = LongestRead::default();
        while let Some(done) = done.try_next().await? {
            if done.waited >= longest.waited {
                let shard = asked.shard(done.read.rows[0].0);
                longest = LongestRead { waited: done.waited, shard };
            }
            done.put(wanted);
        }
        Ok(longest)
    }
}

impl Tables {
    async fn are_there(
        &self,
        origin: &Origin,
        manifest: &Manifest,
        given: Option<&OriginUri>,
    ) -> Result<bool, Error> {
        let found = self.found.get_or_try_init(async || {
            let found = RowChecksums::find(origin, manifest, given).await.map_err(from_dataset)?;
            let pinned = manifest.shard_count() > 0 && manifest.shard(0).checksum.is_some();
            if pinned && found.is_none() {
                let uri = manifest.uri();
                tracing::warn!(%uri, "the snapshot pins checksums of shards and none of rows: rows read from the origin are not compared with them; index it again with --checksum");
            }
            Ok::<_, Error>(found)
        });
        Ok(found.await?.is_some())
    }

    /// The checksums of a shard. Call [`are_there`](Self::are_there) first.
    async fn shard(&self, manifest: &Manifest, shard: u32) -> Result<Arc<ShardChecksums>, Error> {
        if let Some(kept) = self.kept(|kept| kept.shards.get(&shard).cloned()) {
            return Ok(kept);
        }
        let tables =
            self.found.get().and_then(Option::as_ref).expect("asked after they were found");
        let sums = Arc::new(tables.shard(manifest, shard).await.map_err(from_dataset)?);
        self.kept(|kept| kept.keep(shard, &sums));
        Ok(sums)
    }

    fn kept<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// Keeps the checksums of a shard. Drops all others if the limit is exceeded: an epoch rarely
    /// returns to a shard.
    fn keep(&mut self, shard: u32, sums: &Arc<ShardChecksums>) {
        if self.bytes + sums.bytes() > limits::ROW_CHECKSUM_BYTES_MAX {
            *self = Self::default();
        }
        if self.shards.insert(shard, Arc::clone(sums)).is_none() {
            self.bytes += sums.bytes();
        }
    }
}

impl Done {
    /// Copies the rows to their places.
    fn put(self, wanted: &mut Wanted<'_, '_>) {
        let slot = self.read.slot;
        let mut bytes = 0;
        for (at, offset) in self.read.rows {
            let place = wanted.batch.lengths[slot].range(at);
            let row = &self.bytes[offset..offset + place.len()];
            bytes += row.len();
            wanted.batch.out[slot][place].copy_from_slice(row);
        }
        wanted.copies += CopyStats::origin(bytes as u64, COPIES);
    }
}

/// Runs a read, and repeats it once after a checksum mismatch. A second mismatch proves that the
/// origin's bytes differ, not that the transfer damaged them.
async fn fetch(origin: &Origin, manifest: &Manifest, read: Read) -> Result<Done, Error> {
    let begun = process::now();
    let mut differs = None;
    for _ in 0..2 {
        let bytes = fetch_confirmed(origin, manifest, &read).await.map_err(from_fetch)?;
        match read.check.as_ref().map_or(Ok(()), |check| check.compare(&bytes)) {
            Ok(()) => return Ok(Done { read, bytes, waited: process::now() - begun }),
            Err(which) => differs = Some(which),
        }
    }
    metrics::counter!("larder_client_corrupt_rows").increment(1);
    let what = "rows of the origin are not those that were indexed";
    Err(Error::new(ErrorKind::DataLoss, what)
        .because(format!("{} differs from its checksum", differs.unwrap_or_default()))
        .hint("larder dataset verify says what else differs; index the dataset again if its files were meant to change"))
}

/// Asks once more after a final error (denied, changed, gone), as nodes do.
async fn fetch_confirmed(
    origin: &Origin,
    manifest: &Manifest,
    read: &Read,
) -> Result<Vec<u8>, FetchError> {
    let fetched = fetch_once(origin, manifest, read).await;
    if !fetched.as_ref().is_err_and(FetchError::may_be_spurious) {
        return fetched;
    }
    tokio::time::sleep(limits::ORIGIN_CONFIRM_WAIT).await;
    fetch_once(origin, manifest, read).await
}

async fn fetch_once(
    origin: &Origin,
    manifest: &Manifest,
    read: &Read,
) -> Result<Vec<u8>, FetchError> {
    let size: u64 = read.parts.iter().map(|part| part.bytes).sum();
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    for part in &read.parts {
        let mut sink = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            ControlFlow::Continue(())
        };
        origin.read_exact_range(manifest, part, &mut sink).await?;
    }
    Ok(bytes)
}

fn from_dataset(error: DatasetError) -> Error {
    let kind = ErrorKind::from(&error);
    Error::new(kind, "cannot read checksums of rows").with_source(error)
}

fn from_origin(error: OriginError) -> Error {
    let kind = ErrorKind::from(&error);
    Error::new(kind, "cannot reach the origin").with_source(error)
}

fn from_fetch(error: FetchError) -> Error {
    let kind = ErrorKind::from(&error);
    let error = Error::new(kind, "cannot read rows from the origin").with_source(error);
    if kind == ErrorKind::DataChanged {
        return error.hint("the objects were changed after indexing: index the dataset again");
    }
    error
}
