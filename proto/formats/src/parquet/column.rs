//! A column while its file is scanned: the place of each chunk, and the lengths of its rows.
//!
//! A block bounds the memory for making it by the bytes of its pages after decompression. Some
//! writers tell 0 or the compressed size, so the number in the footer counts only if it is larger
//! than the compressed size. Otherwise the bound comes from the pages if the scan reads them, and
//! from the count of numbers if it does not. A page beyond the bound is a fault when it is read.
//!
//! Thread rule: a plain value.

use std::ops::Range;

use larder_base::limits;

use super::{
    MAGIC, VALID,
    chunk::{ChunkReader, uneven},
    column_named,
    footer::Chunk,
    schema::{Leaf, Shape},
    whole_page,
};
use crate::{
    Block, Blocks, Column, Dtype, Fault, Logical, PlacedBlock, Rows, RowsWanted,
    block::{Aspect, ChunkBlock, Codec, Physical},
};

/// Largest chunk, before and after decompression.
const CHUNK_BYTES_MAX: u64 = limits::SHARD_BYTES_MAX;
/// Most bytes of a number's page beside the number, if each has a page of its own: its levels, its
/// place in a dictionary, and the heads of runs and deltas.
const VALUE_OVERHEAD_BYTES: u64 = 32;

/// A column while its chunks are read.
#[derive(Debug)]
pub(super) struct ColumnScan {
    /// The number of its leaf in the schema.
    pub(super) place: usize,
    pub(super) leaf: Leaf,
    pub(super) shape: Shape,
    pub(super) blocks: Vec<PlacedBlock>,
    lengths: Vec<u32>,
    has_nulls: bool,
    /// The chunk that is being read: its number, its reader, and bytes of a page that goes on.
    open: Option<(usize, ChunkReader, Vec<u8>)>,
    /// Why it is no column.
    pub(super) refused: Option<String>,
    /// Only JSON can hold its lists.
    pub(super) needs_json: bool,
}

impl ColumnScan {
    pub(super) fn new(place: usize, leaf: Leaf, shape: Shape) -> Self {
        let (blocks, lengths, has_nulls) = (Vec::new(), Vec::new(), false);
        Self {
            place,
            leaf,
            shape,
            blocks,
            lengths,
            has_nulls,
            open: None,
            refused: None,
            needs_json: false,
        }
    }

    /// Adds the chunk of the next row group. Returns its range if its rows must be decoded.
    pub(super) fn add(
        &mut self,
        chunk: &Chunk,
        rows: u64,
        end: u64,
    ) -> Result<Option<Range<u64>>, Fault> {
        let range = chunk.begin..chunk.begin.saturating_add(chunk.stored_bytes);
        if range.start < MAGIC.len() as u64 || range.end > end || range.is_empty() {
            let why = format!("lies at {range:?}, which is not in {}..{end}", MAGIC.len());
            return Err(Fault::new("chunk", why));
        }
        let is_list = self.leaf.list_definition > 0;
        if chunk.values < rows || (!is_list && chunk.values != rows) {
            let why = format!("has {} values for {rows} rows", chunk.values);
            return Err(Fault::new("chunk", why));
        }
        if Physical::of_parquet(chunk.physical) != Some(self.shape.physical) {
            return Err(Fault::new("chunk", "has another type than the schema says"));
        }
        let Some(codec) = codec(chunk.codec) else {
            let name = match chunk.codec {
                3 => "LZO",
                _ => "an unknown compression",
            };
            self.refused = Some(format!("is compressed with {name}: not yet"));
            return Ok(None);
        };
        let decoded_bytes = self.decoded_bytes_max(chunk, codec);
        for bytes in [chunk.stored_bytes, decoded_bytes] {
            if bytes > CHUNK_BYTES_MAX {
                let why = format!(
                    "has {bytes} bytes where at most {CHUNK_BYTES_MAX} are read: write row groups \
                     of at most 512 MiB",
                );
                return Err(Fault::new("chunk", why));
            }
        }
        let small = |count: u64, what: &str| {
            let why = format!("has {count} {what} in a row group: write smaller ones");
            u32::try_from(count).map_err(|_| Fault::new("chunk", why))
        };
        let block = ChunkBlock {
            codec,
            physical: self.shape.physical,
            decimal: self.shape.decimal,
            aspect: Aspect::Values,
            definition_max: self.leaf.definition_max,
            list_definition: self.leaf.list_definition,
            outer_definition: self.leaf.outer_definition,
            values: small(chunk.values, "values")?,
            decoded_bytes: small(decoded_bytes, "bytes")?,
        };
        let rows = small(rows, "rows")?;
        self.blocks.push(PlacedBlock { range: range.clone(), rows, block: Block::Chunk(block) });
        let is_nullable = self.leaf.definition_max > 0;
        let is_known = !is_nullable || chunk.nulls == Some(0);
        if is_known && !self.shape.ragged {
            return Ok(None);
        }
        // Nulls in a list may be among its elements, which only a pass over them tells.
        if self.shape.ragged || is_list {
            return Ok(Some(range));
        }
        // The file does not tell, so there may be some.
        self.has_nulls = true;
        Ok(None)
    }

