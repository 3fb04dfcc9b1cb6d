//! Reads single rows by range, for shards that will not be kept.
//!
//! Filling a whole shard for one row would read the dataset many times over. So rows of such shards
//! are read on request, neighbours together, and are not kept.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{Error, ErrorKind, limits};
use larder_dataset::PartRead;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Reader;
use crate::cache::Counters;
use crate::dataset::Dataset;
use crate::fill::Piece;

/// Staging memory is counted in pages, so that a permit count fits 32 bits.
const RESERVED_UNIT_BYTES: usize = 4096;

/// One row of one tensor, and its place in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowWanted {
    /// The shard.
    pub(crate) shard: u32,
    /// The row in the shard.
    pub(crate) row: u32,
    /// The index of the tensor.
    pub(crate) tensor: usize,
    /// The byte of the target at which the row begins.
    pub(crate) at: usize,
}

/// Reads rows by range for the threads that serve them.
#[derive(Debug)]
pub(crate) struct ReadThrough {
    runtime: Handle,
    reader: Arc<Reader>,
    gets: Semaphore,
    staging: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl ReadThrough {
    pub(crate) fn new(runtime: Handle, reader: Arc<Reader>, counters: Arc<Counters>) -> Self {
        Self {
            runtime,
            reader,
            gets: Semaphore::new(limits::RANGE_READS_MAX),
            staging: Arc::new(Semaphore::new(units(limits::RANGE_STAGING_BYTES))),
            counters,
        }
    }

    /// Waits until `bytes` of staging memory may be allocated; all threads of the node share the
    /// limit. A row larger than the limit gets all of it. Dropping the permit gives the memory
    /// back. Blocks; not for async tasks.
    pub(crate) fn reserve(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = units(bytes.min(limits::RANGE_STAGING_BYTES));
        let units = u32::try_from(units).expect("all of the staging memory is fewer pages");
        let staging = Arc::clone(&self.staging);
        let reserved = self.runtime.block_on(staging.acquire_many_owned(units));
        reserved.expect("the semaphore is never closed")
    }

    /// Returns true if no reservation is held.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.staging.available_permits() == units(limits::RANGE_STAGING_BYTES)
    }

    /// Reads `rows` to their places in `target`, which must not overlap. Blocks; not for async
    /// tasks.
    ///
    /// # Errors
    /// The origin's error after retries. The contents of `target` are then undefined.
    ///
    /// # Panics
    /// The dataset has no such shard, row or tensor.
    pub(crate) fn read_rows(
        &self,
        dataset: &Dataset,
        rows: &[RowWanted],
        target: &mut [u8],
    ) -> Result<(), Error> {
        let reads = merged(dataset, rows);
        let pieces = pieces(reads, target)?;
        let reads = pieces.into_iter().map(|(read, piece)| async move {
            self.reader.read(dataset, &read, &self.gets, &mut Piece::new(piece)).await
        });
        let reading = stream::iter(reads).buffer_unordered(limits::RANGE_READS_MAX);
        let read = self.runtime.block_on(reading.try_collect::<()>());
        self.counters.rows_by_range.add(rows.len() as u64);
        read.map_err(|gave_up| gave_up.why)
    }

    /// Reads the bytes of one row from `offset` on, as many as fill `target`. Ignores the place in
    /// `row`. Blocks; not for async tasks.
    ///
    /// # Errors
    /// As [`read_rows`](Self::read_rows).
    ///
    /// # Panics
    /// The dataset has no such shard, row or tensor.
    pub(crate) fn read_piece(
        &self,
        dataset: &Dataset,
        row: &RowWanted,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let whole = dataset.manifest().row_read(row.shard, row.row, row.tensor);
        let bytes = target.len() as u64;
        let read = PartRead { object_offset: whole.object_offset + offset, bytes, ..whole };
        let mut piece = Piece::new(target);
        let reading = self.reader.read(dataset, &read, &self.gets, &mut piece);
        self.runtime.block_on(reading).map_err(|gave_up| gave_up.why)?;
        if offset + bytes == whole.bytes {
            self.counters.rows_by_range.add(1);
        }
        Ok(())
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(RESERVED_UNIT_BYTES)
}

/// A read, and the byte of the target at which it begins.
type Placed = (PartRead, usize);

/// Returns the reads for rows, in the order of the target. Merges rows that are neighbours both in
/// the object and in the target.
fn merged(dataset: &Dataset, rows: &[RowWanted]) -> Vec<Placed> {
    let read =
        |row: &RowWanted| (dataset.manifest().row_read(row.shard, row.row, row.tensor), row.at);
    let mut reads: Vec<Placed> = rows.iter().map(read).filter(|(read, _)| read.bytes > 0).collect();
    reads.sort_unstable_by_key(|&(_, at)| at);
    let mut merged: Vec<Placed> = Vec::with_capacity(reads.len());
    for (read, at) in reads {
        match merged.last_mut() {
            Some((before, begin)) if continues(before, *begin, &read, at) => {
                before.bytes += read.bytes;
            }
            _ => merged.push((read, at)),
        }
    }
    merged
}

fn continues(before: &PartRead, begin: usize, read: &PartRead, at: usize) -> bool {
    before.object == read.object
        && before.object_offset + before.bytes == read.object_offset
        && begin as u64 + before.bytes == at as u64
        && before.bytes + read.bytes <= limits::FILL_PART_BYTES
}

/// Splits the target into one piece per read.
fn pieces(reads: Vec<Placed>, target: &mut [u8]) -> Result<Vec<(PartRead, &mut [u8])>, Error> {
    let mut pieces = Vec::with_capacity(reads.len());
    let (mut rest, mut done) = (target, 0);
    for (read, at) in reads {
        let bytes = usize::try_from(read.bytes).unwrap_or(usize::MAX);
        let piece = at.checked_sub(done).and_then(|gap| {
            let (_, after) = std::mem::take(&mut rest).split_at_mut_checked(gap)?;
            after.split_at_mut_checked(bytes)
        });
        let (piece, after) = piece.ok_or_else(|| {
            let message = format!("rows overlap, or pass the end of their target, at byte {at}");
            Error::new(ErrorKind::Internal, message)
        })?;
        pieces.push((read, piece));
        (rest, done) = (after, at + bytes);
    }
    Ok(pieces)
}
