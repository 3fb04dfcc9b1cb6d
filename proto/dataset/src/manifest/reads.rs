//! Plans the reads of a shard, or of a part of it: which ranges of which objects, and which bytes
//! of the regions each range fills.
//!
//! A *run* is a stretch of a tensor's region. Its rows lie in ascending order, and close together,
//! in one block of one object. Runs of all tensors that lie close together share one read. The read
//! passes over the bytes between their rows, such as the headers in a tar.
//!
//! Reads are cut where offsets in the object are multiples of a block. A store keeps objects in
//! blocks, or in the parts of their upload. It fetches and checks each block that a read touches as
//! a whole.
//!
//! Thread rule: pure. Non-goals: performing reads (see [`crate::Origin`]).

use std::ops::Range;

use larder_base::{RegionRef, RowRef, limits};

use super::{
    BlockRead, BlocksRead, Layout, Leaf, Manifest, RowLocator,
    leaf::{Piece, first_where},
};

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

/// A stretch of a tensor's region that one read fills, from its first byte to its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionPart {
    /// The number of the tensor, which is the number of the region.
    pub tensor: usize,
    /// The bytes of the region.
    pub region: Range<u64>,
    /// The bytes of the object that they lie in, with gaps between rows.
    pub(super) within: Range<u64>,
    /// The number of the object in the leaf.
    pub(super) object: u32,
    /// The row that holds the first byte.
    pub(super) first_row: u32,
}

/// One ranged read of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    /// The number of the object in the leaf.
    pub object: u32,
    /// The bytes to read.
    pub range: Range<u64>,
    /// The parts that it fills.
    pub parts: Vec<RegionPart>,
}

impl Get {
    /// Returns the number of bytes to read.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns whether one request may read both, `next` after this one. They lie close together in
    /// one block of an object.
    pub fn is_near(&self, next: &Self, block_bytes: u64) -> bool {
        self.object == next.object
            && next.range.start.saturating_sub(self.range.end) <= limits::READ_GAP_BYTES_MAX
            && next.range.start / block_bytes == self.range.start / block_bytes
    }

    /// Returns the read of all of `gets`, each [near](Self::is_near) the one before. Its parts are
    /// theirs, in their order.
    ///
    /// # Panics
    /// If there are none.
    pub fn of_all(gets: &[Self]) -> Self {
        let (first, last) = (&gets[0], &gets[gets.len() - 1]);
        let parts = gets.iter().flat_map(|get| &get.parts).cloned().collect();
        Self { object: first.object, range: first.range.start..last.range.end, parts }
    }
}

/// The regions of a shard, and the reads that fill them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillPlan {
    /// One region for each tensor, in their order.
    pub regions: Vec<RegionPlan>,
    /// The reads. Their parts are disjoint.
    pub gets: Vec<Get>,
    /// The reads whose bytes are made into rows: see [`Manifest::make`].
    pub blocks: Vec<BlocksRead>,
    /// The tensors whose regions the leaf fills: see [`Manifest::inline_region`].
    pub inline: Vec<usize>,
}

/// The place of one row in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRead {
    /// The number of the object in the leaf.
    pub object: u32,
    /// Offset in the object of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The bytes of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowOrigin<'a> {
    /// They are one range of an object.
    Object(RowRead),
    /// The leaf has them.
    Value(&'a [u8]),
    /// They are made with the rest of a block. The range is that in the tensor's region.
    Block(BlockRead, Range<u64>),
}

