//! A column while the batches come in, in the form that the batches need.
//!
//! ```text
//! no value yet -> rows that lie in the file, or rows that are made
//!              -> another form, which a scan can only begin with: a null came late
//! ```
//!
//! Thread rule: a plain value.

use std::ops::Range;

use super::{
    batch::RecordBatch,
    column::ColumnBuilder,
    layout::Spec,
    made::{MadeBuilder, holes},
    places::Compression,
    schema::Kind,
    tree::Dictionaries,
};
use crate::{Column, Fault, Form};

#[derive(Debug)]
pub(super) struct ColumnState {
    pub(super) spec: Spec,
    at_least: Form,
    file_bytes: u64,
    builder: Builder,
}

#[derive(Debug)]
enum Builder {
    /// Rows of the batches so far, which have no value.
    Nulls(Vec<u32>),
    Stored(ColumnBuilder),
    Made(Box<MadeBuilder>),
    /// The scan must begin again with this form.
    Other(Form),
    /// Why it is no column.
    Refused(String),
}

/// The result of a scan for one column.
pub(super) enum Finished {
    Columns(Vec<Column>),
    Nulls,
    Other(Form),
    Refused(String),
}

/// A range to read, and whether it has offsets of rows that lie in the file. Else the number of a
/// buffer.
pub(super) type Asked = (Range<u64>, Option<usize>);

impl ColumnState {
    pub(super) fn new(spec: Spec, at_least: Form, file_bytes: u64) -> Self {
        let is_nested =
            matches!(spec.field.kind, Kind::List { .. } | Kind::FixedList(_) | Kind::Map);
        let at_least = match at_least {
            Form::Json if spec.no_json.is_some() || !is_nested => Form::Made,
            form => form,
        };
        Self { spec, at_least, file_bytes, builder: Builder::Nulls(Vec::new()) }
    }

    /// Returns whether the table will have a place or a length for each row.
    pub(super) fn is_listed(&self) -> bool {
        match &self.builder {
            Builder::Stored(builder) => builder.has_spans(),
            Builder::Made(builder) => {
                builder.is_json || self.spec.flat.as_ref().is_some_and(|flat| flat.ragged)
            }
            Builder::Nulls(_) | Builder::Other(_) | Builder::Refused(_) => false,
        }
    }

    /// Notes that a dictionary changed.
    pub(super) fn forget_dictionary(&mut self) {
        if let Builder::Made(builder) = &mut self.builder {
            builder.forget_dictionary();
        }
    }

    /// Adds the rows of a batch that is not empty. Returns the ranges to read of it.
    pub(super) fn add(
        &mut self,
        batch: &RecordBatch<'_>,
        values: &Dictionaries<'_>,
    ) -> Result<Vec<Asked>, Fault> {
        let (rows_null, elements_null) = self.nulls(batch)?;
        let rows = u32::try_from(batch.rows);
        let rows = rows.map_err(|_| Fault::new("length", "is more than a block may have"))?;
        let is_null = rows_null == batch.rows;
        if is_null {
            match &mut self.builder {
                Builder::Nulls(before) => before.push(rows),
                Builder::Made(builder) => builder.add_nulls(rows),
                Builder::Stored(_) => self.builder = Builder::Other(Form::Made),
                Builder::Other(_) | Builder::Refused(_) => {}
            }
            return Ok(Vec::new());
        }
        let form = self.form(batch, rows_null > 0, elements_null > 0);
        if form == Form::Json && self.spec.no_json.is_some() {
            let why = self.spec.no_json.clone().filter(|_| self.spec.flat.is_none());
            let why = why.unwrap_or_else(|| format!("{}: not yet", holes().why));
            self.builder = Builder::Refused(why);
        }
        self.settle(form);
        let asked = match &mut self.builder {
            Builder::Stored(builder) => {
                return Ok(builder.add(batch)?.map(|range| (range, None)).into_iter().collect());
            }
            Builder::Made(builder) => builder.add(&self.spec, batch, values),
            Builder::Nulls(_) | Builder::Other(_) | Builder::Refused(_) => return Ok(Vec::new()),
        };
        let asked = self.caught(asked)?.unwrap_or_default();
        Ok(asked.into_iter().map(|(range, number)| (range, Some(number))).collect())
    }

