//! Rows that are made: which ranges of objects to read for them, and the making.
//!
//! A *block* is a stretch of a tensor's region that one range of an object makes as a whole. Blocks
//! that lie close together, such as the columns of one row group, share one read.
//!
//! Thread rule: pure. Making takes time, so not for async tasks. Non-goals: performing reads, and
//! formats (see `larder-formats`).

use std::{convert::Infallible, iter, ops::Range};

use larder_base::{RegionRef, RowRef, limits};
use larder_formats::{Block, Fault, RowsWanted};

use super::{Layout, Leaf, Manifest, RowLocator};
use crate::OriginUri;

/// A stretch of a tensor's region that one range of an object makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRead {
    /// The number of the tensor, which is the number of the region.
    pub tensor: usize,
    /// The number of the object in the leaf.
    pub object: u32,
    /// The bytes of the object to read, or none.
    pub range: Range<u64>,
    /// The bytes of the region that they make.
    pub region: Range<u64>,
    /// Counted in the shard.
    rows: Range<u32>,
    block: Block,
}

/// One range of an object, and the blocks that are made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlocksRead {
    /// The number of the object in the leaf.
    pub object: u32,
    /// The bytes to read, or none.
    pub range: Range<u64>,
    /// The blocks.
    pub blocks: Vec<BlockRead>,
}

/// The bytes of an object are not the rows that were indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The object.
    pub object: OriginUri,
    /// The place and the mistake.
    pub why: String,
}

/// Why rows could not be made.
#[derive(Debug)]
pub enum MakeError<E> {
    /// The bytes of the object are not the rows that were indexed.
    Damaged(Damaged),
    /// Whoever takes the rows refused them.
    Put(E),
}

impl BlockRead {
    /// Returns a bound of the memory for making the rows, beside the bytes that are read.
    pub fn scratch_bytes(&self) -> u64 {
        self.block.scratch_bytes()
    }

    /// Cuts the region into parts of at most so many bytes.
    pub fn parts(&self, part_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let Range { start, end } = self.region;
        let next = move |begin: &u64| Some(begin.saturating_add(part_bytes));
        let begins = iter::successors(Some(start), next).take_while(move |&begin| begin < end);
        begins.map(move |begin| begin..end.min(begin.saturating_add(part_bytes)))
    }
}

impl BlocksRead {
    /// Joins blocks whose ranges lie close together into reads of at most `bytes_max`, unless a
    /// single block is longer. Blocks of one range always share a read.
    pub fn join(mut blocks: Vec<BlockRead>, bytes_max: u64) -> Vec<Self> {
        blocks.sort_by_key(|block| (block.object, block.range.start, block.range.end));
        let mut reads: Vec<Self> = Vec::new();
        for block in blocks {
            let (object, range) = (block.object, block.range.clone());
            let joins = |read: &&mut Self| {
                let end = read.range.end.max(range.end);
                let near = range.start.saturating_sub(read.range.end) <= limits::READ_GAP_BYTES_MAX;
                read.object == object
                    && (end == read.range.end || (near && end - read.range.start <= bytes_max))
            };
            match reads.last_mut().filter(joins) {
                Some(read) => {
                    read.range.end = read.range.end.max(range.end);
                    read.blocks.push(block);
                }
                None => reads.push(Self { object, range, blocks: vec![block] }),
            }
        }
        reads
    }

    /// Returns the ranges to read, cut where offsets in the object are multiples of `block_bytes`.
    pub fn ranges(&self, block_bytes: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let mut next = self.range.start;
        while next < self.range.end {
            let end = (next - next % block_bytes).saturating_add(block_bytes).min(self.range.end);
            ranges.push(next..end);
            next = end;
        }
        ranges
    }

    /// Returns a bound of the memory for making the rows, with the bytes that are read.
    pub fn scratch_bytes(&self) -> u64 {
        let largest = self.blocks.iter().map(BlockRead::scratch_bytes).max();
        (self.range.end - self.range.start).saturating_add(largest.unwrap_or(0))
    }

    /// Returns the stored bytes of one of its blocks among the bytes that were read.
    ///
    /// # Panics
    /// If the block is of another read.
    pub fn stored<'a>(&self, block: &BlockRead, bytes: &'a [u8]) -> &'a [u8] {
        let at = |offset: u64| {
            usize::try_from(offset - self.range.start).expect("what is read is in memory")
        };
        &bytes[at(block.range.start)..at(block.range.end)]
    }
}

impl Manifest {
    /// Returns the blocks that make these bytes of a tensor's region. There are none for tensors of
    /// another layout.
    ///
    /// # Panics
    /// If there is no such shard or tensor, or the leaf does not have it.
    pub fn blocks(&self, leaf: &Leaf, region: RegionRef, wanted: &Range<u64>) -> Vec<BlockRead> {
        if self.tensors()[region.tensor].layout != Layout::Blocks {
            return Vec::new();
        }
        let numbers = leaf.pieces(region.shard, region.tensor);
        let all = numbers.clone().map(|number| self.block(leaf, region, &numbers, number));
        let is_wanted =
            |block: &BlockRead| block.region.start < wanted.end && wanted.start < block.region.end;
        all.filter(is_wanted).collect()
    }