impl RowRead {
    /// Returns the bytes of the object.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// Rows of any shards and tensors that one ranged read yields, and where each goes.
#[derive(Debug)]
pub struct RowsRead<T> {
    /// The number of the leaf that lists the object.
    pub leaf: u32,
    /// The number of the object in that leaf.
    pub object: u32,
    /// The bytes to read.
    pub range: Range<u64>,
    /// The rows, in the order of their beginnings.
    pub rows: Vec<(RowRead, T)>,
}

impl<T> RowsRead<T> {
    /// Joins rows that lie close together in an object into one read of at most `bytes_max`, unless
    /// a single row is longer. Each row comes with the number of its leaf. Rows without bytes need
    /// no read.
    pub fn join(mut rows: Vec<(u32, RowRead, T)>, bytes_max: u64) -> Vec<Self> {
        rows.retain(|(_, row, _)| row.bytes > 0);
        rows.sort_by_key(|(leaf, row, _)| (*leaf, row.object, row.offset));
        let mut reads: Vec<Self> = Vec::new();
        for (leaf, row, to) in rows {
            let (object, range) = (row.object, row.range());
            let near = |read: &&mut Self| {
                let end = read.range.end.max(range.end);
                (read.leaf, read.object) == (leaf, object)
                    && range.start.saturating_sub(read.range.end) <= limits::READ_GAP_BYTES_MAX
                    && end - read.range.start <= bytes_max
            };
            match reads.last_mut().filter(near) {
                Some(read) => {
                    read.range.end = read.range.end.max(range.end);
                    read.rows.push((row, to));
                }
                None => reads.push(Self { leaf, object, range, rows: vec![(row, to)] }),
            }
        }
        reads
    }

    /// Takes bytes of the read, from `at` of the object on. Calls `put` with each row that has some
    /// of them, an offset in the row, and its bytes.
    pub fn scatter(&mut self, at: u64, bytes: &[u8], mut put: impl FnMut(&mut T, u64, &[u8])) {
        let end = at + bytes.len() as u64;
        let begun = self.rows.partition_point(|(row, _)| row.offset < end);
        for (row, to) in &mut self.rows[..begun] {
            let (from, until) = (row.offset.max(at), (row.offset + row.bytes).min(end));
            if from < until {
                let index =
                    |offset: u64| usize::try_from(offset - at).expect("inside the bytes that came");
                put(to, from - row.offset, &bytes[index(from)..index(until)]);
            }
        }
    }
}

impl Manifest {
    /// Returns the reads of a whole shard, each of at most `block_bytes`.
    ///
    /// # Panics
    /// If there is no such shard, the leaf does not have it, or `block_bytes` is 0.
    pub fn fill_plan(&self, leaf: &Leaf, shard: u32, block_bytes: u64) -> FillPlan {
        self.fill_plan_in_pieces(leaf, shard, block_bytes, block_bytes)
    }

    /// Returns the reads of a whole shard, of about `piece_bytes` each. They hold whole rows, but
    /// for rows that lie in several blocks.
    ///
    /// # Panics
    /// As [`fill_plan`](Self::fill_plan), or if `piece_bytes` is 0.
    pub fn fill_plan_in_pieces(
        &self,
        leaf: &Leaf,
        shard: u32,
        block_bytes: u64,
        piece_bytes: u64,
    ) -> FillPlan {
        let regions = self.regions(shard);
        let mut runs = Runs::new(self, leaf, shard, block_bytes).in_pieces(piece_bytes);
        let (mut blocks, mut inline) = (Vec::new(), Vec::new());
        for (tensor, region) in regions.iter().enumerate() {
            match self.tensors()[tensor].layout {
                Layout::Column | Layout::Spans => runs.add(tensor, &(0..region.bytes)),
                Layout::Blocks => {
                    let all = 0..region.bytes;
                    blocks.extend(self.blocks(leaf, RegionRef { shard, tensor }, &all));
                }
                Layout::Inline => inline.push(tensor),
            }
        }
        let blocks = BlocksRead::join(blocks, block_bytes);
        FillPlan { gets: runs.joined(), regions, blocks, inline }
    }

    /// Returns the reads of these bytes of a tensor's region, cut as those of a whole shard. There
    /// are none for inline tensors, nor for [`blocks`](Self::blocks).
    ///
    /// # Panics
    /// If there is no such shard or tensor, the leaf does not have it, or `block_bytes` is 0.
    pub fn region_gets(
        &self,
        leaf: &Leaf,
        RegionRef { shard, tensor }: RegionRef,
        wanted: &Range<u64>,
        block_bytes: u64,
    ) -> Vec<Get> {
        let mut runs = Runs::new(self, leaf, shard, block_bytes);
        if self.tensors()[tensor].layout != Layout::Blocks {
            runs.add(tensor, wanted);
        }
        runs.joined()
    }

