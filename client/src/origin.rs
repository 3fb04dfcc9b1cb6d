//! Rows from the origin, when no node answers.
//!
//! Rows that lie side by side in an object are read together. Everything that comes has passed the
//! strict read of `larder-dataset`: the version of the manifest, exactly the range, exactly its
//! length.
//!
//! Thread rule: blocks its caller; reads run side by side on the runtime, a bounded number of them.
//! Non-goals: no retries (the caller goes round again), no caching.

use std::{
    ops::{ControlFlow, Range},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_dataset::{FetchError, Manifest, Origin, OriginError, PartRead};
use larder_wire::{ErrorKind, data::RowRef, limits};

use crate::{
    Copies, Error,
    patience::CancelToken,
    process::{self, PerProcess},
    remote::{Job, Wanted},
    runtime,
};

/// Most bytes of one read: as large as the parts in which nodes fill, to which memory is bounded
/// together with the number of reads. A single row may be larger.
const READ_BYTES_MAX: u64 = limits::FILL_PART_BYTES;

/// The way to the origin with this process's own credentials, made at first use.
pub(crate) struct Fallback {
    origin: PerProcess<tokio::sync::OnceCell<Origin>>,
}

/// The longest of several reads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LongestRead {
    pub(crate) waited: Duration,
    /// Of its first row.
    pub(crate) shard: u32,
}

/// How often a byte is moved: out of the connection, into what is collected of it, into the batch.
const COPIES: u64 = 3;

/// One ranged read, and the rows in it.
struct Read {
    part: PartRead,
    slot: usize,
    /// Places in the batch and the rows' offsets within what is read.
    rows: Vec<(u32, usize)>,
}

impl Fallback {
    pub(crate) fn new() -> Self {
        Self { origin: PerProcess::new() }
    }

    /// Fetches the rows of a job into the batch.
    pub(crate) fn read(
        &self,
        manifest: &Manifest,
        job: &Job,
        wanted: &mut Wanted<'_, '_>,
        cancel: &CancelToken,
    ) -> Result<LongestRead, Error> {
        let mut reads = Vec::new();
        for slot in job.slots.clone() {
            plan(manifest, job, slot, wanted.rows, usize::from(wanted.tensors[slot]), &mut reads);
        }
        let read = runtime::block_on(cancel.unless(self.run(manifest, reads, wanted)))??;
        metrics::counter!("larder_client_origin_fallback_rows").increment(job.at.len() as u64);
        Ok(read)
    }

    async fn run(
        &self,
        manifest: &Manifest,
        reads: Vec<Read>,
        wanted: &mut Wanted<'_, '_>,
    ) -> Result<LongestRead, Error> {
        let cell = self.origin.get(|_| tokio::sync::OnceCell::new());
        let origin = cell.get_or_try_init(|| Origin::connect(manifest.uri())).await;
        let origin = origin.map_err(from_origin)?;
        let mut done = stream::iter(reads)
            .map(|read| fetch(origin, manifest, read))
            .buffer_unordered(limits::ORIGIN_FALLBACK_READS_MAX);
        let mut longest = LongestRead::default();
        while let Some((read, bytes, waited)) = done.try_next().await? {
            if waited >= longest.waited {
                let shard = wanted.rows[read.rows[0].0 as usize].shard;
                longest = LongestRead { waited, shard };
            }
            let row_bytes = wanted.batch.row_bytes[read.slot];
            wanted.copies += Copies::origin((read.rows.len() * row_bytes) as u64, COPIES);
            for (at, offset) in read.rows {
                let row = &bytes[offset..offset + row_bytes];
                wanted.batch.out[read.slot][at as usize * row_bytes..][..row_bytes]
                    .copy_from_slice(row);
            }
        }
        Ok(longest)
    }
}

/// What a read brought, and how long that took. An answer that would be final (denied, changed, gone)
/// is asked for once more, as nodes do.
async fn fetch(
    origin: &Origin,
    manifest: &Manifest,
    read: Read,
) -> Result<(Read, Vec<u8>, Duration), Error> {
    let begun = process::now();
    let mut fetched = fetch_once(origin, manifest, &read.part).await;
    if fetched.as_ref().is_err_and(FetchError::may_be_spurious) {
        tokio::time::sleep(limits::ORIGIN_CONFIRM_WAIT).await;
        fetched = fetch_once(origin, manifest, &read.part).await;
    }
    fetched.map(|bytes| (read, bytes, process::now() - begun)).map_err(from_fetch)
}

async fn fetch_once(
    origin: &Origin,
    manifest: &Manifest,
    part: &PartRead,
) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::with_capacity(usize::try_from(part.bytes).unwrap_or(0));
    let mut sink = |chunk: &[u8]| {
        bytes.extend_from_slice(chunk);
        ControlFlow::Continue(())
    };
    origin.read_exact_range(manifest, part, &mut sink).await?;
    Ok(bytes)
}

/// Appends the reads for one tensor: rows in the order of the dataset, those that touch or overlap
/// in an object together.
fn plan(
    manifest: &Manifest,
    job: &Job,
    slot: usize,
    rows: &[RowRef],
    tensor: usize,
    reads: &mut Vec<Read>,
) {
    let mut order = job.at.clone();
    order.sort_unstable_by_key(|&at| rows[at as usize]);
    let mut open: Option<Read> = None;
    for at in order {
        let row = rows[at as usize];
        let part = manifest.row_read(row.shard, row.row, tensor);
        if let Some(read) = &mut open
            && let Some(offset) = join(&mut read.part, &part)
        {
            read.rows.push((at, offset));
            continue;
        }
        reads.extend(open.replace(Read { part, slot, rows: vec![(at, 0)] }));
    }
    reads.extend(open);
}

/// Makes a read cover a row too, if the row touches or overlaps it and it does not grow too large:
/// the row's offset in it.
fn join(read: &mut PartRead, row: &PartRead) -> Option<usize> {
    let span =
        |part: &PartRead| -> Range<u64> { part.object_offset..part.object_offset + part.bytes };
    let (have, want) = (span(read), span(row));
    let touches = row.object == read.object && (have.start..=have.end).contains(&want.start);
    let bytes = have.end.max(want.end) - have.start;
    if !touches || bytes > READ_BYTES_MAX {
        return None;
    }
    read.bytes = bytes;
    usize::try_from(want.start - have.start).ok()
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
