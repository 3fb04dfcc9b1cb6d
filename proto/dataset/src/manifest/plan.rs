//! Plans ranged reads: for a shard, or one row of it, the reads from the origin that yield all its
//! bytes. Also computes the id that these bytes have.

use std::ops::Range;

use larder_base::ShardId;
use xxhash_rust::xxh3::Xxh3Default;

use super::{Manifest, RowLocator, Tensor, locate::Segment};

/// One contiguous read: `bytes` of an object, for an offset of a tensor's region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRead {
    /// The number of the tensor, which is the number of the region.
    pub tensor: usize,
    /// Offset in the region of the first byte.
    pub region_offset: u64,
    /// The number of the object.
    pub object: u32,
    /// Offset in the object of the first byte.
    pub object_offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The memory that a tensor of a shard takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionPlan {
    /// Rows of the shard.
    pub rows: u64,
    /// Bytes of a row; 0 if rows differ in length and lie back to back.
    pub row_bytes: u64,
    /// Bytes from one row to the next; 0 if rows differ in length.
    pub stride_bytes: u64,
    /// Bytes of the region.
    pub bytes: u64,
}

/// The regions of a shard, and the reads that fill them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillPlan {
    /// One region for each tensor, in their order.
    pub regions: Vec<RegionPlan>,
    /// Disjoint reads that cover every region exactly, in the order of the regions and inside them.
    pub reads: Vec<PartRead>,
}

impl Manifest {
    /// Returns the reads of a whole shard, each of at most `part_bytes`. Reads are cut where
    /// offsets in the object are multiples of `part_bytes`, wherever rows begin. A store keeps
    /// objects in blocks, or in the parts of their upload. It fetches and checks each block that a
    /// read touches as a whole.
    ///
    /// # Panics
    /// If there is no such shard, or `part_bytes` is 0.
    pub fn fill_plan(&self, shard: u32, part_bytes: u64) -> FillPlan {
        assert!(part_bytes > 0, "a part has at least one byte");
        let mut plan =
            FillPlan { regions: Vec::with_capacity(self.tensors().len()), reads: Vec::new() };
        for (index, tensor) in self.tensors().iter().enumerate() {
            let region = self.region(shard, tensor);
            plan.reads.extend(self.region_reads(shard, index, &(0..region.bytes), part_bytes));
            plan.regions.push(region);
        }
        plan
    }

    /// Returns the reads of these bytes of a tensor's region, cut as those of a whole shard.
    ///
    /// # Panics
    /// If there is no such shard or tensor, or `part_bytes` is 0.
    pub fn region_reads(
        &self,
        shard: u32,
        tensor: usize,
        wanted: &Range<u64>,
        part_bytes: u64,
    ) -> Vec<PartRead> {
        let mut reads = Vec::new();
        for segment in self.segments(shard) {
            match self.tensors()[tensor].locator {
                RowLocator::Strided { row_bytes, stride_bytes } => {
                    let whole = self.segment_read(tensor, segment, row_bytes, stride_bytes);
                    cut(whole.within(wanted), part_bytes, &mut reads);
                }
                RowLocator::Spans => {
                    self.span_reads((shard, tensor), segment, wanted, part_bytes, &mut reads);
                }
            }
        }
        reads
    }

