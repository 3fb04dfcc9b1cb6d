//! The table while the batches come in.
//!
//! [`TableBuilder`] makes its columns from the schema. It adds each batch to all columns and names
//! the ranges of offsets that the columns need.
//!
//! Thread rule: a plain value. Non-goals: the order of messages, which the parent module keeps.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use larder_base::limits;

use super::{
    batch::RecordBatch,
    column_named,
    dictionary::{DictionaryBatch, DictionaryBuilder},
    flat,
    layout::{ColumnLayout, Counts},
    message::Version,
    schema::{self, Field, Kind},
    state::{ColumnState, Finished},
};
use crate::{Fault, Form, Forms, Table};

#[derive(Debug)]
pub(super) struct TableBuilder {
    counts: Counts,
    columns: Vec<ColumnState>,
    dictionaries: BTreeMap<i64, DictionaryBuilder>,
    pub(super) batches: u64,
    table: Table,
}

/// The columns to keep, or all, and the forms that they must have.
#[derive(Debug, Default)]
pub(super) struct WantedColumns {
    pub(super) columns: Option<Vec<String>>,
    pub(super) forms: Forms,
}

/// What a part of the body is read for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// Offsets of the column with this index, whose rows lie in the file.
    Offsets(usize),
    /// A buffer of a column: its index, and the number of the buffer.
    Buffer(usize, usize),
    /// A buffer of a dictionary.
    Dictionary(i64, usize),
}

/// A range of a body, and all that it is read for.
pub(super) type Part = (Range<u64>, Vec<Target>);

impl WantedColumns {
    /// Returns whether a column is wanted, by itself or by its mask.
    fn has(&self, name: &str) -> bool {
        let is_own =
            |own: &String| own.strip_prefix(name).is_some_and(|rest| matches!(rest, "" | ".valid"));
        self.columns.as_ref().is_none_or(|columns| columns.iter().any(is_own))
    }
}

impl TableBuilder {
    pub(super) fn new(
        schema: flat::FlatTable<'_>,
        wanted: &WantedColumns,
        file_bytes: u64,
    ) -> Result<Self, Fault> {
        let layout = ColumnLayout::of(&schema::fields(schema)?)?;
        let ColumnLayout { mut left_out, mut nulls, columns, counts } = layout;
        left_out.retain(|(name, _)| wanted.has(name));
        nulls.retain(|name| wanted.has(name));
        let mut table = Table { left_out, nulls, ..Table::default() };
        schema::add_metadata(schema, &mut table).map_err(|fault| fault.within("schema"))?;
        let columns = columns.into_iter().filter(|spec| wanted.has(&spec.name));
        let state = |spec: super::layout::Spec| {
            let form = wanted.forms.get(&spec.name).copied().unwrap_or(Form::Stored);
            ColumnState::new(spec, form, file_bytes)
        };
        let columns: Vec<ColumnState> = columns.map(state).collect();
        let mut dictionaries = BTreeMap::new();
        columns.iter().for_each(|column| add_dictionaries(&column.spec.field, &mut dictionaries));
        Ok(Self { counts, columns, dictionaries, batches: 0, table })
    }

    /// Notes a part of the file that is not part of the samples.
    pub(super) fn leave_out(&mut self, name: String, why: &str) {
        self.table.left_out.push((name, why.into()));
    }

    /// Adds a batch of a dictionary. Returns the parts to read, in ascending order.
    pub(super) fn add_dictionary(
        &mut self,
        header: flat::FlatTable<'_>,
        body: Range<u64>,
    ) -> Result<Vec<Part>, Fault> {
        let batch = DictionaryBatch::parse(header)?;
        let Some(dictionary) = self.dictionaries.get_mut(&batch.id) else { return Ok(Vec::new()) };
        let place = format!("dictionary {}", batch.id);
        let asked = dictionary.add(&batch, body).map_err(|fault| fault.within(place))?;
        self.columns.iter_mut().for_each(ColumnState::forget_dictionary);
        let target = |(range, number)| (range, vec![Target::Dictionary(batch.id, number)]);
        sorted(asked.into_iter().map(target).collect())
    }

    /// Adds a batch with this header and body. Returns the parts to read, in ascending order.
    pub(super) fn add(
        &mut self,
        header: flat::FlatTable<'_>,
        version: Version,
        body: Range<u64>,
    ) -> Result<Vec<Part>, Fault> {
        let batch = format!("batch {}", self.batches);
        self.batches += 1;
        self.add_batch(header, version, body).map_err(|fault| fault.within(batch))
    }

