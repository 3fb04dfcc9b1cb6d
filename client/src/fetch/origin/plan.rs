//! Plans the reads of the origin for rows.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use larder_base::{RegionRef, RowRef, limits};
use larder_dataset::{
    BlockRead, FetchError, Origin, RowOrigin, RowPlaces, RowRead, RowsRead, ShardChecksums,
};
use tokio::sync::Semaphore;

use crate::remote::Job;

/// The most bytes of one read, the size of a node's fill part. With the limit on reads at once it
/// bounds memory. A single row may be larger.
const READ_BYTES_MAX: u64 = limits::FILL_PART_BYTES;

/// Blocks in memory at once, over all reads of a process.
const MADE_AT_ONCE: usize = 2;

/// Some rows of a job, and how their bytes are had.
pub(super) enum Read {
    /// Rows of any tensors that one range of an object has. Each with its slot and its place in the
    /// batch.
    Range(RowsRead<(usize, u32)>),
    /// Adjacent units of a tensor, to be compared with their checksums.
    Units(Units),
    /// Rows of a block, which are made with all others of it.
    Made(Made),
    /// A row that stands in a leaf.
    Value { slot: usize, at: u32, row: RowRef, tensor: usize },
}

/// Rows of one block of a tensor.
pub(super) struct Made {
    slot: usize,
    shard: u32,
    block: BlockRead,
    /// The rows: place in the batch, and bytes of the region.
    rows: Vec<(u32, Range<u64>)>,
}

impl Made {
    /// Reads the block, and returns the bytes of the rows, back to back.
    async fn perform(&self, origin: &Origin, places: &RowPlaces) -> Result<Vec<u8>, FetchError> {
        // A block takes as much memory as many reads. So few are in memory at once.
        static TURNS: Semaphore = Semaphore::const_new(MADE_AT_ONCE);
        let _turn = TURNS.acquire().await;
        let leaf = places.leaf_of(self.shard).expect("the leaf of a row is held");
        let Self { block, rows, shard, .. } = self;
        let stored = match block.range.is_empty() {
            true => Vec::new(),
            false => origin.read_bytes(leaf, block.object, &block.range).await?,
        };
        let length = |range: &Range<u64>| index(range.end - range.start);
        let mut bytes = vec![0; rows.iter().map(|(_, range)| length(range)).sum()];
        let (mut rest, mut targets) = (&mut *bytes, Vec::with_capacity(rows.len()));
        for (_, range) in rows {
            let (row, after) = rest.split_at_mut(length(range));
            targets.push((range.clone(), row));
            rest = after;
        }
        places.manifest().make_into(leaf, *shard, block, &stored, &mut targets)?;
        Ok(bytes)
    }
}

/// Adjacent checksum units of a tensor of one shard.
pub(super) struct Units {
    slot: usize,
    tensor: usize,
    shard: u32,
    units: Range<u64>,
    /// The rows: place in the batch, and offset and length in their region.
    rows: Vec<(u32, u64, u64)>,
    sums: Arc<ShardChecksums>,
}

impl Units {
    /// The bytes of the region that the units cover.
    fn region(&self) -> Range<u64> {
        let plan = self.sums.units(self.tensor);
        plan.bytes_of(self.units.start).start..plan.bytes_of(self.units.end - 1).end
    }

    /// Compares the checksums. The error names the unit that differs.
    fn compare(&self, bytes: &[u8]) -> Result<(), String> {
        let (plan, begin) = (self.sums.units(self.tensor), self.region().start);
        for unit in self.units.clone() {
            let range = plan.bytes_of(unit);
            let [start, end] = [range.start - begin, range.end - begin].map(index);
            if !self.sums.holds(self.tensor, unit, &bytes[start..end]) {
                let Self { shard, tensor, .. } = self;
                return Err(format!("unit {unit} of tensor {tensor} of shard {shard}"));
            }
        }
        Ok(())
    }
}

impl Read {
    /// Performs the read in one attempt.
    pub(super) async fn perform(
        &self,
        origin: &Origin,
        places: &RowPlaces,
    ) -> Result<Vec<u8>, FetchError> {
        let leaf_of = |shard| places.leaf_of(shard).expect("the leaf of a row is held");
        match self {
            Self::Range(read) => {
                let leaf = places.leaf_of_number(read.leaf).expect("the leaf of a row is held");
                let mut bytes = Vec::with_capacity(index(read.range.end - read.range.start));
                let mut sink = |chunk: &[u8]| {
                    bytes.extend_from_slice(chunk);
                    ControlFlow::Continue(())
                };
                origin.read_exact_range(leaf, read.object, &read.range, &mut sink).await?;
                Ok(bytes)
            }
            Self::Made(made) => made.perform(origin, places).await,
            Self::Units(units) => {
                let &Units { shard, tensor, .. } = units;
                let place = RegionRef { shard, tensor };
                let leaf = leaf_of(shard);
                origin.read_region(places.manifest(), leaf, place, &units.region()).await
            }
            &Self::Value { row, tensor, .. } => {
                origin.read_row(places.manifest(), leaf_of(row.shard), row, tensor).await
            }
        }
    }