    /// Returns the region of an inline tensor.
    ///
    /// # Panics
    /// If there is no such shard, the leaf does not have it, or the tensor is not inline.
    pub fn inline_region<'a>(&self, leaf: &'a Leaf, shard: u32, tensor: usize) -> &'a [u8] {
        assert_eq!(self.tensors()[tensor].layout, Layout::Inline, "of tensor {tensor}");
        leaf.values(self, shard, 0..self.shard_record(shard).rows, tensor)
    }

    /// Returns the source of one row of one tensor.
    ///
    /// # Panics
    /// If there is no such shard, row or tensor, or the leaf does not have it.
    pub fn row_source<'a>(&self, leaf: &'a Leaf, row: RowRef, tensor: usize) -> RowOrigin<'a> {
        let RowRef { shard, row: number } = row;
        let rows = self.shard_record(shard).rows;
        assert!(number < rows, "row {number} of a shard of {rows} rows");
        let column = &self.tensors()[tensor];
        if column.layout == Layout::Inline {
            return RowOrigin::Value(leaf.values(self, shard, number..number + 1, tensor));
        }
        if column.layout == Layout::Blocks {
            let (block, place) = self.block_of(leaf, row, tensor);
            return RowOrigin::Block(block, place);
        }
        let piece = leaf.piece_of(self, row, tensor);
        let range = match (column.layout, column.locator) {
            (Layout::Column, RowLocator::Strided { row_bytes, stride_bytes }) => {
                let begin = piece.begin + u64::from(number - piece.rows.start) * stride_bytes;
                begin..begin + row_bytes
            }
            _ => leaf.span_range(self, row, tensor, &piece),
        };
        let (offset, bytes) = (range.start, range.end - range.start);
        RowOrigin::Object(RowRead { object: piece.object, offset, bytes })
    }

    /// Returns the place of a row in its tensor's region of the shard: offset and length in bytes.
    ///
    /// # Panics
    /// If there is no such shard, row or tensor, or the leaf does not have it.
    pub fn row_in_region(&self, leaf: &Leaf, row: RowRef, tensor: usize) -> (u64, u64) {
        let RowRef { shard, row } = row;
        match self.tensors()[tensor].locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (u64::from(row) * stride_bytes, row_bytes)
            }
            RowLocator::Ragged => {
                let begin = leaf.ragged_begin(self, shard, row, tensor);
                (begin, leaf.ragged_begin(self, shard, row + 1, tensor) - begin)
            }
        }
    }
}

/// The runs of a shard's tensors.
struct Runs<'a> {
    manifest: &'a Manifest,
    leaf: &'a Leaf,
    shard: u32,
    block_bytes: u64,
    piece_bytes: u64,
    parts: Vec<RegionPart>,
}

impl<'a> Runs<'a> {
    fn new(manifest: &'a Manifest, leaf: &'a Leaf, shard: u32, block_bytes: u64) -> Self {
        assert!(block_bytes > 0, "a block has at least one byte");
        Self { manifest, leaf, shard, block_bytes, piece_bytes: block_bytes, parts: Vec::new() }
    }

    fn in_pieces(self, piece_bytes: u64) -> Self {
        assert!(piece_bytes > 0, "a piece has at least one byte");
        Self { piece_bytes, ..self }
    }

