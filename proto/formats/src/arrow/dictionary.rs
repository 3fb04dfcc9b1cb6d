//! A dictionary while its batches come in. Recipes hold its values, so it must be small.
//!
//! Thread rule: a plain value.

use std::ops::Range;

use super::{
    array::{Depth, rows::Rows},
    batch::RecordBatch,
    flat::FlatTable,
    layout::{Counts, NodeAt, put_nodes},
    pending::Pending,
    schema::{Field, Kind},
    tree::{ARROW, Tree, Values, encode},
};
use crate::{
    Fault,
    block::{Fields, malformed},
};

/// Most bytes of the values of a dictionary.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct DictionaryBuilder {
    nodes: Vec<NodeAt>,
    counts: Counts,
    /// The recipe of its values alone.
    recipe: Vec<u8>,
    is_text: bool,
    pending: Option<Pending>,
    values: Result<Values, String>,
}

/// The header of a batch of a dictionary.
pub(super) struct DictionaryBatch<'a> {
    pub(super) id: i64,
    data: FlatTable<'a>,
    is_delta: bool,
}

impl<'a> DictionaryBatch<'a> {
    pub(super) fn parse(table: FlatTable<'a>) -> Result<Self, Fault> {
        let data = table.table(1)?.ok_or_else(|| Fault::new("dictionary", "has no values"))?;
        Ok(Self { id: table.i64(0)?, data, is_delta: table.u8(2)? != 0 })
    }
}

impl DictionaryBuilder {
    pub(super) fn new(field: &Field) -> Self {
        let mut nodes = Vec::new();
        put_nodes(field, Counts::default(), None, &mut nodes);
        let is_text = matches!(field.kind, Kind::Text { .. } | Kind::View(_));
        let (recipe, values) = match field.kind {
            Kind::Text { .. } | Kind::View(_) | Kind::Number(..) => {
                let recipe = encode(false, &[], field, &|_| Err("is nested".into()));
                (recipe.unwrap_or_default(), Err("comes before its dictionary".into()))
            }
            kind => (Vec::new(), Err(format!("has a dictionary of {}: not yet", kind.noun()))),
        };
        let counts = Counts::default().after(field);
        Self { nodes, counts, recipe, is_text, pending: None, values }
    }

    /// Returns the values, or why there are none.
    pub(super) fn values(&self) -> Result<&Values, String> {
        self.values.as_ref().map_err(Clone::clone)
    }

    /// Adds a batch. Returns the ranges to read of it.
    pub(super) fn add(
        &mut self,
        batch: &DictionaryBatch<'_>,
        body: Range<u64>,
    ) -> Result<Vec<(Range<u64>, usize)>, Fault> {
        if self.recipe.is_empty() {
            return Ok(Vec::new());
        }
        if !batch.is_delta {
            self.values = Ok(Values::default());
        }
        let batch = RecordBatch::parse(batch.data, self.counts, body)?;
        let (mut pending, nulls) = Pending::new(&batch, &self.nodes)?;
        if nulls.iter().any(|&nulls| nulls > 0) {
            self.values = Err("has a null in its dictionary: not yet".into());
        }
        let stored: u64 = pending.places.buffers().map(|buffer| buffer.stored).sum();
        if stored > 2 * BYTES_MAX {
            self.refuse_size();
        }
        if self.values.is_err() {
            return Ok(Vec::new());
        }
        let asked = pending.ask(|_, _| true)?;
        self.pending = Some(pending);
        if asked.is_empty() {
            self.end_batch()?;
        }
        Ok(asked)
    }

    /// Takes a part of the batch.
    pub(super) fn take(&mut self, number: usize, part: &[u8]) -> Result<(), Fault> {
        let is_last = self.pending.as_mut().is_some_and(|pending| pending.take(number, part));
        if is_last { self.end_batch() } else { Ok(()) }
    }

    fn end_batch(&mut self) -> Result<(), Fault> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        pending.settle()?;
        let decoded: u64 = pending.places.buffers().map(|buffer| buffer.decoded).sum();
        let Ok(values) = &mut self.values else { return Ok(()) };
        if decoded + values.bytes.len() as u64 > 2 * BYTES_MAX {
            self.refuse_size();
            return Ok(());
        }
        let mut fields = Fields::new(&self.recipe);
        if fields.integer()? != ARROW {
            return Err(malformed("is of another format"));
        }
        let tree = Tree::parse(fields)?;
        let array = pending.open(&tree.root, Depth::All)?;
        let rows = Rows::new(&array, 0)?;
        let ends = values.ends.get_or_insert_default();
        let mut put = |bytes: &[u8], lengths: &[u32]| {
            values.bytes.extend_from_slice(bytes);
            for &length in lengths {
                let end = ends.last().copied().unwrap_or(0).saturating_add(length);
                ends.push(end);
            }
            Ok(())
        };
        match tree.root.value_bytes() {
            Some(bytes) => rows.fixed(bytes, &mut put)?,
            None => rows.ragged(1, true, &mut put)?,
        }
        let size = values.bytes.len() + 4 * ends.len();
        if !self.is_text {
            values.ends = None;
        }
        if size as u64 > BYTES_MAX {
            self.refuse_size();
        }
        Ok(())
    }

    fn refuse_size(&mut self) {
        let why = format!("has a dictionary of more than {BYTES_MAX} bytes: write it as values");
        self.values = Err(why);
    }
}
