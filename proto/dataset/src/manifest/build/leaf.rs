//! Encodes leaves: gathers consecutive shards until their tables have the size of a leaf.

use std::{collections::HashMap, ops::Range};

use larder_base::limits;
use larder_formats::{Block, Blocks, Recipes, Rows, Spans};

use super::{BuildError, ColumnSpec, Cut, GroupSpec, ManifestBuilder, ObjectSpec, small};
use crate::manifest::{
    Layout, RowLocator,
    format::{
        EndRecord, LEAF_HAS_BLOCKS, LEAF_MAGIC, LeafHeader, ObjectRecord, PieceRecord, SpanRecord,
        VERSION, ValueRecord,
    },
};

/// Size of a leaf of a manifest, in bytes: one request, and the tables of half a million rows.
const LEAF_BYTES_TARGET: u64 = 4 << 20;

/// The file of a leaf, and the shards it is about.
pub(super) struct LeafFile {
    pub(super) first_shard: u32,
    pub(super) shards: u32,
    pub(super) bytes: Vec<u8>,
}

/// The rows of a shard that lie in one group.
struct Segment<'a> {
    number: usize,
    group: &'a GroupSpec,
    /// Counted in the group.
    rows: Range<usize>,
    /// Counted in the shard.
    first_row: u32,
}

/// Encodes the leaves of all shards.
pub(super) fn encode(builder: &ManifestBuilder, cuts: &[Cut]) -> Result<Vec<LeafFile>, BuildError> {
    let mut leaves = Vec::new();
    let mut open: Option<Draft<'_>> = None;
    for (shard, cut) in (0u32..).zip(cuts) {
        let draft = match open.take() {
            Some(draft) if draft.bytes() < LEAF_BYTES_TARGET => draft,
            full => {
                leaves.extend(full.map(Draft::finish).transpose()?);
                Draft::new(builder, shard, cut.first_sample)
            }
        };
        open = Some(draft.with(cut)?);
    }
    leaves.extend(open.map(Draft::finish).transpose()?);
    Ok(leaves)
}

/// A leaf under construction.
struct Draft<'a> {
    builder: &'a ManifestBuilder,
    first_shard: u32,
    shards: u32,
    first_sample: u64,
    samples: u64,
    objects: Vec<u8>,
    /// The numbers of the objects that the leaf has, by group and place in it.
    known: HashMap<(usize, u32), u32>,
    pieces: Vec<u8>,
    /// How each piece is made; zeros if its rows lie as they are.
    blocks: Vec<u8>,
    recipes: Recipes,
    /// By tensor.
    rows: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    names: Vec<u8>,
}

impl<'a> Draft<'a> {
    fn new(builder: &'a ManifestBuilder, first_shard: u32, first_sample: u64) -> Self {
        let empty = || builder.tensors.iter().map(|_| Vec::new()).collect();
        Self {
            builder,
            first_shard,
            shards: 0,
            first_sample,
            samples: 0,
            objects: Vec::new(),
            known: HashMap::new(),
            pieces: Vec::new(),
            blocks: Vec::new(),
            recipes: Recipes::default(),
            rows: empty(),
            values: empty(),
            names: Vec::new(),
        }
    }

    fn bytes(&self) -> u64 {
        let tables = [&self.objects, &self.pieces, &self.blocks, &self.names];
        let all = tables.into_iter().chain(&self.rows).chain(&self.values);
        let tables: u64 = all.map(|table| table.len() as u64).sum();
        tables + self.recipes.as_bytes().len() as u64
    }

    /// Adds the next shard.
    fn with(mut self, cut: &Cut) -> Result<Self, BuildError> {
        let segments = segments(&self.builder.groups, cut);
        for tensor in 0..self.builder.tensors.len() {
            let mut region_end = 0;
            for segment in &segments {
                self.add_rows(tensor, segment, &mut region_end)?;
            }
        }
        self.shards += 1;
        self.samples += u64::from(cut.rows);
        Ok(self)
    }