    /// Returns the read of one row of one tensor; its `region_offset` is 0.
    ///
    /// # Panics
    /// If there is no such shard, row or tensor.
    pub fn row_read(&self, shard: u32, row: u32, tensor: usize) -> PartRead {
        let record = self.shard_record(shard);
        assert!(row < record.rows, "row {row} of a shard of {} rows", record.rows);
        let sample = record.first_sample + u64::from(row);
        let group = self.group_of(sample);
        let column = &self.tensors()[tensor];
        let object = self.group_object(group, column.slot);
        let (object_offset, bytes) = match column.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                let row_in_group = sample - self.group_begin(group);
                (self.column(object, column.column) + row_in_group * stride_bytes, row_bytes)
            }
            RowLocator::Spans => {
                let span = self.span_record(column.column, sample);
                (span.object_offset, span.region_end - self.span_begin(column, shard, row))
            }
        };
        PartRead { tensor, region_offset: 0, object, object_offset, bytes }
    }

    /// Returns the place of a row in its tensor's region of the shard: offset and length in bytes.
    ///
    /// # Panics
    /// If there is no such shard, row or tensor.
    pub fn row_in_region(&self, shard: u32, row: u32, tensor: usize) -> (u64, u64) {
        let column = &self.tensors()[tensor];
        match column.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (u64::from(row) * stride_bytes, row_bytes)
            }
            RowLocator::Spans => {
                let begin = self.span_begin(column, shard, row);
                (begin, self.span_begin(column, shard, row + 1) - begin)
            }
        }
    }

    /// Returns whether the id of a shard is the one computed from its bytes' places. The manifest's
    /// own checksum only shows that it is undamaged; this check finds the id of another dataset in
    /// it. Call it before a shard is filled under its id.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn shard_id_holds(&self, shard: u32) -> bool {
        let known = self.shard(shard);
        self.compute_shard_id(shard, known.checksum) == known.id
    }

    /// Hashes the places and versions of the bytes of each tensor, the layout of its rows, and the
    /// checksum that a manifest pins. So datasets share a shard only if they pin the same checksum.
    pub(crate) fn compute_shard_id(&self, shard: u32, checksum: Option<u64>) -> ShardId {
        let mut state = Xxh3Default::new();
        state.update(b"larder shard 1\0");
        put_text(&mut state, &self.uri().to_string());
        for (index, tensor) in self.tensors().iter().enumerate() {
            let region = self.region(shard, tensor);
            for value in [region.rows, region.row_bytes, region.stride_bytes, region.bytes] {
                state.update(&value.to_le_bytes());
            }
            for segment in self.segments(shard) {
                let object = self.object(self.group_object(segment.group, tensor.slot));
                put_text(&mut state, object.key);
                put_text(&mut state, object.etag.unwrap_or(""));
                put_text(&mut state, object.version.unwrap_or(""));
                state.update(&object.size_bytes.to_le_bytes());
                match tensor.locator {
                    RowLocator::Strided { row_bytes, stride_bytes } => {
                        let read = self.segment_read(index, segment, row_bytes, stride_bytes);
                        state.update(&read.object_offset.to_le_bytes());
                        state.update(&read.bytes.to_le_bytes());
                    }
                    RowLocator::Spans => self.put_spans(&mut state, shard, index, segment),
                }
            }
        }
        if let Some(checksum) = checksum {
            state.update(b"checksum");
            state.update(&checksum.to_le_bytes());
        }
        ShardId::from_bytes(state.digest128().to_le_bytes())
    }

    fn put_spans(&self, state: &mut Xxh3Default, shard: u32, tensor: usize, segment: Segment) {
        for row in segment.row_in_shard..segment.row_in_shard + segment.rows {
            let read = self.row_read(shard, row, tensor);
            state.update(&read.object_offset.to_le_bytes());
            state.update(&read.bytes.to_le_bytes());
        }
    }

    pub(super) fn fill_bytes(&self, shard: u32) -> u64 {
        self.tensors().iter().fold(0, |sum: u64, t| sum.saturating_add(self.region(shard, t).bytes))
    }

    /// Returns the memory that one of the tensors takes in a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn region(&self, shard: u32, tensor: &Tensor) -> RegionPlan {
        let rows = self.shard_record(shard).rows;
        let (row_bytes, stride_bytes, bytes) = match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (row_bytes, stride_bytes, u64::from(rows - 1) * stride_bytes + row_bytes)
            }
            RowLocator::Spans => (0, 0, self.span_begin(tensor, shard, rows)),
        };
        RegionPlan { rows: rows.into(), row_bytes, stride_bytes, bytes }
    }

    /// Returns all bytes of a tensor in one segment as one read.
    fn segment_read(
        &self,
        index: usize,
        segment: Segment,
        row_bytes: u64,
        stride_bytes: u64,
    ) -> PartRead {
        let tensor = &self.tensors()[index];
        let object = self.group_object(segment.group, tensor.slot);
        PartRead {
            tensor: index,
            region_offset: u64::from(segment.row_in_shard) * stride_bytes,
            object,
            object_offset: self.column(object, tensor.column) + segment.row_in_group * stride_bytes,
            bytes: u64::from(segment.rows - 1) * stride_bytes + row_bytes,
        }
    }

    /// Adds the reads of the wanted rows with spans. Neighbours in the object are read together.
    fn span_reads(
        &self,
        (shard, tensor): (u32, usize),
        segment: Segment,
        wanted: &Range<u64>,
        part_bytes: u64,
        reads: &mut Vec<PartRead>,
    ) {
        let begin = |row| self.span_begin(&self.tensors()[tensor], shard, row);
        let rows = segment.row_in_shard..segment.row_in_shard + segment.rows;
        let mut pending: Option<PartRead> = None;
        for row in first_where(rows.clone(), |row| begin(row + 1) > wanted.start)..rows.end {
            let region_offset = begin(row);
            if region_offset >= wanted.end {
                break;
            }
            let read = PartRead { region_offset, ..self.row_read(shard, row, tensor) };
            match &mut pending {
                Some(part) if part.object_offset + part.bytes == read.object_offset => {
                    part.bytes += read.bytes;
                }
                _ => {
                    let before = pending.replace(read);
                    before.into_iter().for_each(|part| cut(part.within(wanted), part_bytes, reads));
                }
            }
        }
        pending.into_iter().for_each(|part| cut(part.within(wanted), part_bytes, reads));
    }

    /// Returns the beginning of a row with a span in its region; for the row after the last, the
    /// end.
    fn span_begin(&self, tensor: &Tensor, shard: u32, row: u32) -> u64 {
        match row.checked_sub(1) {
            None => 0,
            Some(before) => {
                let sample = self.shard_record(shard).first_sample + u64::from(before);
                self.span_record(tensor.column, sample).region_end
            }
        }
    }
}

impl PartRead {
    /// Returns the part of the read that lies in these bytes of the region; empty if there is none.
    fn within(self, wanted: &Range<u64>) -> Self {
        let start = self.region_offset.max(wanted.start);
        let end = (self.region_offset + self.bytes).min(wanted.end);
        let skipped = start - self.region_offset;
        Self {
            region_offset: start,
            object_offset: self.object_offset.saturating_add(skipped),
            bytes: end.saturating_sub(start),
            ..self
        }
    }
}

/// Finds by bisection the first row from which on `holds` is true; the end if it is true for none.
fn first_where(rows: Range<u32>, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (rows.start, rows.end);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Cuts a read at multiples of `part_bytes` of its object.
fn cut(whole: PartRead, part_bytes: u64, reads: &mut Vec<PartRead>) {
    let mut done = 0;
    while done < whole.bytes {
        let object_offset = whole.object_offset + done;
        let to_border = part_bytes - object_offset % part_bytes;
        let bytes = to_border.min(whole.bytes - done);
        let region_offset = whole.region_offset + done;
        reads.push(PartRead { region_offset, object_offset, bytes, ..whole });
        done += bytes;
    }
}

fn put_text(state: &mut Xxh3Default, text: &str) {
    state.update(&(text.len() as u64).to_le_bytes());
    state.update(text.as_bytes());
}