    fn add_batch(
        &mut self,
        header: flat::FlatTable<'_>,
        version: Version,
        body: Range<u64>,
    ) -> Result<Vec<Part>, Fault> {
        if version == Version::V4 && self.counts.unions > 0 {
            let why = "is V4, where unions have other buffers: not yet";
            return Err(Fault::new("metadata version", why));
        }
        let batch = RecordBatch::parse(header, self.counts, body)?;
        if batch.rows == 0 {
            return Ok(Vec::new());
        }
        let rows = self.table.rows.checked_add(batch.rows);
        self.table.rows = rows.ok_or_else(|| Fault::new("length", "overflows"))?;
        let dictionaries = &self.dictionaries;
        let values = |id| match dictionaries.get(&id) {
            Some(dictionary) => dictionary.values(),
            None => Err("has no dictionary".into()),
        };
        let mut parts = Vec::new();
        for (index, column) in self.columns.iter_mut().enumerate() {
            let asked = column.add(&batch, &values);
            let asked = asked.map_err(|fault| fault.within(column_named(&column.spec.name)))?;
            parts.extend(asked.into_iter().map(|(range, number)| {
                let buffer = |number| Target::Buffer(index, number);
                (range, vec![number.map_or(Target::Offsets(index), buffer)])
            }));
        }
        self.check_rows()?;
        sorted(parts)
    }

    fn check_rows(&self) -> Result<(), Fault> {
        let columns = self.columns.iter().filter(|column| column.is_listed()).count() as u64;
        let (rows, limit) = (self.table.rows, limits::RAGGED_ROWS_MAX);
        if columns.saturating_mul(rows) > limit {
            let why = format!("are {rows} so far, with a place in each of {columns} columns");
            let why = format!("{why}: a scan keeps at most {limit} places");
            return Err(Fault::new("rows", why));
        }
        Ok(())
    }

    /// Takes a part of the last batch. Offsets may come in pieces.
    pub(super) fn take(&mut self, target: Target, bytes: &[u8]) -> Result<(), Fault> {
        let (index, taken) = match target {
            Target::Dictionary(id, number) => {
                let place = format!("dictionary {id}");
                let dictionary = self.dictionaries.get_mut(&id);
                let taken = dictionary.map_or(Ok(()), |own| own.take(number, bytes));
                return taken.map_err(|fault| fault.within(place));
            }
            Target::Offsets(index) => (index, self.columns[index].take(None, bytes)),
            Target::Buffer(index, number) => (index, self.columns[index].take(Some(number), bytes)),
        };
        taken.map_err(|fault| {
            let place = column_named(&self.columns[index].spec.name);
            fault.within(format!("batch {} {place}", self.batches.saturating_sub(1)))
        })
    }

    pub(super) fn finish(self) -> Table {
        let mut table = self.table;
        for column in self.columns {
            match column.finish(table.rows) {
                (_, Finished::Columns(columns)) => table.columns.extend(columns),
                (name, Finished::Nulls) => table.nulls.push(name),
                (name, Finished::Other(form)) => {
                    table.forms.insert(name, form);
                }
                (name, Finished::Refused(why)) => table.left_out.push((name, why)),
            }
        }
        table
    }
}

fn add_dictionaries(field: &Field, known: &mut BTreeMap<i64, DictionaryBuilder>) {
    if let (Kind::Dictionary { id, .. }, Some(values)) = (field.kind, &field.values) {
        known.entry(id).or_insert_with(|| DictionaryBuilder::new(values));
    }
    field.children.iter().for_each(|child| add_dictionaries(child, known));
}

/// Sorts parts by their places, and joins equal ones: structs have bits that all their fields need.
fn sorted(parts: Vec<Part>) -> Result<Vec<Part>, Fault> {
    let mut by_begin: HashMap<u64, Part> = HashMap::new();
    let overlap = || Fault::new("buffers", "overlap those of another column");
    for (range, targets) in parts {
        let known = by_begin.entry(range.start).or_insert_with(|| (range.clone(), Vec::new()));
        if known.0 != range {
            return Err(overlap());
        }
        known.1.extend(targets);
    }
    let mut parts: Vec<Part> = by_begin.into_values().collect();
    parts.sort_unstable_by_key(|(range, _)| range.start);
    match parts.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start) {
        true => Ok(parts),
        false => Err(overlap()),
    }
}