    /// Returns the block that makes a row, and the row's bytes in the tensor's region.
    pub(super) fn block_of(
        &self,
        leaf: &Leaf,
        row: RowRef,
        tensor: usize,
    ) -> (BlockRead, Range<u64>) {
        let (numbers, number) = leaf.piece_number(row, tensor);
        let (begin, bytes) = self.row_in_region(leaf, row, tensor);
        let region = RegionRef { shard: row.shard, tensor };
        (self.block(leaf, region, &numbers, number), begin..begin + bytes)
    }

    fn block(
        &self,
        leaf: &Leaf,
        RegionRef { shard, tensor }: RegionRef,
        numbers: &Range<u32>,
        number: u32,
    ) -> BlockRead {
        let piece = leaf.piece(self, shard, numbers, number);
        let at = |row: u32| match self.tensors()[tensor].locator {
            RowLocator::Strided { row_bytes, .. } => u64::from(row) * row_bytes,
            RowLocator::Ragged => leaf.ragged_begin(self, shard, row, tensor),
        };
        BlockRead {
            tensor,
            object: piece.object,
            range: piece.begin..piece.end,
            region: at(piece.rows.start)..at(piece.rows.end),
            rows: piece.rows,
            block: leaf.block(number),
        }
    }

    /// Makes the rows of a block from its stored bytes. Calls `put` with their bytes, in order.
    ///
    /// # Errors
    /// The bytes are not the rows that were indexed, or the first error of `put`.
    pub fn make<E>(
        &self,
        leaf: &Leaf,
        shard: u32,
        block: &BlockRead,
        stored: &[u8],
        mut put: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), MakeError<E>> {
        let tensor = &self.tensors()[block.tensor];
        let wanted = RowsWanted {
            rows: (block.rows.end - block.rows.start).into(),
            row_bytes: (!tensor.is_ragged()).then(|| tensor.row_bytes()),
            scalar_bytes: tensor.dtype.size_bytes(),
        };
        let other = |why: &str| Err(Fault::new("rows", why));
        let (mut refused, mut left) = (None, block.region.end - block.region.start);
        let mut rows = block.rows.clone();
        let made = block.block.make(wanted, stored, leaf.recipes(), &mut |bytes, lengths| {
            for &length in lengths {
                let known = rows.next().filter(|_| tensor.is_ragged());
                let row = known.map(|row| RowRef { shard, row });
                let known = row.map(|row| self.row_in_region(leaf, row, block.tensor).1);
                if known != Some(length.into()) {
                    return other("have other lengths than when they were indexed");
                }
            }
            let Some(rest) = left.checked_sub(bytes.len() as u64) else {
                return other("have more bytes than when they were indexed");
            };
            left = rest;
            put(bytes).or_else(|why| {
                refused = Some(why);
                other("were refused")
            })
        });
        match (refused, made) {
            (Some(why), _) => Err(MakeError::Put(why)),
            (None, Err(fault)) => Err(MakeError::Damaged(self.damaged(leaf, block, &fault))),
            (None, Ok(())) if left > 0 || (tensor.is_ragged() && !rows.is_empty()) => {
                let fault = Fault::new("rows", "have fewer bytes than when they were indexed");
                Err(MakeError::Damaged(self.damaged(leaf, block, &fault)))
            }
            (None, Ok(())) => Ok(()),
        }
    }

    /// Makes the rows of a block, and copies some stretches of the region to their targets, which
    /// have as many bytes. The stretches are in ascending order.
    ///
    /// # Errors
    /// The bytes are not the rows that were indexed.
    pub fn make_into(
        &self,
        leaf: &Leaf,
        shard: u32,
        block: &BlockRead,
        stored: &[u8],
        targets: &mut [(Range<u64>, &mut [u8])],
    ) -> Result<(), Damaged> {
        let (mut at, mut first) = (block.region.start, 0);
        let index = |offset: u64| usize::try_from(offset).expect("what is made is in memory");
        let put = |bytes: &[u8]| {
            let made = at..at + bytes.len() as u64;
            at = made.end;
            first += targets[first..].partition_point(|(wanted, _)| wanted.end <= made.start);
            for (wanted, target) in &mut targets[first..] {
                let (start, end) = (made.start.max(wanted.start), made.end.min(wanted.end));
                if start >= end {
                    break;
                }
                let to = index(start - wanted.start)..index(end - wanted.start);
                let from = index(start - made.start)..index(end - made.start);
                target[to].copy_from_slice(&bytes[from]);
            }
            Ok::<_, Infallible>(())
        };
        match self.make(leaf, shard, block, stored, put) {
            Ok(()) => Ok(()),
            Err(MakeError::Put(never)) => match never {},
            Err(MakeError::Damaged(damaged)) => Err(damaged),
        }
    }

    fn damaged(&self, leaf: &Leaf, block: &BlockRead, fault: &Fault) -> Damaged {
        let object = leaf.object_uri(block.object);
        let tensor = self.tensors()[block.tensor].name();
        let Range { start, end } = block.range;
        let why = format!("'{tensor}' in bytes {start}..{end}: {} {}", fault.field, fault.why);
        Damaged { object, why }
    }
}