    /// Adds the runs that cover these bytes of a tensor's region.
    fn add(&mut self, tensor: usize, wanted: &Range<u64>) {
        let column = &self.manifest.tensors()[tensor];
        let numbers = self.leaf.pieces(self.shard, tensor);
        for number in numbers.clone() {
            let piece = self.leaf.piece(self.manifest, self.shard, &numbers, number);
            match (column.layout, column.locator) {
                (Layout::Column, RowLocator::Strided { row_bytes, stride_bytes }) => {
                    // Rows that overlap are not cut: each cut would be in several rows.
                    let rows = match self.piece_bytes.min(self.block_bytes) / stride_bytes.max(1) {
                        _ if row_bytes > stride_bytes => u64::MAX,
                        rows => rows.max(1),
                    };
                    let all = piece.end - piece.begin;
                    let step = rows.saturating_mul(stride_bytes).max(1);
                    let (row, object) = (piece.rows.start, piece.object);
                    let begin = u64::from(row) * stride_bytes;
                    let mut at = 0;
                    while at < all {
                        let end = all.min(at.saturating_add(step));
                        let range = piece.begin + at..piece.begin + end;
                        self.add_row(tensor, row, begin + at, wanted, range, object);
                        at = end;
                    }
                }
                _ => self.add_spans(tensor, &piece, wanted),
            }
        }
    }

    fn add_spans(&mut self, tensor: usize, piece: &Piece, wanted: &Range<u64>) {
        let (manifest, leaf, shard) = (self.manifest, self.leaf, self.shard);
        let begin = |row| match manifest.tensors()[tensor].locator {
            RowLocator::Strided { stride_bytes, .. } => u64::from(row) * stride_bytes,
            RowLocator::Ragged => leaf.ragged_begin(manifest, shard, row, tensor),
        };
        let rows = piece.rows.clone();
        for row in first_where(rows.clone(), |row| begin(row + 1) > wanted.start)..rows.end {
            let at = begin(row);
            if at >= wanted.end {
                break;
            }
            let range = leaf.span_range(manifest, RowRef { shard, row }, tensor, piece);
            self.add_row(tensor, row, at, wanted, range, piece.object);
        }
    }

    /// Adds the wanted bytes of one range of an object, whose first byte lies at `at` of the
    /// region. Cuts them at the borders of blocks.
    fn add_row(
        &mut self,
        tensor: usize,
        first_row: u32,
        at: u64,
        wanted: &Range<u64>,
        range: Range<u64>,
        object: u32,
    ) {
        let end = at + (range.end - range.start);
        let (mut next, end) = (at.max(wanted.start), end.min(wanted.end));
        while next < end {
            let offset = range.start + (next - at);
            let bytes = (self.block_bytes - offset % self.block_bytes).min(end - next);
            let (region, within) = (next..next + bytes, offset..offset + bytes);
            self.push(RegionPart { tensor, region, within, object, first_row });
            next += bytes;
        }
    }

    /// Adds a part, or lengthens the last one by it.
    fn push(&mut self, part: RegionPart) {
        let block = |offset| offset / self.block_bytes;
        let piece = |offset| offset / self.piece_bytes;
        if let Some(last) = self.parts.last_mut()
            && (last.tensor, last.object) == (part.tensor, part.object)
            && last.region.end == part.region.start
            && last.within.end <= part.within.start
            && part.within.start - last.within.end <= limits::READ_GAP_BYTES_MAX
            && block(last.within.start) == block(part.within.start)
            && piece(last.within.start) == piece(part.within.start)
        {
            (last.region.end, last.within.end) = (part.region.end, part.within.end);
        } else {
            self.parts.push(part);
        }
    }

    /// Joins parts that lie close together in one piece of an object into one read. Parts that
    /// overlap share a read too, so that no byte is in two.
    fn joined(self) -> Vec<Get> {
        let Self { block_bytes, piece_bytes, mut parts, .. } = self;
        parts.sort_by_key(|part| (part.object, part.within.start));
        let mut gets: Vec<Get> = Vec::new();
        for part in parts {
            let get = Get { object: part.object, range: part.within.clone(), parts: vec![part] };
            let (start, end) = (get.range.start, get.range.end);
            let joins = |last: &&mut Get| {
                last.is_near(&get, block_bytes)
                    && (start < last.range.end
                        || start / piece_bytes == last.range.start / piece_bytes)
            };
            match gets.last_mut().filter(joins) {
                Some(last) => {
                    last.range.end = last.range.end.max(end);
                    last.parts.extend(get.parts);
                }
                None => gets.push(get),
            }
        }
        gets
    }
}
