//! Plans the reads of the origin for rows.

use std::{ops::Range, sync::Arc};

use larder_base::limits;
use larder_dataset::{Manifest, PartRead, ShardChecksums};
use larder_wire::data::RowRef;

use crate::remote::Job;

/// The most bytes of one read, the size of a node's fill part. With the limit on reads at once it
/// bounds memory. A single row may be larger.
const READ_BYTES_MAX: u64 = limits::FILL_PART_BYTES;

pub(super) struct Read {
    /// The ranges to read, back to back.
    pub(super) parts: Vec<PartRead>,
    pub(super) slot: usize,
    /// The rows: place in the batch, and offset in the bytes read.
    pub(super) rows: Vec<(u32, usize)>,
    pub(super) check: Option<Check>,
}

/// Adjacent units of a tensor.
struct Run {
    units: Range<u64>,
    /// The rows: place in the batch, and offset in their region.
    rows: Vec<(u32, u64)>,
}

/// The expected checksums of a read.
pub(super) struct Check {
    sums: Arc<ShardChecksums>,
    shard: u32,
    tensor: usize,
    units: Range<u64>,
}

impl Check {
    /// Compares the checksums. The error names the unit that differs.
    pub(super) fn compare(&self, bytes: &[u8]) -> Result<(), String> {
        let plan = self.sums.units(self.tensor);
        let begin = plan.bytes_of(self.units.start).start;
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

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("what is read is in memory")
}

/// The rows and tensors of a gather.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) rows: &'a [RowRef],
    pub(super) tensors: &'a [u16],
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

/// Plans the reads of one tensor. Rows that touch or overlap in an object share a read. Rows
/// without bytes need no read.
pub(super) fn plain(
    manifest: &Manifest,
    order: &[u32],
    slot: usize,
    asked: Asked<'_>,
) -> Vec<Read> {
    let tensor = usize::from(asked.tensors[slot]);
    let mut reads: Vec<Read> = Vec::new();
    for &at in order {
        let row = asked.rows[at as usize];
        let part = manifest.row_read(row.shard, row.row, tensor);
        if part.bytes == 0 {
            continue;
        }
        if let Some(read) = reads.last_mut()
            && let Some(offset) = join(&mut read.parts[0], &part)
        {
            read.rows.push((at, offset));
            continue;
        }
        reads.push(Read { parts: vec![part], slot, rows: vec![(at, 0)], check: None });
    }
    reads
}

/// Extends a read to cover a row that touches or overlaps it, up to the limit. Returns the row's
/// offset in the read.
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

/// Plans the reads of one tensor of one shard. Reads whole units, so that all bytes can be checked.
pub(super) fn checked(
    manifest: &Manifest,
    order: &[u32],
    slot: usize,
    asked: Asked<'_>,
    sums: &Arc<ShardChecksums>,
) -> Vec<Read> {
    let (tensor, shard) = (usize::from(asked.tensors[slot]), asked.shard(order[0]));
    let units = sums.units(tensor);
    let mut runs: Vec<Run> = Vec::new();
    for &at in order {
        let (begin, bytes) = manifest.row_in_region(shard, asked.rows[at as usize].row, tensor);
        if bytes == 0 {
            continue;
        }
        let own = units.covering(&(begin..begin + bytes));
        if let Some(Run { units: run, rows }) = runs.last_mut()
            && own.start <= run.end
            && units.bytes_of(own.end - 1).end - units.bytes_of(run.start).start <= READ_BYTES_MAX
        {
            run.end = own.end.max(run.end);
            rows.push((at, begin));
            continue;
        }
        runs.push(Run { units: own, rows: vec![(at, begin)] });
    }
    let read = |Run { units: run, rows }: Run| {
        let region = units.bytes_of(run.start).start..units.bytes_of(run.end - 1).end;
        let parts = manifest.region_reads(shard, tensor, &region, READ_BYTES_MAX);
        let rows = rows.into_iter().map(|(at, begin)| (at, index(begin - region.start))).collect();
        let check = Check { sums: Arc::clone(sums), shard, tensor, units: run };
        Read { parts, slot, rows, check: Some(check) }
    };
    runs.into_iter().map(read).collect()
}
