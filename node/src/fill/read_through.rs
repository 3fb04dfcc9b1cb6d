//! Reads single rows by range, for shards that will not be kept.
//!
//! Filling a whole shard for one row would read the dataset many times over. So rows of such shards
//! are read on request, neighbours together, and are not kept. A row that is made costs its whole
//! block, once a request.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{Error, ErrorKind, RowRef, limits};
use larder_dataset::{BlockRead, RowOrigin, RowPlaces, RowRead, RowsRead};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::maker::{alone, cannot_be_made};
use super::{Asking, Maker, Reader};
use crate::cache::Counters;
use crate::dataset::Dataset;
use crate::dataset::bucket::RANGE_READS_MAX;
use crate::fill::{ByteSink, ObjectRange, Piece};

/// Staging memory is counted in pages, so that a permit count fits 32 bits.
const RESERVED_UNIT_BYTES: usize = 4096;

/// One row of one tensor, and its place in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowWanted {
    /// The row.
    pub(crate) row: RowRef,
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
    maker: Arc<Maker>,
    staging: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl ReadThrough {
    pub(crate) fn new(
        runtime: Handle,
        reader: Arc<Reader>,
        maker: Arc<Maker>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            runtime,
            reader,
            maker,
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

    /// Reads `rows` to their places in `target`, which must not overlap. `places` are those of the
    /// rows' shards. Blocks; not for async tasks.
    ///
    /// # Errors
    /// The origin's error after retries. The contents of `target` are then undefined.
    ///
    /// # Panics
    /// The dataset has no such shard, row or tensor, or the leaf of a shard is missing in `places`.
    pub(crate) fn read_rows(
        &self,
        dataset: &Dataset,
        places: &RowPlaces,
        rows: &[RowWanted],
        target: &mut [u8],
    ) -> Result<(), Error> {
        let (pieces, blocks) = pieces(places, rows, target)?;
        for block in blocks {
            self.make_rows(dataset, places, block)?;
        }
        let reads = RowsRead::join(pieces, limits::FILL_PART_BYTES);
        let reads = reads.into_iter().map(|read| async move {
            let (object, range) = (read.object, read.range.clone());
            let leaf = places.leaf_of_number(read.leaf).expect("the leaf of the row is held");
            let wanted = ObjectRange { leaf, object, range };
            let mut target = RowPieces { at: read.range.start, read };
            let asking = Asking::in_turn(&dataset.bucket().ranges);
            self.reader.read(dataset, &wanted, asking, &mut target).await
        });
        let reading = stream::iter(reads).buffer_unordered(RANGE_READS_MAX);
        let read = self.runtime.block_on(reading.try_collect::<()>());
        self.counters.rows_by_range.add(rows.len() as u64);
        read.map_err(|gave_up| gave_up.why)
    }

    /// Makes the rows of a block.
    fn make_rows(
        &self,
        dataset: &Dataset,
        places: &RowPlaces,
        mut wanted: BlockWanted<'_>,
    ) -> Result<(), Error> {
        let leaf = places.leaf_of(wanted.shard).expect("the leaf of the row is held");
        let read = alone(wanted.block.clone());
        let (gate, urgency) = (&dataset.bucket().ranges, Arc::default());
        let reading = self.maker.read(dataset, leaf, &read, gate, &urgency);
        let stored = self.runtime.block_on(reading).map_err(|gave_up| gave_up.why)?;
        wanted.rows.sort_unstable_by_key(|(place, _)| place.start);
        let (block, manifest) = (&wanted.block, places.manifest());
        let made = manifest.make_into(leaf, wanted.shard, block, &stored.bytes, &mut wanted.rows);
        made.map_err(|damaged| cannot_be_made(block, damaged).why)
    }

    /// Reads the bytes of one row from `offset` on, as many as fill `target`. Ignores the place in
    /// `wanted`. Blocks; not for async tasks.
    ///
    /// # Errors
    /// As [`read_rows`](Self::read_rows).
    ///
    /// # Panics
    /// As [`read_rows`](Self::read_rows).
    pub(crate) fn read_piece(
        &self,
        dataset: &Dataset,
        places: &RowPlaces,
        wanted: &RowWanted,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let shard = wanted.row.shard;
        let leaf = places.leaf_of(shard).expect("the leaf of the row is held");
        let bytes = target.len() as u64;
        let whole = match source(places, wanted) {
            RowOrigin::Object(whole) => whole,
            RowOrigin::Block(block, place) => {
                let is_last = place.start + offset + bytes == place.end;
                let begin = place.start + offset;
                let rows = vec![(begin..begin + bytes, target)];
                let wanted = BlockWanted { shard, block, rows };
                self.make_rows(dataset, places, wanted)?;
                self.counters.rows_by_range.add(u64::from(is_last));
                return Ok(());
            }
            RowOrigin::Value(value) => {
                let begin = usize::try_from(offset).expect("a row in memory");
                target.copy_from_slice(&value[begin..begin + target.len()]);
                return Ok(());
            }
        };
        let begin = whole.offset + offset;
        let wanted = ObjectRange { leaf, object: whole.object, range: begin..begin + bytes };
        let mut piece = Piece::new(target);
        let asking = Asking::in_turn(&dataset.bucket().ranges);
        let reading = self.reader.read(dataset, &wanted, asking, &mut piece);
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

fn source<'a>(places: &'a RowPlaces, wanted: &RowWanted) -> RowOrigin<'a> {
    let leaf = places.leaf_of(wanted.row.shard).expect("the leaf of the row is held");
    places.manifest().row_source(leaf, wanted.row, wanted.tensor)
}

/// A row to read: the number of its leaf, its place in an object, and its memory.
type Wanted<'a> = (u32, RowRead, &'a mut [u8]);

