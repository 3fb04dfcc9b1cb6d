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
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{ErrorKind, limits};
use larder_dataset::{
    DatasetError, FetchError, Manifest, Origin, OriginUri, RowChecksums, RowPlaces, ShardChecksums,
};
use tokio::sync::OnceCell;

use super::Leaves;
use crate::{
    CopyStats, Error,
    deadline::CancelToken,
    process::{self, PerProcess},
    remote::{Job, Wanted},
    runtime,
};
use plan::{Asked, Read};

/// Bytes of row checksums that a client keeps while it reads from the origin. Holds those of about
/// 250 shards of 64 MiB with rows of 4 KiB.
const ROW_CHECKSUM_BYTES_MAX: usize = 16 << 20;

/// Reads straight from the origin in flight at once when no node answers.
const ORIGIN_FALLBACK_READS_MAX: usize = 16;

/// How often a byte is moved: from the connection, into a collected read, into the batch.
const COPIES: u64 = 3;

/// Reads rows from the origin, and compares them with checksums if the snapshot has any.
pub(crate) struct Fallback {
    /// The place of the manifest, if it is not beside the data.
    manifest_at: Option<OriginUri>,
    tables: PerProcess<Tables>,
}

/// The checksums of one snapshot, if it has any, and the most recent shards of them.
#[derive(Default)]
struct Tables {
    found: OnceCell<Option<RowChecksums>>,
    kept: Mutex<KeptChecksums>,
}

#[derive(Default)]
struct KeptChecksums {
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
        Self { manifest_at, tables: PerProcess::new() }
    }

    /// Reads the rows of a job into the batch. Calls `tell` every second meanwhile.
    pub(crate) fn read(
        &self,
        leaves: &Leaves,
        job: &Job,
        wanted: &mut Wanted<'_, '_>,
        cancel: &CancelToken,
        tell: &(dyn Fn() + Sync),
    ) -> Result<LongestRead, Error> {
        let run = telling(self.run(leaves, job, wanted), tell);
        let read = runtime::block_on(cancel.unless(run))???;
        metrics::counter!("larder_client_origin_fallback_rows").increment(job.at.len() as u64);
        Ok(read)
    }

    async fn run(
        &self,
        leaves: &Leaves,
        job: &Job,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<LongestRead, Error> {
        let (manifest, origin) = (leaves.manifest(), &leaves.origin().await?);
        let shards = job.at.iter().map(|&at| wanted.rows[at as usize].shard);
        let places = &leaves.of_shards_at_origin(shards).await?;
        let tables = self.tables.get(|_| Tables::default());
        let checked = tables.are_there(origin, manifest, self.manifest_at.as_ref()).await?;
        let asked = Asked { rows: wanted.rows, tensors: wanted.tensors, places };
        let order = asked.in_order(job);
        let mut reads = Vec::new();
        if checked {
            for group in order.chunk_by(|&a, &b| asked.shard(a) == asked.shard(b)) {
                let sums = tables.shard(manifest, asked.shard(group[0])).await?;
                for slot in job.slots.clone() {
                    reads.extend(plan::checked(group, slot, asked, &sums));
                }
            }
        } else {
            reads = plan::plain(&order, job.slots.clone(), asked);
        }
        let reads = reads.into_iter().map(|read| fetch(origin, places, read));
        let mut done = stream::iter(reads).buffer_unordered(ORIGIN_FALLBACK_READS_MAX);
        let mut longest = LongestRead::default();
        while let Some(done) = done.try_next().await? {
            if done.waited >= longest.waited {
                let shard = done.read.first_row(asked).shard;
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

    fn kept<T>(&self, change: impl FnOnce(&mut KeptChecksums) -> T) -> T {
        change(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeptChecksums {
    /// Keeps the checksums of a shard. Drops all others if the limit is exceeded: an epoch rarely
    /// returns to a shard.
    fn keep(&mut self, shard: u32, sums: &Arc<ShardChecksums>) {
        if self.bytes + sums.bytes() > ROW_CHECKSUM_BYTES_MAX {
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
        let mut bytes = 0;
        for (slot, at, row) in self.read.rows_of(&self.bytes) {
            let place = wanted.batch.lengths[slot].range(at);
            bytes += row.len();
            wanted.batch.out[slot][place].copy_from_slice(row);
        }
        wanted.copies += CopyStats::origin(bytes as u64, COPIES);
    }
}

/// Waits for `work`, and calls `tell` every second meanwhile.
async fn telling<T>(work: impl Future<Output = T>, tell: &(dyn Fn() + Sync)) -> T {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(Duration::from_secs(1), &mut work).await {
            Ok(done) => return done,
            Err(_) => tell(),
        }
    }
}

/// Runs a read, and repeats it once after a checksum mismatch. A second mismatch proves that the
/// origin's bytes differ, not that the transfer damaged them.
async fn fetch(origin: &Origin, places: &RowPlaces, read: Read) -> Result<Done, Error> {
    let begun = process::now();
    let mut differs = None;
    for _ in 0..2 {
        let bytes = fetch_confirmed(origin, places, &read).await.map_err(from_fetch)?;
        match read.compare(&bytes) {
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
    places: &RowPlaces,
    read: &Read,
) -> Result<Vec<u8>, FetchError> {
    let fetched = read.perform(origin, places).await;
    if !fetched.as_ref().is_err_and(FetchError::may_be_spurious) {
        return fetched;
    }
    tokio::time::sleep(limits::ORIGIN_CONFIRM_WAIT).await;
    read.perform(origin, places).await
}

fn from_dataset(error: DatasetError) -> Error {
    let kind = ErrorKind::from(&error);
    Error::new(kind, "cannot read checksums of rows").with_source(error)
}

fn from_fetch(error: FetchError) -> Error {
    let kind = ErrorKind::from(&error);
    let error = Error::new(kind, "cannot read rows from the origin").with_source(error);
    if kind == ErrorKind::DataChanged {
        return error.hint("the objects were changed after indexing: index the dataset again");
    }
    error
}
