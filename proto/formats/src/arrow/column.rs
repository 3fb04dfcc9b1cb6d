//! A column of rows that lie in the file, while the batches come in.
//!
//! [`ColumnBuilder::add`] takes the place of a batch's rows. For rows of different lengths it
//! returns the range of the batch's offsets, and [`ColumnBuilder::take_offsets`] takes their bytes.
//!
//! Thread rule: a plain value. Non-goals: the order of reads (`reads`); rows that must be made.

use std::ops::Range;

use super::{
    batch::RecordBatch,
    layout::{ColumnSource, Flat},
    message::unsigned,
};
use crate::{Column, Fault, Rows, Spans};

#[derive(Debug)]
pub(super) struct ColumnBuilder {
    source: ColumnSource,
    /// Rows of one length: the place of the first in each batch, and their number.
    runs: Vec<(u64, u64)>,
    /// Rows of different lengths.
    spans: Spans,
    cursor: Cursor,
}

/// The progress through the offsets of one batch.
#[derive(Debug, Default)]
struct Cursor {
    /// The place of the values in the file.
    begin: u64,
    /// The number of values.
    count: u64,
    last: Option<u64>,
}

impl ColumnBuilder {
    pub(super) fn new(source: ColumnSource) -> Self {
        let (runs, spans, cursor) = (Vec::new(), Spans::default(), Cursor::default());
        Self { source, runs, spans, cursor }
    }

    /// Returns whether the table will have a span for each row.
    pub(super) fn has_spans(&self) -> bool {
        self.source.offsets.is_some() || self.runs.len() > 1
    }

    /// Adds the rows of a batch that is not empty, not compressed and has no nulls. Returns the
    /// range of its offsets to read.
    pub(super) fn add(&mut self, batch: &RecordBatch<'_>) -> Result<Option<Range<u64>>, Fault> {
        let ColumnSource { values, offsets, views } = &self.source;
        let count = match (offsets, values.node) {
            (None, _) => Some(batch.rows),
            (Some(_), Some(node)) => Some(batch.node(node, None)?.length),
            // The bytes of strings have no node, and fill their buffer.
            (Some(_), None) => None,
        };
        let bytes = count.map(|count| count.saturating_mul(values.bytes));
        let range = batch.buffer(values.buffer, *views, bytes, "values")?;
        let Some(offsets) = offsets else {
            self.runs.push((range.start, batch.rows));
            return Ok(None);
        };
        let count = count.unwrap_or(range.end - range.start);
        self.cursor = Cursor { begin: range.start, count, last: None };
        let bytes = batch.rows.saturating_add(1).saturating_mul(offsets.width);
        let range = batch.buffer(offsets.buffer, *views, Some(bytes), "offsets")?;
        Ok(Some(range.start..range.start + bytes))
    }

    /// Takes the next whole offsets of the batch.
    pub(super) fn take_offsets(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(offsets) = &self.source.offsets else { return Ok(()) };
        let width = usize::try_from(offsets.width).expect("offsets have 4 or 8 bytes");
        for bytes in bytes.chunks_exact(width) {
            let offset = match bytes.first_chunk() {
                Some(bytes) => i64::from_le_bytes(*bytes),
                None => i32::from_le_bytes(bytes.try_into().expect("offsets of 4 bytes")).into(),
            };
            self.take_offset(unsigned(offset, "offsets")?)?;
        }
        Ok(())
    }

    fn take_offset(&mut self, offset: u64) -> Result<(), Fault> {
        let Cursor { begin, count, last } = self.cursor;
        let row = self.spans.len();
        let fault = |why: String| Err(Fault::new("offsets", why));
        if offset > count {
            return fault(format!("lead to {offset} at row {row}, past the {count} values"));
        }
        if let Some(last) = last {
            let Some(values) = offset.checked_sub(last) else {
                return fault(format!("fall from {last} to {offset} at row {row}"));
            };
            // The product is in the file: `add` has compared all values with their buffer.
            let bytes = values * self.source.values.bytes;
            let Ok(length) = u32::try_from(bytes) else {
                return fault(format!("give row {row} {bytes} bytes, at most {}", u32::MAX));
            };
            self.spans.push(begin + last * self.source.values.bytes, length);
        }
        self.cursor.last = Some(offset);
        Ok(())
    }

    /// Returns the column.
    pub(super) fn finish(self, name: String, flat: Flat) -> Column {
        let bytes = self.source.values.bytes;
        let rows = match self.runs[..] {
            [(begin, _)] => Rows::Strided { begin, stride: bytes },
            _ => Rows::Spans(spans(self.spans, &self.runs, bytes)),
        };
        let Flat { dtype, logical, shape, ragged, .. } = flat;
        Column { name, dtype, logical, shape, ragged, rows, absent: Vec::new() }
    }
}

/// Appends the rows of each run.
fn spans(mut spans: Spans, runs: &[(u64, u64)], bytes: u64) -> Spans {
    let length = u32::try_from(bytes).expect("the layout bounds rows");
    for (begin, rows) in runs {
        for row in 0..*rows {
            spans.push(begin + row * bytes, length);
        }
    }
    spans
}
