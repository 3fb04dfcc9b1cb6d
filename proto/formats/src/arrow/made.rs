//! A column of rows that must be made, while the batches come in: one block for each batch.
//!
//! A block is made of the buffers of a batch: bits that say which values are there, compressed
//! bytes, places in a dictionary, or all buffers of a field that becomes JSON. If rows differ in
//! length, the scan decodes what tells their lengths, once.
//!
//! Thread rule: a plain value. Non-goals: rows that lie in the file as they are (`column`).

use std::ops::Range;

use super::{
    array::{
        Depth, Opening, fault,
        rows::{Rows, uneven},
        text,
    },
    batch::RecordBatch,
    layout::Spec,
    pending::Pending,
    places::{Buffer, Places, decompress},
    tree::{ARROW, Dictionaries, Tree, encode},
};
use crate::{
    Block, Blocks, Column, Dtype, Fault, Logical, PlacedBlock, Recipes, Rows as Kept, RowsWanted,
    block::{Aspect, Fields, Put, RecipeBlock, malformed},
};

/// A file may decode to this many times its size, or to [`RATIO_FREE_BYTES`].
const RATIO_MAX: u64 = 1000;
const RATIO_FREE_BYTES: u64 = 256 << 20;

/// The blocks of a column.
#[derive(Debug)]
pub(super) struct MadeBuilder {
    pub(super) is_json: bool,
    /// The recipe that all blocks share, until a dictionary changes.
    shared: Option<Vec<u8>>,
    blocks: Vec<PlacedBlock>,
    /// Whether a block has nulls, or only nulls.
    masks: Vec<Block>,
    lengths: Option<Vec<u32>>,
    /// The length of lists in lists, if there are some.
    inner: Option<u64>,
    recipes: Recipes,
    pending: Option<(Pending, bool)>,
    /// Bytes that its rows may still have.
    left: u64,
}

/// What a batch needs before its rows can be placed.
type Asked = Vec<(Range<u64>, usize)>;

