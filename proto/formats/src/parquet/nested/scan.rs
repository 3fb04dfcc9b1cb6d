//! A nested field while its file is scanned: one block for each row group, and the length of each
//! row's text, for which all its chunks are decoded once.
//!
//! Thread rule: a plain value. Memory: the chunks of the field in one row group, stored and
//! decompressed.

use std::ops::Range;

use larder_base::limits;

use super::{
    super::{MAGIC, VALID, column::codec, column_named, footer::RowGroup},
    FieldTree,
    text::{LeafChunk, encode_chunks, nulls, open, texts},
};
use crate::{
    Block, Blocks, Column, Dtype, Fault, Logical, PlacedBlock, Recipes, Rows,
    block::{Aspect, RecipeBlock, json::Texts},
};

/// Most bytes of a field in one row group, before and after decompression. Eight files are scanned
/// at a time.
const BYTES_MAX: u64 = 512 << 20;

#[derive(Debug)]
pub(in crate::parquet) struct NestedScan {
    pub(in crate::parquet) name: String,
    /// The leaves of the schema.
    pub(in crate::parquet) leaves: Range<usize>,
    root: FieldTree,
    groups: Vec<(PlacedBlock, Vec<LeafChunk>, bool)>,
    recipes: Recipes,
    lengths: Vec<u32>,
    held: Vec<u8>,
    /// Bytes that all rows together may have.
    left: u64,
    /// Why it is no column.
    pub(in crate::parquet) refused: Option<String>,
}

impl NestedScan {
    pub(in crate::parquet) fn new(
        name: String,
        leaves: Range<usize>,
        root: FieldTree,
        left: u64,
    ) -> Self {
        Self {
            name,
            leaves,
            root,
            groups: Vec::new(),
            recipes: Recipes::default(),
            lengths: Vec::new(),
            held: Vec::new(),
            left,
            refused: None,
        }
    }

    /// Adds the chunks of the next row group, before the footer at `end`. Returns their range.
    pub(in crate::parquet) fn add(
        &mut self,
        group: &RowGroup,
        end: u64,
    ) -> Result<Option<Range<u64>>, Fault> {
        let own = group.chunks.get(self.leaves.clone());
        let own = own.ok_or_else(|| Fault::new("chunk", "is missing, though the schema has it"))?;
        let (mut range, mut chunks) = (end..end, Vec::new());
        for chunk in own {
            let place = chunk.begin..chunk.begin.saturating_add(chunk.stored_bytes);
            if place.start < MAGIC.len() as u64 || place.end > end || place.is_empty() {
                let why = format!("lies at {place:?}, which is not in {}..{end}", MAGIC.len());
                return Err(Fault::new("chunk", why));
            }
            if chunk.values < group.rows {
                let why = format!("has {} values for {} rows", chunk.values, group.rows);
                return Err(Fault::new("chunk", why));
            }
            let Some(codec) = codec(chunk.codec) else {
                self.refused = Some("has a compression that is not read: not yet".into());
                return Ok(None);
            };
            range = match chunks.is_empty() {
                true => place.clone(),
                false => range.start.min(place.start)..range.end.max(place.end),
            };
            let (at, stored) = (place.start, chunk.stored_bytes);
            chunks.push(LeafChunk { at, stored, codec, values: chunk.values });
        }
        chunks.iter_mut().for_each(|chunk| chunk.at -= range.start);
        let others =
            group.chunks.iter().enumerate().filter(|(leaf, _)| !self.leaves.contains(leaf));
        let mut others = others.map(|(_, chunk)| chunk);
        if others.any(|other| {
            other.begin < range.end && other.begin.saturating_add(other.stored_bytes) > range.start
        }) {
            self.refused = Some("has chunks with those of other columns between: not yet".into());
            return Ok(None);
        }
        let bytes = range.end - range.start;
        if bytes > BYTES_MAX {
            let why =
                format!("has {bytes} bytes in a row group where at most {BYTES_MAX} are read");
            self.refused = Some(format!("{why}: write smaller row groups"));
            return Ok(None);
        }
        let rows = u32::try_from(group.rows).map_err(|_| Fault::new("rows", "are too many"))?;
        let placed = PlacedBlock { range: range.clone(), rows, block: Block::Zeros };
        self.groups.push((placed, chunks, false));
        Ok(Some(range))
    }