    /// Returns how many rows are null for sure, and how many elements are. Checks all lengths.
    fn nulls(&self, batch: &RecordBatch<'_>) -> Result<(u64, u64), Fault> {
        let (mut lengths, mut rows_null, mut elements_null) = (Vec::new(), 0, 0);
        for (index, at) in self.spec.nodes.iter().enumerate() {
            let expected = match at.parent {
                Some((parent, times)) => {
                    let length: u64 = lengths[parent];
                    Some(length.saturating_mul(times))
                }
                None if index == 0 => Some(batch.rows),
                None => None,
            };
            let node = batch.node(at.node, expected)?;
            lengths.push(node.length);
            let nulls = if at.kind == Kind::Null { node.length } else { node.nulls };
            match index <= self.spec.path.len() {
                true => rows_null = nulls.max(rows_null),
                false => elements_null = nulls.max(elements_null),
            }
        }
        Ok((rows_null, elements_null))
    }

    /// Returns the form that a batch needs.
    fn form(&self, batch: &RecordBatch<'_>, rows_null: bool, elements_null: bool) -> Form {
        let is_list = matches!(self.spec.field.kind, Kind::List { .. });
        let is_made = rows_null || elements_null || batch.compression != Compression::None;
        let may_be_stored = self.spec.plain.is_some() || matches!(self.builder, Builder::Stored(_));
        match self.spec.flat {
            None => Form::Json,
            Some(_) if is_list && elements_null => Form::Json,
            Some(_) if may_be_stored && !is_made => self.at_least,
            Some(_) => self.at_least.max(Form::Made),
        }
    }

    /// Goes on in this form if it is possible.
    fn settle(&mut self, form: Form) {
        let made = |spec: &Spec, before: &[u32]| {
            let mut builder = MadeBuilder::new(spec, form == Form::Json, self.file_bytes);
            before.iter().for_each(|&rows| builder.add_nulls(rows));
            Builder::Made(Box::new(builder))
        };
        let next = match &self.builder {
            Builder::Nulls(before) if before.is_empty() && form == Form::Stored => {
                self.spec.plain.take().map(|source| Builder::Stored(ColumnBuilder::new(source)))
            }
            Builder::Nulls(before) => Some(made(&self.spec, before)),
            Builder::Stored(_) if form > Form::Stored => Some(Builder::Other(form)),
            Builder::Made(builder) if form == Form::Json && !builder.is_json => {
                Some(Builder::Other(form))
            }
            Builder::Stored(_) | Builder::Made(_) | Builder::Other(_) | Builder::Refused(_) => None,
        };
        self.builder = next
            .unwrap_or_else(|| std::mem::replace(&mut self.builder, Builder::Nulls(Vec::new())));
    }

    /// Takes the next whole offsets of a batch, or a whole buffer.
    pub(super) fn take(&mut self, number: Option<usize>, part: &[u8]) -> Result<(), Fault> {
        let taken = match (&mut self.builder, number) {
            (Builder::Stored(builder), None) => return builder.take_offsets(part),
            (Builder::Made(builder), Some(number)) => builder.take(&self.spec, number, part),
            _ => Ok(()),
        };
        self.caught(taken).map(drop)
    }

    /// Turns a fault of lists into the reason why there is no column. A file may well have such
    /// lists, and its other columns are of use.
    fn caught<T>(&mut self, result: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(fault) if fault.field == "holes" => {
                self.builder = match self.spec.no_json {
                    None => Builder::Other(Form::Json),
                    Some(_) => Builder::Refused(format!("{}: not yet", fault.why)),
                };
                Ok(None)
            }
            Err(fault) if fault.field == "list" => {
                self.builder = Builder::Refused(fault.why);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Ends the column of a file with so many rows.
    pub(super) fn finish(mut self, rows: u64) -> (String, Finished) {
        let name = self.spec.name.clone();
        if rows == 0 {
            self.settle(if self.spec.plain.is_some() { Form::Stored } else { Form::Made });
        }
        let finished = match self.builder {
            Builder::Nulls(_) => Finished::Nulls,
            Builder::Stored(builder) => match self.spec.flat {
                Some(flat) => Finished::Columns(vec![builder.finish(self.spec.name, flat)]),
                None => Finished::Refused("has no type".into()),
            },
            Builder::Made(builder) => Finished::Columns(builder.finish(self.spec).into()),
            Builder::Other(form) => Finished::Other(form),
            Builder::Refused(why) => Finished::Refused(why),
        };
        (name, finished)
    }
}