    /// Adds the rows of one tensor in a segment. `region_end` counts the bytes of its region.
    fn add_rows(
        &mut self,
        tensor: usize,
        segment: &Segment<'_>,
        region_end: &mut u32,
    ) -> Result<(), BuildError> {
        let column = &segment.group.columns[tensor];
        match &column.rows {
            Rows::Strided { begin, stride } => {
                let RowLocator::Strided { row_bytes, .. } = self.builder.tensors[tensor].locator
                else {
                    return Err(no_place(segment));
                };
                let (first, rows) = (segment.rows.start as u64, segment.rows.len() as u64);
                let begin = first.checked_mul(*stride).and_then(|bytes| bytes.checked_add(*begin));
                let end = begin
                    .zip((rows - 1).checked_mul(*stride))
                    .and_then(|(begin, bytes)| begin.checked_add(bytes)?.checked_add(row_bytes));
                let (begin, end) = begin.zip(end).ok_or_else(|| no_place(segment))?;
                self.add_piece(tensor, segment, column, segment.first_row, begin..end)
            }
            Rows::Blocks(blocks) => self.add_blocks(tensor, segment, column, blocks, region_end),
            Rows::Spans(spans) => self.add_spans(tensor, segment, column, spans, region_end),
            Rows::Inline(values) => {
                let ragged = self.builder.tensors[tensor].locator == RowLocator::Ragged;
                for row in segment.rows.clone() {
                    self.values[tensor].extend_from_slice(values.value(row));
                    if ragged {
                        let end = small(self.values[tensor].len())?;
                        ValueRecord { end }.encode(&mut self.rows[tensor]);
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds rows with spans. They are one piece, or several where they lie far apart.
    fn add_spans(
        &mut self,
        tensor: usize,
        segment: &Segment<'_>,
        column: &ColumnSpec,
        spans: &Spans,
        region_end: &mut u32,
    ) -> Result<(), BuildError> {
        let mut next = segment.rows.start;
        while next < segment.rows.end {
            let (rows, range) = near(spans, next..segment.rows.end);
            let first_row = segment.first_row + small::<u32>(next - segment.rows.start)?;
            self.add_piece(tensor, segment, column, first_row, range.clone())?;
            for row in rows.clone() {
                let span = spans.range(row);
                let empty = span.is_empty();
                let at = if empty { 0 } else { span.start - range.start };
                let at = u32::try_from(at).map_err(|_| no_place(segment))?;
                let bytes = u32::try_from(span.end - span.start).ok();
                *region_end = bytes
                    .and_then(|bytes| region_end.checked_add(bytes))
                    .ok_or_else(|| no_place(segment))?;
                SpanRecord { at, region_end: *region_end }.encode(&mut self.rows[tensor]);
            }
            next = rows.end;
        }
        Ok(())
    }

    /// Adds rows that are made. A block is one piece. Shards begin and end with blocks.
    fn add_blocks(
        &mut self,
        tensor: usize,
        segment: &Segment<'_>,
        column: &ColumnSpec,
        blocks: &Blocks,
        region_end: &mut u32,
    ) -> Result<(), BuildError> {
        let mut begin = 0;
        for placed in &blocks.blocks {
            if segment.rows.contains(&begin) {
                let first_row = segment.first_row + small::<u32>(begin - segment.rows.start)?;
                self.add_piece(tensor, segment, column, first_row, placed.range.clone())?;
                self.set_block(placed.block, &blocks.recipes)?;
            }
            begin += placed.rows as usize;
        }
        for &bytes in blocks.lengths.iter().flat_map(|lengths| &lengths[segment.rows.clone()]) {
            *region_end = region_end.checked_add(bytes).ok_or_else(|| no_place(segment))?;
            EndRecord { region_end: *region_end }.encode(&mut self.rows[tensor]);
        }
        Ok(())
    }

    /// Says how the rows of the last piece are made.
    fn set_block(&mut self, block: Block, recipes: &Recipes) -> Result<(), BuildError> {
        let moved = block.moved(recipes.as_bytes(), &mut self.recipes);
        let moved = moved.map_err(|_| BuildError::TooMuch {
            what: "bytes of a leaf of the manifest:",
            found: self.recipes.as_bytes().len() as u64,
            limit: limits::LEAF_BYTES_MAX,
        })?;
        let begin = self.blocks.len().saturating_sub(Block::BYTES);
        self.blocks.splice(begin.., moved.to_bytes());
        Ok(())
    }

    fn has_blocks(&self) -> bool {
        self.builder.tensors.iter().any(|tensor| tensor.layout == Layout::Blocks)
    }

    fn add_piece(
        &mut self,
        tensor: usize,
        segment: &Segment<'_>,
        column: &ColumnSpec,
        first_row: u32,
        range: Range<u64>,
    ) -> Result<(), BuildError> {
        let object = self.object(segment, column.object)?;
        let (begin, end) = (range.start, range.end);
        let (shard, tensor) = (self.shards, small(tensor)?);
        PieceRecord { begin, end, object, shard, tensor, first_row }.encode(&mut self.pieces);
        if self.has_blocks() {
            self.blocks.extend_from_slice(&[0; Block::BYTES]);
        }
        Ok(())
    }

    /// Returns the number of an object, which is added if the leaf does not have it.
    fn object(&mut self, segment: &Segment<'_>, object: u32) -> Result<u32, BuildError> {
        let (next, place) = (small(self.known.len())?, (segment.number, object));
        if let Some(known) = self.known.get(&place) {
            return Ok(*known);
        }
        let ObjectSpec { key, etag, version, size_bytes } = &segment.group.objects[object as usize];
        let (etag, version) = (etag.as_deref().unwrap_or(""), version.as_deref().unwrap_or(""));
        let names_at = self.names.len() as u64;
        for part in [key, etag, version] {
            self.names.extend_from_slice(part.as_bytes());
        }
        let record = ObjectRecord {
            size_bytes: *size_bytes,
            names_at,
            key_bytes: small(key.len())?,
            etag_bytes: small(etag.len())?,
            version_bytes: small(version.len())?,
        };
        record.encode(&mut self.objects);
        self.known.insert(place, next);
        Ok(next)
    }

    fn finish(self) -> Result<LeafFile, BuildError> {
        let sum = |tables: &[Vec<u8>]| tables.iter().map(|table| table.len() as u64).sum();
        let header = LeafHeader {
            magic: LEAF_MAGIC,
            version: VERSION,
            header_bytes: small(LeafHeader::BYTES)?,
            first_shard: self.first_shard,
            shard_count: self.shards,
            first_sample: self.first_sample,
            samples: self.samples,
            object_count: small(self.known.len())?,
            piece_count: small(self.pieces.len() / PieceRecord::BYTES)?,
            rows_bytes: sum(&self.rows),
            values_bytes: sum(&self.values),
            names_bytes: self.names.len() as u64,
            flags: if self.has_blocks() { LEAF_HAS_BLOCKS } else { 0 },
            recipes_bytes: small(self.recipes.as_bytes().len())?,
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes.extend_from_slice(&self.objects);
        bytes.extend_from_slice(&self.pieces);
        bytes.extend_from_slice(&self.blocks);
        self.rows.iter().chain(&self.values).for_each(|table| bytes.extend_from_slice(table));
        bytes.extend_from_slice(&self.names);
        bytes.extend_from_slice(self.recipes.as_bytes());
        if bytes.len() as u64 > limits::LEAF_BYTES_MAX {
            let (what, found) = ("bytes of a leaf of the manifest:", bytes.len() as u64);
            return Err(BuildError::TooMuch { what, found, limit: limits::LEAF_BYTES_MAX });
        }
        Ok(LeafFile { first_shard: self.first_shard, shards: self.shards, bytes })
    }
}

/// Returns the parts of a shard that lie in one group each.
fn segments<'a>(groups: &'a [GroupSpec], cut: &Cut) -> Vec<Segment<'a>> {
    let (mut number, mut begin) = (cut.group as usize, cut.row_in_group);
    let (mut first_row, mut segments) = (0u32, Vec::new());
    while first_row < cut.rows {
        let group = &groups[number];
        let left = u64::from(cut.rows - first_row).min(group.rows - begin);
        let index = |row: u64| usize::try_from(row).expect("a usize has 64 bits here");
        let rows = index(begin)..index(begin + left);
        segments.push(Segment { number, group, rows, first_row });
        first_row += u32::try_from(left).expect("rows of a shard");
        (number, begin) = (number + 1, 0);
    }
    segments
}

/// Returns the longest run of rows from the first on that one piece can hold, and the bytes from
/// the first of them to the last.
fn near(spans: &Spans, rows: Range<usize>) -> (Range<usize>, Range<u64>) {
    let mut hull: Option<Range<u64>> = None;
    for row in rows.clone() {
        let span = spans.range(row);
        if span.is_empty() {
            continue;
        }
        let wider = hull
            .as_ref()
            .map_or(span.clone(), |hull| hull.start.min(span.start)..hull.end.max(span.end));
        if wider.end - wider.start > u64::from(u32::MAX) && row > rows.start {
            return (rows.start..row, hull.unwrap_or(0..0));
        }
        hull = Some(wider);
    }
    (rows, hull.unwrap_or(0..0))
}

fn no_place(segment: &Segment<'_>) -> BuildError {
    BuildError::Group { group: segment.number, why: "has rows that no object can hold" }
}