    /// Takes bytes of a row group, in their order. They lie before `end`.
    pub(in crate::parquet) fn take_piece(
        &mut self,
        group: usize,
        end: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        if self.refused.is_some() {
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        if end < self.groups[group].0.range.end {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        match self.decode(group, &held) {
            // A file may well have such values. Its other columns are of use.
            Err(fault) if fault.field == "list" => {
                self.refused = Some(format!("{} in row group {group}", fault.why));
                Ok(())
            }
            Err(fault) => {
                Err(fault.within(format!("row group {group} {}", column_named(&self.name))))
            }
            Ok(()) => Ok(()),
        }
    }

    fn decode(&mut self, group: usize, stored: &[u8]) -> Result<(), Fault> {
        let before: u64 = self.groups[..group].iter().map(|own| u64::from(own.0.rows)).sum();
        if self.lengths.len() as u64 != before {
            return Err(Fault::new("chunk", "lies before that of an earlier row group"));
        }
        let (placed, chunks, has_nulls) = &mut self.groups[group];
        let mut left = BYTES_MAX;
        let pages = open(&self.root, chunks, stored, &mut left)?;
        *has_nulls = nulls(&self.root, &pages[0])? > 0;
        let (lengths, budget) = (&mut self.lengths, &mut self.left);
        let mut put = |_: &[u8], rows: &[u32]| {
            let bytes = rows.iter().map(|&bytes| u64::from(bytes)).sum();
            let rest = budget.checked_sub(bytes);
            let why = "decodes to far more bytes than its file has";
            *budget = rest.ok_or_else(|| Fault::new("list", why))?;
            lengths.extend_from_slice(rows);
            Ok(())
        };
        texts(&self.root, &pages, placed.rows.into(), &mut Texts::new(false, &mut put))?;
        placed.block = Block::Recipe(RecipeBlock {
            aspect: Aspect::Values,
            shared: self.recipes.put(&self.root.encode())?,
            own: self.recipes.put(&encode_chunks(chunks))?,
            decoded_bytes: u32::try_from(BYTES_MAX - left).expect("below the limit"),
        });
        Ok(())
    }

    /// Returns the column, and the one that says which rows have a value.
    pub(in crate::parquet) fn into_columns(self) -> [Column; 2] {
        let is_redundant = !self.groups.iter().any(|(_, _, has_nulls)| *has_nulls);
        let mask = |(placed, _, has_nulls): &(PlacedBlock, _, bool)| {
            let (range, block) = match placed.block {
                Block::Recipe(block) if *has_nulls => {
                    let block = RecipeBlock { aspect: Aspect::Validity, ..block };
                    (placed.range.clone(), Block::Recipe(block))
                }
                _ => (0..0, Block::Ones),
            };
            PlacedBlock { range, rows: placed.rows, block }
        };
        let valid = Blocks {
            blocks: self.groups.iter().map(mask).collect(),
            lengths: None,
            is_redundant,
            recipes: self.recipes.clone(),
        };
        let values = Blocks {
            blocks: self.groups.into_iter().map(|(placed, _, _)| placed).collect(),
            lengths: Some(self.lengths),
            is_redundant: false,
            recipes: self.recipes,
        };
        let column = |name, dtype, logical, ragged, blocks| Column {
            name,
            dtype,
            logical,
            shape: Vec::new(),
            ragged,
            rows: Rows::Blocks(blocks),
            absent: Vec::new(),
        };
        let mask = format!("{}.{VALID}", self.name);
        [
            column(self.name, Dtype::U8, Logical::Json, true, values),
            column(mask, Dtype::Bool, Logical::Boolean, false, valid),
        ]
    }
}

/// Returns the bytes that the rows of a field may have in a file of this size.
pub(in crate::parquet) fn bytes_max(file_bytes: u64) -> u64 {
    const RATIO_MAX: u64 = 1000;
    file_bytes.saturating_mul(RATIO_MAX).max(limits::SHARD_BYTES_MAX / 4)
}