    /// Returns a bound of the bytes of a chunk's pages after decompression, headers left out.
    fn decoded_bytes_max(&self, chunk: &Chunk, codec: Codec) -> u64 {
        let is_plausible = chunk.decoded_bytes > chunk.stored_bytes;
        match (codec, self.shape.physical) {
            (Codec::None, _) => chunk.stored_bytes,
            _ if is_plausible => chunk.decoded_bytes,
            // The scan reads the pages, so it learns their sizes.
            _ if self.shape.ragged && self.leaf.list_definition == 0 => CHUNK_BYTES_MAX,
            (_, physical) => {
                let is_list = self.leaf.list_definition > 0;
                let elements = if is_list { 1 } else { self.shape.shape.iter().product() };
                let value = physical.bytes(elements * self.shape.dtype.size_bytes()).unwrap_or(1);
                chunk.values.saturating_mul(value + VALUE_OVERHEAD_BYTES).min(CHUNK_BYTES_MAX)
            }
        }
    }

    /// Takes bytes of a chunk, in their order. They lie before `end`.
    pub(super) fn take_piece(&mut self, group: usize, end: u64, bytes: &[u8]) -> Result<(), Fault> {
        if self.refused.is_some() {
            return Ok(());
        }
        let taken = self.decode(group, end, bytes);
        match taken {
            // A file may well have such lists. Its other columns are of use.
            Err(fault) if fault.field == "list" => {
                self.refused = Some(format!("{} in row group {group}: not yet", fault.why));
                self.needs_json = true;
                Ok(())
            }
            Err(fault) => {
                let name = column_named(&self.leaf.name);
                Err(fault.within(format!("row group {group} {name}")))
            }
            Ok(()) => Ok(()),
        }
    }

    fn decode(&mut self, group: usize, end: u64, bytes: &[u8]) -> Result<(), Fault> {
        let placed = &self.blocks[group];
        let chunk = chunk_of(placed);
        if self.open.as_ref().is_none_or(|(open, _, _)| *open != group) {
            let before: u64 = self.blocks[..group].iter().map(|block| u64::from(block.rows)).sum();
            if self.shape.ragged && self.lengths.len() as u64 != before {
                return Err(Fault::new("chunk", "lies before that of an earlier row group"));
            }
            let reader = ChunkReader::new(&chunk, self.wanted(placed.rows), false)?;
            self.open = Some((group, reader, Vec::new()));
        }
        let is_last = end == placed.range.end;
        let (_, reader, held) = self.open.as_mut().expect("opened above");
        held.extend_from_slice(bytes);
        let lengths = &mut self.lengths;
        let mut put = |_: &[u8], rows: &[u32]| {
            lengths.extend_from_slice(rows);
            Ok(())
        };
        let mut rest = &held[..];
        while !rest.is_empty()
            && let Some(page) = whole_page(rest)?
        {
            reader.take_page(&page.header, page.body, &mut put)?;
            rest = page.rest;
        }
        let taken = held.len() - rest.len();
        held.drain(..taken);
        if !is_last {
            return Ok(());
        }
        if !held.is_empty() {
            return Err(Fault::new("page", "ends after its chunk"));
        }
        reader.finish(&mut put)?;
        self.has_nulls |= reader.nulls() > 0;
        let decoded_bytes = reader.decoded_bytes();
        if let Some(length) = reader.inner_length() {
            match &mut self.shape.shape[..] {
                [known] if *known == 0 || *known == length => *known = length,
                _ => return Err(uneven()),
            }
        }
        let chunk = ChunkBlock { decoded_bytes, ..chunk };
        self.blocks[group].block = Block::Chunk(chunk);
        self.open = None;
        Ok(())
    }

    /// Returns the column, and the one that says which rows have a value.
    pub(super) fn into_columns(self) -> [Column; 2] {
        let validity = |placed: &PlacedBlock| {
            let block = ChunkBlock { aspect: Aspect::Validity, ..chunk_of(placed) };
            PlacedBlock { block: Block::Chunk(block), ..placed.clone() }
        };
        let valid = Blocks {
            blocks: self.blocks.iter().map(validity).collect(),
            is_redundant: !self.has_nulls,
            ..Blocks::default()
        };
        let valid = Column {
            name: format!("{}.{VALID}", self.leaf.name),
            dtype: Dtype::Bool,
            logical: Logical::Boolean,
            shape: Vec::new(),
            ragged: false,
            rows: Rows::Blocks(valid),
            absent: Vec::new(),
        };
        let Shape { dtype, logical, shape, ragged, .. } = self.shape;
        let lengths = ragged.then_some(self.lengths);
        let values = Blocks { blocks: self.blocks, lengths, ..Blocks::default() };
        let (name, rows) = (self.leaf.name, Rows::Blocks(values));
        [Column { name, dtype, logical, shape, ragged, rows, absent: Vec::new() }, valid]
    }

    fn wanted(&self, rows: u32) -> RowsWanted {
        let scalar_bytes = self.shape.dtype.size_bytes();
        let row_bytes = self.shape.shape.iter().product::<u64>() * scalar_bytes;
        let row_bytes = (!self.shape.ragged).then_some(row_bytes);
        RowsWanted { rows: rows.into(), row_bytes, scalar_bytes }
    }
}

fn chunk_of(placed: &PlacedBlock) -> ChunkBlock {
    match placed.block {
        Block::Chunk(chunk) => chunk,
        _ => unreachable!("the blocks of a scan of numbers and texts are chunks"),
    }
}

/// Returns the compression with this number in a file.
pub(super) fn codec(number: i64) -> Option<Codec> {
    Some(match number {
        0 => Codec::None,
        1 => Codec::Snappy,
        2 => Codec::Gzip,
        4 => Codec::Brotli,
        5 => Codec::Lz4Hadoop,
        6 => Codec::Zstd,
        7 => Codec::Lz4,
        _ => return None,
    })
}
