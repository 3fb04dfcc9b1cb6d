//! The table while the batches come in.
//!
//! [`TableBuilder`] makes its columns from the schema. It adds each batch to all columns and names
//! the ranges of offsets that the columns need.
//!
//! Thread rule: a plain value. Non-goals: the order of messages, which the parent module keeps.

use std::ops::Range;

use larder_base::limits;

use super::{
    batch::Batch,
    column::ColumnBuilder,
    column_named, flat,
    layout::{Counts, Layout},
    message::Version,
    schema,
};
use crate::{Fault, Table};

#[derive(Debug)]
pub(super) struct TableBuilder {
    counts: Counts,
    columns: Vec<ColumnBuilder>,
    pub(super) batches: u64,
    table: Table,
}

/// A range of offsets, and the column that they belong to.
pub(super) type OffsetsRange = (Range<u64>, usize);

impl TableBuilder {
    pub(super) fn new(schema: flat::Table<'_>) -> Result<Self, Fault> {
        let layout = Layout::of(&schema::fields(schema)?)?;
        let Layout { left_out, nulls, .. } = layout;
        let mut table = Table { left_out, nulls, ..Table::default() };
        schema::add_metadata(schema, &mut table).map_err(|fault| fault.within("schema"))?;
        let columns = layout.columns.into_iter().map(ColumnBuilder::new).collect();
        Ok(Self { counts: layout.counts, columns, batches: 0, table })
    }

    /// Notes a part of the file that is not part of the samples.
    pub(super) fn leave_out(&mut self, name: String, why: &str) {
        self.table.left_out.push((name, why.into()));
    }

    /// Adds a batch with this header and body. Returns the offsets to read, in ascending order.
    pub(super) fn add(
        &mut self,
        header: flat::Table<'_>,
        version: Version,
        body: Range<u64>,
    ) -> Result<Vec<OffsetsRange>, Fault> {
        let batch = format!("batch {}", self.batches);
        self.batches += 1;
        self.add_batch(header, version, body).map_err(|fault| fault.within(batch))
    }

    fn add_batch(
        &mut self,
        header: flat::Table<'_>,
        version: Version,
        body: Range<u64>,
    ) -> Result<Vec<OffsetsRange>, Fault> {
        if version == Version::V4 && self.counts.unions > 0 {
            let why = "is V4, where unions have other buffers: not yet";
            return Err(Fault::new("metadata version", why));
        }
        let batch = Batch::parse(header, self.counts, body)?;
        if batch.rows == 0 {
            return Ok(Vec::new());
        }
        let rows = self.table.rows.checked_add(batch.rows);
        self.table.rows = rows.ok_or_else(|| Fault::new("length", "overflows"))?;
        let mut offsets = Vec::new();
        for (index, builder) in self.columns.iter_mut().enumerate() {
            let range = builder.add(&batch);
            let range = range.map_err(|fault| fault.within(column_named(&builder.source.name)))?;
            offsets.extend(range.map(|range| (range, index)));
        }
        self.check_spans()?;
        offsets.sort_unstable_by_key(|(range, _)| range.start);
        match offsets.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
            Some(pair) => {
                let name = &self.columns[pair[1].1].source.name;
                let why = "overlap those of another column";
                Err(Fault::new("offsets", why).within(column_named(name)))
            }
            None => Ok(offsets),
        }
    }

    fn check_spans(&self) -> Result<(), Fault> {
        let columns = self.columns.iter().filter(|column| column.has_spans()).count() as u64;
        let (rows, limit) = (self.table.rows, limits::RAGGED_ROWS_MAX);
        if columns.saturating_mul(rows) > limit {
            let why = format!("are {rows} so far, with a place in each of {columns} columns");
            let why = format!("{why}: a scan keeps at most {limit} places");
            return Err(Fault::new("rows", why));
        }
        Ok(())
    }

    /// Takes the next whole offsets of a column in the last batch.
    pub(super) fn take_offsets(&mut self, index: usize, bytes: &[u8]) -> Result<(), Fault> {
        let builder = &mut self.columns[index];
        builder.take_offsets(bytes).map_err(|fault| {
            let place = column_named(&builder.source.name);
            fault.within(format!("batch {} {place}", self.batches - 1))
        })
    }

    pub(super) fn finish(self) -> Table {
        let mut table = self.table;
        for builder in self.columns {
            if builder.is_null() {
                table.nulls.push(builder.source.name);
                continue;
            }
            match builder.finish() {
                Ok(column) => table.columns.push(column),
                Err(left_out) => table.left_out.push(left_out),
            }
        }
        table
    }
}
