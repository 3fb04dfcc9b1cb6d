//! Takes the bytes of one read apart: hands each part its rows, and passes over all other bytes.

use std::ops::Range;

use larder_base::{RegionRef, RowRef};

use super::{Get, Layout, Leaf, Manifest, RegionPart, leaf::Piece};

/// The bytes of one read on their way into its parts.
#[derive(Debug)]
pub struct Scatter<'a> {
    manifest: &'a Manifest,
    leaf: &'a Leaf,
    shard: u32,
    get: &'a Get,
    /// For each part, the next row, and how many bytes of it came.
    next: Vec<Next>,
    /// Offset in the object of the next byte to come.
    at: u64,
}

/// The next bytes of a part.
#[derive(Debug, Clone)]
struct Next {
    row: u32,
    /// The piece that holds the row. `None` for a column, whose rows are one range.
    piece: Option<Piece>,
    /// Where the rest of the row lies in the object. It may reach beyond the read.
    range: Range<u64>,
    /// Bytes of the part that are still to come.
    left: u64,
}

impl<'a> Scatter<'a> {
    /// Begins at the first byte of a read of this shard.
    ///
    /// # Panics
    /// If the read is of another shard or leaf.
    pub fn new(manifest: &'a Manifest, leaf: &'a Leaf, shard: u32, get: &'a Get) -> Self {
        let begun = |part: &RegionPart| {
            let left = part.region.end - part.region.start;
            let (row, within) = (part.first_row, part.within.clone());
            if manifest.tensors()[part.tensor].layout == Layout::Column {
                return Next { row, piece: None, range: within, left };
            }
            let first = RowRef { shard, row };
            let piece = leaf.piece_of(manifest, first, part.tensor);
            let whole = leaf.span_range(manifest, first, part.tensor, &piece);
            Next { row, piece: Some(piece), range: within.start..whole.end, left }
        };
        let next = get.parts.iter().map(begun).collect();
        Self { manifest, leaf, shard, get, next, at: get.range.start }
    }

    /// Takes the next bytes of the read. Calls `put` with the number of a part of the read, an
    /// offset in its region, and the bytes that lie there. The bytes of a part come in order.
    ///
    /// # Errors
    /// The first error of `put`.
    pub fn take<E>(
        &mut self,
        bytes: &[u8],
        mut put: impl FnMut(usize, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let came = self.at..self.at + bytes.len() as u64;
        self.at = came.end;
        for (index, part) in self.get.parts.iter().enumerate() {
            let next = &mut self.next[index];
            while next.left > 0 && next.range.start < came.end {
                let end = came.end.min(next.range.end).min(next.range.start + next.left);
                let at = |offset: u64| {
                    usize::try_from(offset - came.start).expect("inside the bytes that came")
                };
                let place = part.region.end - next.left;
                put(index, place, &bytes[at(next.range.start)..at(end)])?;
                next.left -= end - next.range.start;
                next.range.start = end;
                if next.range.is_empty() && next.left > 0 {
                    let region = RegionRef { shard: self.shard, tensor: part.tensor };
                    next.advance(self.manifest, self.leaf, region);
                }
            }
        }
        Ok(())
    }
}

impl Next {
    /// Goes on to the next row that is not empty. Rows without bytes have no place.
    fn advance(&mut self, manifest: &Manifest, leaf: &Leaf, region: RegionRef) {
        while self.range.is_empty() {
            self.row += 1;
            let row = RowRef { shard: region.shard, row: self.row };
            let here = self.piece.take().filter(|piece| piece.rows.contains(&row.row));
            let piece = here.unwrap_or_else(|| leaf.piece_of(manifest, row, region.tensor));
            self.range = leaf.span_range(manifest, row, region.tensor, &piece);
            self.piece = Some(piece);
        }
    }
}
