//! The samples of one file.

use std::{collections::BTreeMap, ops::Range};

use crate::{Block, Dtype, Logical, Recipes};

/// The form in which a scan gives the rows of a column. Files must agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The rows lie in the file.
    Stored,
    /// They are made.
    Made,
    /// They are made, and are texts in JSON.
    Json,
}

/// The forms that columns must have at least, by name.
pub type Forms = BTreeMap<String, Form>;

/// Why columns are left out that have one name.
pub(crate) const SHARED_NAME: &str = "is the name of several columns: give each its own";

/// The samples of one file: some columns of equally many rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Number of samples.
    pub rows: u64,
    /// The columns, each with a name of its own.
    pub columns: Vec<Column>,
    /// Columns and members that are not part of the samples: the name, and the reason as a clause.
    pub left_out: Vec<(String, String)>,
    /// Columns without a value in any row. They agree with a column of any type.
    pub nulls: Vec<String>,
    /// Columns that are missing here because they need another form than the scan began with. A
    /// scan that begins with these forms gives them.
    pub forms: Forms,
    /// Pairs of key and value that the file keeps about its columns, such as the names of classes.
    pub metadata: Vec<(String, String)>,
}

impl Table {
    /// Returns whether there is no column, not even one without a value.
    pub fn is_blank(&self) -> bool {
        self.columns.is_empty() && self.nulls.is_empty()
    }
}

/// One column of a file's samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name.
    pub name: String,
    /// The type of an element.
    pub dtype: Dtype,
    /// The meaning of a value.
    pub logical: Logical,
    /// The shape of a row. Of a ragged row: the shape of one element.
    pub shape: Vec<u64>,
    /// Whether rows differ in length: each is some elements of `shape`.
    pub ragged: bool,
    /// The place of each row.
    pub rows: Rows,
    /// The rows that the file has no value for, in ascending order. They are empty in `rows`, or
    /// zero if all rows have one length.
    pub absent: Vec<u64>,
}

/// The places of a column's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// Row `r` lies at `begin + r * stride` of the file. All rows have one length.
    Strided {
        /// Offset of the first row.
        begin: u64,
        /// Bytes from the beginning of one row to that of the next.
        stride: u64,
    },
    /// Each row is one range of the file. The ranges may lie in any order.
    Spans(Spans),
    /// The values were read by the scan.
    Inline(Inline),
    /// The rows must be decoded, block by block.
    Blocks(Blocks),
}

/// The blocks of a column, in the order of their rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks {
    /// The blocks.
    pub blocks: Vec<PlacedBlock>,
    /// The bytes of each row. `None` if all rows have one length.
    pub lengths: Option<Vec<u32>>,
    /// The column says nothing unless that of another file does: all rows are valid.
    pub is_redundant: bool,
    /// The recipes that the blocks refer to.
    pub recipes: Recipes,
}

/// A block, and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedBlock {
    /// The stored bytes.
    pub range: Range<u64>,
    /// Number of rows.
    pub rows: u32,
    /// How the rows are made.
    pub block: Block,
}

/// A range of a file for each row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans {
    begins: Vec<u64>,
    lengths: Vec<u32>,
}

impl Spans {
    /// Appends a row: its offset in the file, and its bytes.
    pub fn push(&mut self, begin: u64, bytes: u32) {
        self.begins.push(begin);
        self.lengths.push(bytes);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.begins.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.begins.is_empty()
    }

    /// Returns the bytes of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn bytes(&self, row: usize) -> u64 {
        self.lengths[row].into()
    }

    /// Returns the bytes of each row.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Returns the range of a row in the file.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn range(&self, row: usize) -> Range<u64> {
        self.begins[row]..self.begins[row].saturating_add(self.bytes(row))
    }

    /// Returns the ranges of all rows, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        (0..self.len()).map(|row| self.range(row))
    }
}

/// The values of a column, row after row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inline {
    values: Vec<u8>,
    ends: Vec<u64>,
}

impl Inline {
    /// Appends the value of a row.
    pub fn push(&mut self, value: &[u8]) {
        self.values.extend_from_slice(value);
        self.ends.push(self.values.len() as u64);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the value of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn value(&self, row: usize) -> &[u8] {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        let at = |offset: u64| usize::try_from(offset).expect("the values are in memory");
        &self.values[at(begin)..at(self.ends[row])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_again() {
        let mut spans = Spans::default();
        spans.push(512, 7);
        spans.push(100, 0);
        assert_eq!(spans.iter().collect::<Vec<_>>(), [512..519, 100..100]);
        let mut inline = Inline::default();
        for value in [b"ab".as_slice(), b"", b"c"] {
            inline.push(value);
        }
        assert_eq!(
            (inline.value(0), inline.value(1), inline.value(2)),
            (&b"ab"[..], &b""[..], &b"c"[..])
        );
    }
}
