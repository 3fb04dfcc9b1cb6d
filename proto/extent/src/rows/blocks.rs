//! Finds rows one block ahead of their copies and prefetches their memory.
//!
//! The first lines of a block's rows, and their checksums, are prefetched together. Prefetched one
//! by one, each row would wait for its page table walk before the processor reached the next row.
//! The other lines of long rows are prefetched in step with the copy, about one page ahead of it.
//! More requests than the processor can track would stall the copy until all of them are done.

use super::RowCopy;
use super::kernel::{AHEAD_BYTES, Ahead, prefetch};

const ROWS: usize = 16;

/// Rows up to this length are prefetched as a whole, when their block is found.
const WHOLE_ROW_BYTES_MAX: usize = 1 << 10;

/// A row with its prefetch under way.
#[derive(Clone, Copy)]
pub(super) struct FoundRow<'a> {
    pub(super) wanted: RowCopy<'a>,
    pub(super) bytes: &'a [u8],
}

/// Rows to copy now, and the rows of the next block.
pub(super) struct RowBlock<'a, 'b> {
    pub(super) rows: &'b [FoundRow<'a>],
    next: &'b [FoundRow<'a>],
}

/// Calls `work` for each block of rows, after the next block was found.
///
/// Never calls `next` after an iterator's end: one that starts again there would yield unwanted
/// rows.
pub(super) fn for_each_block<'a>(
    rows: impl Iterator<Item = RowCopy<'a>>,
    mut work: impl FnMut(RowBlock<'a, '_>),
) {
    let mut rows = rows.fuse();
    let mut find = |block: &mut Vec<FoundRow<'a>>| {
        block.clear();
        block.extend(rows.by_ref().take(ROWS).map(FoundRow::ask));
    };
    let (mut block, mut next) = (Vec::with_capacity(ROWS), Vec::with_capacity(ROWS));
    find(&mut block);
    while !block.is_empty() {
        find(&mut next);
        work(RowBlock { rows: &block, next: &next });
        std::mem::swap(&mut block, &mut next);
    }
}

impl<'a> FoundRow<'a> {
    /// Finds a row and prefetches its first lines and its checksum.
    #[inline]
    fn ask(wanted: RowCopy<'a>) -> Self {
        let bytes = wanted.source.bytes(wanted.row);
        prefetch(if bytes.len() > WHOLE_ROW_BYTES_MAX { &bytes[..1] } else { bytes });
        wanted.source.prefetch_crc(wanted.row);
        Self { wanted, bytes }
    }

    /// Returns its place in `out`.
    #[inline]
    pub(super) fn target<'t>(&self, out: &'t mut [u8]) -> &'t mut [u8] {
        &mut out[self.wanted.at..][..self.bytes.len()]
    }

    /// Copies it to its place. Returns whether the copy is intact.
    #[inline]
    pub(super) fn copy_intact(
        &self,
        target: &mut [u8],
        copy_hashed: impl Fn(&[u8], &mut [u8]) -> u32,
    ) -> bool {
        self.wanted.source.copy_intact(self.wanted.row, self.bytes, target, copy_hashed)
    }
}

impl<'a, 'b> RowBlock<'a, 'b> {
    /// Returns the rows, each with the memory to prefetch while it is copied.
    pub(super) fn in_step(&self) -> impl Iterator<Item = (&'b FoundRow<'a>, Ahead<'a>)> {
        let (rows, next) = (self.rows, self.next);
        rows.iter().enumerate().map(move |(index, found)| {
            if found.bytes.len() <= WHOLE_ROW_BYTES_MAX {
                return (found, Ahead::none());
            }
            let later = index + AHEAD_BYTES.div_ceil(found.bytes.len());
            let later = rows.get(later).or_else(|| next.get(later - rows.len()));
            (found, Ahead::of(found.bytes, later.map_or(&[], |later| later.bytes)))
        })
    }
}