/// Rows of a block to make: each with its place in the region, and its memory.
struct BlockWanted<'a> {
    shard: u32,
    block: BlockRead,
    rows: Vec<(Range<u64>, &'a mut [u8])>,
}

/// Splits the target into one piece per row. Fills the pieces of rows that stand in a leaf, and
/// returns all others: those to read, and those to make.
fn pieces<'a>(
    places: &RowPlaces,
    rows: &[RowWanted],
    target: &'a mut [u8],
) -> Result<(Vec<Wanted<'a>>, Vec<BlockWanted<'a>>), Error> {
    let mut rows: Vec<&RowWanted> = rows.iter().collect();
    rows.sort_unstable_by_key(|wanted| wanted.at);
    let mut reads = Vec::with_capacity(rows.len());
    let mut blocks: BTreeMap<_, BlockWanted<'a>> = BTreeMap::new();
    let (mut rest, mut done) = (target, 0);
    for wanted in rows {
        let &RowWanted { row, tensor, at } = wanted;
        let (_, bytes) = places.row(row, tensor);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let piece = at.checked_sub(done).and_then(|gap| {
            let (_, after) = std::mem::take(&mut rest).split_at_mut_checked(gap)?;
            after.split_at_mut_checked(bytes)
        });
        let (piece, after) = piece.ok_or_else(|| {
            let message = format!("rows overlap, or pass the end of their target, at byte {at}");
            Error::new(ErrorKind::Internal, message)
        })?;
        (rest, done) = (after, at + bytes);
        match source(places, wanted) {
            RowOrigin::Value(value) => piece.copy_from_slice(value),
            RowOrigin::Block(block, place) => {
                let name = (row.shard, tensor, block.region.start);
                let new = || BlockWanted { shard: row.shard, block, rows: Vec::new() };
                blocks.entry(name).or_insert_with(new).rows.push((place, piece));
            }
            RowOrigin::Object(read) => {
                let leaf = places.leaf_of(row.shard).expect("the leaf of the row is held");
                reads.push((leaf.number(), read, piece));
            }
        }
    }
    Ok((reads, blocks.into_values().collect()))
}

/// The memory of rows that one read yields.
struct RowPieces<'a> {
    read: RowsRead<&'a mut [u8]>,
    /// The offset in the object of the next byte to come.
    at: u64,
}

impl ByteSink for RowPieces<'_> {
    fn begin(&mut self) {
        self.at = self.read.range.start;
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.read.scatter(self.at, bytes, |piece, offset, bytes| {
            let begin = usize::try_from(offset).expect("a row in memory");
            piece[begin..begin + bytes.len()].copy_from_slice(bytes);
        });
        self.at += bytes.len() as u64;
        Ok(())
    }
}
