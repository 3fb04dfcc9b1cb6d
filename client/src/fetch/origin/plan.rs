//! Plans the reads of the origin for rows.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use larder_base::limits;
use larder_dataset::{FetchError, Origin, RowPlaces, RowRead, RowSource, RowsRead, ShardChecksums};
use larder_wire::data::RowRef;

use crate::remote::Job;

/// The most bytes of one read, the size of a node's fill part. With the limit on reads at once it
/// bounds memory. A single row may be larger.
const READ_BYTES_MAX: u64 = limits::FILL_PART_BYTES;

/// Some rows of a job, and how their bytes are had.
pub(super) enum Read {
    /// Rows of any tensors that one range of an object has. Each with its slot and its place in the
    /// batch.
    Range(RowsRead<(usize, u32)>),
    /// Adjacent units of a tensor, to be compared with their checksums.
    Units(Units),
    /// A row that stands in a leaf.
    Value { slot: usize, at: u32, row: RowRef, tensor: usize },
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
            Self::Units(units) => {
                let place = (units.shard, units.tensor);
                let leaf = leaf_of(units.shard);
                origin.read_region(places.manifest(), leaf, place, &units.region()).await
            }
            &Self::Value { row: RowRef { shard, row }, tensor, .. } => {
                origin.read_row(places.manifest(), leaf_of(shard), (shard, row), tensor).await
            }
        }
    }

    /// Compares the bytes of the read with their checksums, if it has any.
    pub(super) fn compare(&self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::Units(units) => units.compare(bytes),
            Self::Range(_) | Self::Value { .. } => Ok(()),
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
            &Self::Value { slot, at, .. } => vec![(slot, at, bytes)],
        }
    }

    /// One of its rows.
    pub(super) fn first_row(&self, asked: Asked<'_>) -> RowRef {
        match self {
            Self::Range(read) => asked.rows[read.rows[0].1.1 as usize],
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
    for &at in order {
        let row @ RowRef { shard, row: number } = asked.rows[at as usize];
        let leaf = asked.places.leaf_of(shard).expect("the leaf of a row is held");
        for slot in slots.clone() {
            let tensor = usize::from(asked.tensors[slot]);
            match asked.places.manifest().row_source(leaf, (shard, number), tensor) {
                RowSource::Object(read) => rows.push((leaf.number(), read, (slot, at))),
                RowSource::Value(_) => reads.push(Read::Value { slot, at, row, tensor }),
            }
        }
    }
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
        let (begin, bytes) = asked.places.row(shard, asked.rows[at as usize].row, tensor);
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