    /// Compares the bytes of the read with their checksums, if it has any.
    pub(super) fn compare(&self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::Units(units) => units.compare(bytes),
            Self::Range(_) | Self::Made(_) | Self::Value { .. } => Ok(()),
        }
    }

    /// The rows in the bytes of the read: slot, place in the batch, and bytes.
    pub(super) fn rows_of<'a>(&'a self, bytes: &'a [u8]) -> Vec<(usize, u32, &'a [u8])> {
        let cut = |begin: u64, length: u64| &bytes[index(begin)..index(begin + length)];
        match self {
            Self::Range(read) => {
                let row = |(row, (slot, at)): &(RowRead, (usize, u32))| {
                    (*slot, *at, cut(row.offset - read.range.start, row.bytes))
                };
                read.rows.iter().map(row).collect()
            }
            Self::Units(units) => {
                let first = units.region().start;
                let row = |&(at, begin, length): &(u32, u64, u64)| {
                    (units.slot, at, cut(begin - first, length))
                };
                units.rows.iter().map(row).collect()
            }
            Self::Made(made) => {
                let mut begin = 0;
                let row = |(at, range): &(u32, Range<u64>)| {
                    let length = range.end - range.start;
                    begin += length;
                    (made.slot, *at, cut(begin - length, length))
                };
                made.rows.iter().map(row).collect()
            }
            &Self::Value { slot, at, .. } => vec![(slot, at, bytes)],
        }
    }

    /// One of its rows.
    pub(super) fn first_row(&self, asked: Asked<'_>) -> RowRef {
        match self {
            Self::Range(read) => asked.rows[read.rows[0].1.1 as usize],
            Self::Made(made) => asked.rows[made.rows[0].0 as usize],
            Self::Units(units) => asked.rows[units.rows[0].0 as usize],
            Self::Value { row, .. } => *row,
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("what is read is in memory")
}

/// The rows and tensors of a gather.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) rows: &'a [RowRef],
    pub(super) tensors: &'a [u16],
    pub(super) places: &'a RowPlaces,
}

impl Asked<'_> {
    /// The places of a job's rows, in the order of the dataset.
    pub(super) fn in_order(self, job: &Job) -> Vec<u32> {
        let mut order = job.at.clone();
        order.sort_unstable_by_key(|&at| self.rows[at as usize]);
        order
    }

    pub(super) fn shard(self, at: u32) -> u32 {
        self.rows[at as usize].shard
    }
}

/// Plans the reads of these rows of some tensors. Rows that lie close together in an object share a
/// read. Rows without bytes need no read.
pub(super) fn plain(order: &[u32], slots: Range<usize>, asked: Asked<'_>) -> Vec<Read> {
    let (mut reads, mut rows) = (Vec::new(), Vec::new());
    let mut made: BTreeMap<_, Made> = BTreeMap::new();
    for &at in order {
        let row @ RowRef { shard, .. } = asked.rows[at as usize];
        let leaf = asked.places.leaf_of(shard).expect("the leaf of a row is held");
        for slot in slots.clone() {
            let tensor = usize::from(asked.tensors[slot]);
            match asked.places.manifest().row_source(leaf, row, tensor) {
                RowOrigin::Object(read) => rows.push((leaf.number(), read, (slot, at))),
                RowOrigin::Block(_, range) if range.is_empty() => {}
                RowOrigin::Block(block, range) => {
                    let name = (slot, shard, block.region.start);
                    let new = || Made { slot, shard, block, rows: Vec::new() };
                    made.entry(name).or_insert_with(new).rows.push((at, range));
                }
                RowOrigin::Value(_) => reads.push(Read::Value { slot, at, row, tensor }),
            }
        }
    }
    reads.extend(made.into_values().map(Read::Made));
    reads.extend(RowsRead::join(rows, READ_BYTES_MAX).into_iter().map(Read::Range));
    reads
}

/// Plans the reads of one tensor of one shard. Reads whole units, so that all bytes can be checked.
pub(super) fn checked(
    order: &[u32],
    slot: usize,
    asked: Asked<'_>,
    sums: &Arc<ShardChecksums>,
) -> Vec<Read> {
    let (tensor, shard) = (usize::from(asked.tensors[slot]), asked.shard(order[0]));
    let plan = sums.units(tensor);
    let mut runs: Vec<Units> = Vec::new();
    for &at in order {
        let (begin, bytes) = asked.places.row(asked.rows[at as usize], tensor);
        if bytes == 0 {
            continue;
        }
        let own = plan.covering(&(begin..begin + bytes));
        if let Some(Units { units, rows, .. }) = runs.last_mut()
            && own.start <= units.end
            && plan.bytes_of(own.end - 1).end - plan.bytes_of(units.start).start <= READ_BYTES_MAX
        {
            units.end = own.end.max(units.end);
            rows.push((at, begin, bytes));
            continue;
        }
        let (rows, sums) = (vec![(at, begin, bytes)], Arc::clone(sums));
        runs.push(Units { slot, tensor, shard, units: own, rows, sums });
    }
    runs.into_iter().map(Read::Units).collect()
}