impl MadeBuilder {
    pub(super) fn new(spec: &Spec, is_json: bool, file_bytes: u64) -> Self {
        let ragged = is_json || spec.flat.as_ref().is_some_and(|flat| flat.ragged);
        Self {
            is_json,
            shared: None,
            blocks: Vec::new(),
            masks: Vec::new(),
            lengths: ragged.then(Vec::new),
            inner: None,
            recipes: Recipes::default(),
            pending: None,
            left: file_bytes.saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES),
        }
    }

    /// Adds a batch without any value.
    pub(super) fn add_nulls(&mut self, rows: u32) {
        self.blocks.push(PlacedBlock { range: 0..0, rows, block: Block::Zeros });
        self.masks.push(Block::Zeros);
        if let Some(lengths) = &mut self.lengths {
            lengths.resize(lengths.len() + rows as usize, 0);
        }
    }

    /// Notes that a dictionary changed.
    pub(super) fn forget_dictionary(&mut self) {
        self.shared = None;
    }

    /// Adds a batch. Returns the ranges to read of it. `values` has the dictionaries.
    pub(super) fn add(
        &mut self,
        spec: &Spec,
        batch: &RecordBatch<'_>,
        values: &Dictionaries<'_>,
    ) -> Result<Asked, Fault> {
        if self.shared.is_none() {
            let shared = encode(self.is_json, &spec.path, &spec.field, values);
            self.shared = Some(shared.map_err(|why| Fault::new("list", why))?);
        }
        let (mut pending, nulls) = Pending::new(batch, &spec.nodes)?;
        let (rows, elements) = nulls.split_at(spec.path.len() + 1);
        let has_nulls = rows.iter().any(|&nulls| nulls > 0);
        let with_elements = elements.iter().any(|&nulls| nulls > 0);
        // The buffers of the structs around, and the first two of the lists, tell the lengths.
        let (is_json, is_ragged) = (self.is_json, self.lengths.is_some());
        let lengths = spec.path.len() + 2 + 2 * spec.inner_lists();
        let asked = pending.ask(|number, is_validity| {
            is_json || (is_ragged && number < lengths) || (with_elements && is_validity)
        })?;
        self.pending = Some((pending, has_nulls));
        if asked.is_empty() {
            self.end_batch(spec)?;
        }
        Ok(asked)
    }

    /// Takes a part of the batch.
    pub(super) fn take(&mut self, spec: &Spec, number: usize, part: &[u8]) -> Result<(), Fault> {
        let pending = self.pending.as_mut();
        let is_last = pending.is_some_and(|(pending, _)| pending.take(number, part));
        if is_last { self.end_batch(spec) } else { Ok(()) }
    }

    fn end_batch(&mut self, spec: &Spec) -> Result<(), Fault> {
        let Some((mut pending, has_nulls)) = self.pending.take() else { return Ok(()) };
        let range = pending.settle()?;
        let scratch = pending.scratch_bytes();
        self.pay(scratch)?;
        let shared = self.shared.take().unwrap_or_default();
        let placed = self.add_lengths(spec, &shared, &pending);
        let recipe = RecipeBlock {
            aspect: Aspect::Values,
            shared: self.recipes.put(&shared)?,
            own: self.recipes.put(&pending.places.encode())?,
            decoded_bytes: u32::try_from(scratch).map_err(|_| too_large())?,
        };
        self.shared = Some(shared);
        placed?;
        let rows = u32::try_from(pending.rows).map_err(|_| too_large())?;
        self.blocks.push(PlacedBlock { range, rows, block: Block::Recipe(recipe) });
        let mask = Block::Recipe(RecipeBlock { aspect: Aspect::Validity, ..recipe });
        self.masks.push(if has_nulls { mask } else { Block::Ones });
        Ok(())
    }

    /// Decodes the lengths of the rows, and checks that fixed lists have all elements.
    fn add_lengths(&mut self, spec: &Spec, shared: &[u8], pending: &Pending) -> Result<(), Fault> {
        let mut fields = Fields::new(shared);
        if fields.integer()? != ARROW {
            return Err(malformed("is of another format"));
        }
        let tree = Tree::parse(fields)?;
        let depth = match (&self.lengths, self.is_json) {
            (_, true) => Depth::All,
            (Some(_), false) => Depth::Lengths(tree.path, spec.inner_lists()),
            (None, false) => Depth::AllValidity,
        };
        let array = pending.open(&tree.root, depth)?;
        let rows = Rows::new(&array, tree.path)?;
        if !self.is_json
            && let Some(length) = rows.inner_length()?
            && *self.inner.get_or_insert(length) != length
        {
            return Err(uneven());
        }
        let Some(mut lengths) = self.lengths.take() else {
            return match rows.elements_are_there() {
                true => Ok(()),
                false => Err(holes()),
            };
        };
        let is_json = self.is_json;
        let mut put = |_: &[u8], more: &[u32]| {
            self.pay(more.iter().map(|&bytes| u64::from(bytes)).sum())?;
            lengths.extend_from_slice(more);
            Ok(())
        };
        let scalar = spec.flat.as_ref().map_or(1, |flat| flat.dtype.size_bytes());
        match is_json {
            true => text::put(&rows, false, &mut put)?,
            false => rows.ragged(scalar, false, &mut put)?,
        }
        self.lengths = Some(lengths);
        Ok(())
    }

    fn pay(&mut self, bytes: u64) -> Result<(), Fault> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(too_large)?;
        Ok(())
    }

    /// Returns the column, and the one that says which rows have a value.
    pub(super) fn finish(self, spec: Spec) -> [Column; 2] {
        let is_redundant = self.masks.iter().all(|mask| *mask == Block::Ones);
        let mask = |(placed, block): (&PlacedBlock, &Block)| {
            let range = if block.reads() { placed.range.clone() } else { 0..0 };
            PlacedBlock { range, rows: placed.rows, block: *block }
        };
        let valid = Blocks {
            blocks: self.blocks.iter().zip(&self.masks).map(mask).collect(),
            lengths: None,
            is_redundant,
            recipes: self.recipes.clone(),
        };
        let valid = Column {
            name: format!("{}.valid", spec.name),
            dtype: Dtype::Bool,
            logical: Logical::Boolean,
            shape: Vec::new(),
            ragged: false,
            rows: Kept::Blocks(valid),
            absent: Vec::new(),
        };
        let flat = spec.flat.filter(|_| !self.is_json);
        let (dtype, logical, shape) = match flat {
            Some(flat) if flat.with_lists => {
                (flat.dtype, flat.logical, vec![self.inner.unwrap_or(0)])
            }
            Some(flat) => (flat.dtype, flat.logical, flat.shape),
            None => (Dtype::U8, Logical::Json, Vec::new()),
        };
        let (blocks, lengths, recipes) = (self.blocks, self.lengths, self.recipes);
        let ragged = lengths.is_some();
        let rows = Kept::Blocks(Blocks { blocks, lengths, recipes, is_redundant: false });
        let values =
            Column { name: spec.name, dtype, logical, shape, ragged, rows, absent: Vec::new() };
        [values, valid]
    }
}

/// The fault of lists of numbers that only JSON can hold.
pub(super) fn holes() -> Fault {
    Fault::new("holes", "has a null among its elements")
}

fn too_large() -> Fault {
    let why = format!("decodes to more than {RATIO_MAX} times the bytes of its file");
    Fault::new("list", why)
}

/// Makes the rows of a block.
pub(crate) fn make(
    block: &RecipeBlock,
    shared: Fields<'_>,
    own: &[u8],
    wanted: RowsWanted,
    stored: &[u8],
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let tree = Tree::parse(shared)?;
    let places = Places::parse(own, &tree.root)?;
    let mut left = block.decoded_bytes.into();
    let mut load = |_: usize, buffer: &Buffer| {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let Range { start, end } = buffer.range();
        let bytes = stored.get(at(start)..at(end));
        let bytes = bytes.ok_or_else(|| fault("buffer", "lies outside its block"))?;
        decompress(places.compression, buffer, bytes, &mut left)
    };
    let mut opening = Opening::new(&places, &mut load);
    let depth = match block.aspect {
        Aspect::Values => Depth::All,
        Aspect::Validity => Depth::Validity(tree.path),
    };
    let root = opening.open(&tree.root, depth)?;
    if root.length as u64 != wanted.rows {
        return Err(fault("batch", "has another number of rows"));
    }
    let rows = Rows::new(&root, tree.path)?;
    match (block.aspect, wanted.row_bytes) {
        (Aspect::Validity, _) => rows.validity(put),
        (Aspect::Values, None) if tree.is_json => text::put(&rows, true, put),
        (Aspect::Values, None) => rows.ragged(wanted.scalar_bytes, true, put),
        (Aspect::Values, Some(bytes)) => rows.fixed(bytes, put),
    }
}
