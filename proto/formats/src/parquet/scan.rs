//! The scan of a Parquet file: its footer, and the columns that must be decoded.
//!
//! Thread rule: a plain value. Memory: the footer, the lengths of rows that differ in length, and
//! one page.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use larder_base::limits;

use super::{
    MAGIC, VALID,
    column::ColumnScan,
    column_named, fixed_lists,
    footer::Footer,
    nested::{
        self,
        scan::{NestedScan, bytes_max},
    },
    schema::{self, Leaf},
};
use crate::{
    Blocks, Column, Fault, Form, Forms, Rows, Scan, Table,
    scan::{Reads, tail},
    table::SHARED_NAME,
};

/// Largest footer.
const FOOTER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a chunk that are read before its pages are taken.
const PIECE_BYTES: u64 = 1 << 20;
/// A file may decode to this many times its size, or to [`RATIO_FREE_BYTES`].
const RATIO_MAX: u64 = 1000;
const RATIO_FREE_BYTES: u64 = 256 << 20;

/// The scan of a Parquet file.
#[derive(Debug)]
pub struct ParquetScan {
    file_bytes: u64,
    /// The columns to keep, or all.
    wanted: Option<Vec<String>>,
    reads: Reads<ReadPart>,
    table: Table,
    columns: Vec<ColumnScan>,
    nested: Vec<NestedScan>,
    forms: Forms,
}

/// A range that the scan asks for.
#[derive(Debug, Clone, Copy)]
enum ReadPart {
    End,
    Footer,
    /// Bytes of a chunk: the numbers of the column and of the row group.
    Piece(usize, usize),
    /// Bytes of the chunks of a nested column: its number, and that of the row group.
    Nested(usize, usize),
}

impl ParquetScan {
    /// Begins the scan of a file of this size. `columns` are those to keep, or all.
    pub fn new(file_bytes: u64, columns: Option<&[String]>) -> Self {
        let mut reads = Reads::new(file_bytes);
        let begin = file_bytes.saturating_sub(limits::HEADER_PROBE_BYTES);
        if begin < file_bytes {
            reads.push(begin..file_bytes, ReadPart::End);
            reads.plan();
        }
        let (wanted, table) = (columns.map(<[String]>::to_vec), Table::default());
        let (columns, nested, forms) = (Vec::new(), Vec::new(), Forms::new());
        Self { file_bytes, wanted, reads, table, columns, nested, forms }
    }

    /// Gives columns in these forms at least.
    #[must_use]
    pub fn with_forms(self, forms: &Forms) -> Self {
        Self { forms: forms.clone(), ..self }
    }

    fn take_part(&mut self, part: ReadPart, range: Range<u64>, bytes: &[u8]) -> Result<(), Fault> {
        match part {
            ReadPart::End => self.take_end(range.start, bytes),
            ReadPart::Footer => self.take_footer(range.start, bytes),
            ReadPart::Piece(column, group) => {
                self.columns[column].take_piece(group, range.end, bytes)
            }
            ReadPart::Nested(column, group) => {
                self.nested[column].take_piece(group, range.end, bytes)
            }
        }
    }

    /// Takes the last bytes of the file. The footer is often among them.
    fn take_end(&mut self, begin: u64, bytes: &[u8]) -> Result<(), Fault> {
        let last = bytes.strip_suffix(MAGIC).ok_or_else(|| {
            let why = match bytes.ends_with(b"PARE") {
                true => "is encrypted: not yet",
                false => {
                    "is missing: the file does not end with PAR1, so it was cut off or is no \
                     Parquet file"
                }
            };
            Fault::new("footer", why)
        })?;
        let tail::FooterPlace { range, bytes } = tail::find_footer(begin, last, FOOTER_BYTES_MAX)?;
        if let Some(bytes) = bytes {
            return self.take_footer(range.start, bytes);
        }
        self.reads.push(range, ReadPart::Footer);
        Ok(())
    }

    fn take_footer(&mut self, begin: u64, bytes: &[u8]) -> Result<(), Fault> {
        let footer = Footer::parse(bytes)?;
        let fixed = fixed_lists::lengths(&footer.metadata);
        let leaves = schema::leaves(&footer.schema, &fixed)?;
        let rows: Option<u64> =
            footer.groups.iter().try_fold(0, |sum: u64, group| sum.checked_add(group.rows));
        if rows != Some(footer.rows) {
            return Err(Fault::new("footer", "counts other rows than its row groups"));
        }
        self.table.rows = footer.rows;
        let own = ["ARROW:schema", "pandas"];
        let told = footer.metadata.iter().filter(|(key, _)| !own.contains(&key.as_str()));
        self.table.metadata = told.cloned().collect();
        let mut pieces = Vec::new();
        let wanted = self.wanted.clone();
        let is_wanted = |name: &str| wanted.as_ref().is_none_or(|names| is_named(name, names));
        let shared = shared_names(&leaves);
        for name in shared.iter().filter(|name| is_wanted(name)) {
            self.leave_out(name, SHARED_NAME.into());
        }
        let nested = nested_fields(&leaves, &self.forms);
        for (name, own, why) in &nested {
            if is_wanted(name) && !name.is_empty() {
                self.add_nested((name, own, why), &footer, begin, &mut pieces)?;
            }
        }
        for (index, leaf) in leaves.into_iter().enumerate() {
            let is_nested = nested.iter().any(|(_, own, _)| own.contains(&index));
            if !is_wanted(&leaf.name) || (is_nested && !leaf.name.is_empty()) {
                continue;
            }
            match leaf.column.clone() {
                _ if leaf.name.is_empty() => self.leave_out("", "has no name".into()),
                Ok(_) if shared.contains(&leaf.name) => {}
                Ok(_) if leaf.is_null => self.table.nulls.push(leaf.name),
                Ok(shape) => {
                    let column = ColumnScan::new(index, leaf, shape);
                    self.add_column(column, index, &footer, begin, &mut pieces)?;
                }
                Err(why) => self.leave_out(&leaf.name, why),
            }
        }
        self.check_rows()?;
        self.ask(pieces)
    }

    fn leave_out(&mut self, name: &str, why: String) {
        if self.table.left_out.last().is_none_or(|(last, _)| last != name) {
            self.table.left_out.push((name.to_owned(), why));
        }
    }

    /// Adds a column with its blocks. Appends the chunks to decode to `pieces`.
    fn add_column(
        &mut self,
        mut column: ColumnScan,
        index: usize,
        footer: &Footer,
        end: u64,
        pieces: &mut Vec<(Range<u64>, ReadPart)>,
    ) -> Result<(), Fault> {
        let own = pieces.len();
        let name = column.leaf.name.clone();
        for (number, group) in footer.groups.iter().enumerate().filter(|(_, group)| group.rows > 0)
        {
            let place = || format!("row group {number} {}", column_named(&name));
            let chunk = group.chunks.get(index).ok_or_else(|| {
                Fault::new(place(), "has no chunk, though the schema has the column")
            })?;
            let added = column.add(chunk, group.rows, end);
            let range = added.map_err(|fault| fault.within(place()))?;
            if let (None, Some(range)) = (&column.refused, range) {
                pieces.push((range, ReadPart::Piece(self.columns.len(), column.blocks.len() - 1)));
            }
        }
        match column.refused.take() {
            Some(why) => {
                pieces.truncate(own);
                self.leave_out(&name, why);
            }
            None => self.columns.push(column),
        }
        Ok(())
    }

    /// Adds a nested field with its blocks, or leaves it out.
    fn add_nested(
        &mut self,
        (name, leaves, why): (&str, &Range<usize>, &str),
        footer: &Footer,
        end: u64,
        pieces: &mut Vec<(Range<u64>, ReadPart)>,
    ) -> Result<(), Fault> {
        let root = match nested::field(&footer.schema, leaves) {
            Ok(root) => root,
            Err(other) => {
                let why = if leaves.len() > 1 || why.is_empty() { other } else { why.into() };
                self.leave_out(name, why);
                return Ok(());
            }
        };
        let is_json = self.forms.get(name) == Some(&Form::Json);
        if let Some((leaf, shape)) = root.even_lists(name).filter(|_| !is_json) {
            let column = ColumnScan::new(leaves.start, leaf, shape);
            return self.add_column(column, leaves.start, footer, end, pieces);
        }
        let left = bytes_max(self.file_bytes);
        let mut column = NestedScan::new(name.into(), leaves.clone(), root, left);
        let own = pieces.len();
        let groups = footer.groups.iter().filter(|group| group.rows > 0);
        for (number, group) in groups.enumerate() {
            let place = || format!("row group {number} {}", column_named(name));
            let range = column.add(group, end).map_err(|fault| fault.within(place()))?;
            let part = ReadPart::Nested(self.nested.len(), number);
            pieces.extend(range.map(|range| (range, part)));
        }
        match column.refused.take() {
            Some(why) => {
                pieces.truncate(own);
                self.leave_out(name, why);
            }
            None => self.nested.push(column),
        }
        Ok(())
    }

    /// Checks that memory has room for the lengths of these rows.
    fn check_rows(&self) -> Result<(), Fault> {
        let ragged = self.columns.iter().filter(|column| column.shape.ragged).count();
        let ragged = (ragged + self.nested.len()) as u64;
        let limit = limits::RAGGED_ROWS_MAX;
        if ragged.saturating_mul(self.table.rows) > limit {
            let why = format!("are {} in each of {ragged} columns of any length", self.table.rows);
            let why = format!("{why}: a scan keeps at most {limit} lengths");
            return Err(Fault::new("rows", why));
        }
        Ok(())
    }

    /// Asks for the chunks to decode, in the order in which they lie.
    fn ask(&mut self, mut chunks: Vec<(Range<u64>, ReadPart)>) -> Result<(), Fault> {
        chunks.sort_by_key(|(range, _)| range.start);
        let mut end = 0;
        for (mut range, part) in chunks {
            if range.start < end {
                let name = match part {
                    ReadPart::Piece(column, _) => &self.columns[column].leaf.name,
                    ReadPart::Nested(column, _) => &self.nested[column].name,
                    ReadPart::End | ReadPart::Footer => "",
                };
                let name = column_named(name);
                return Err(Fault::new(name, "has a chunk that overlaps another"));
            }
            end = range.end;
            while !range.is_empty() {
                let next = range.end.min(range.start + PIECE_BYTES);
                self.reads.push(range.start..next, part);
                range.start = next;
            }
        }
        Ok(())
    }

    fn add_table_columns(&mut self) {
        let mut columns: Vec<(usize, [Column; 2])> = Vec::new();
        for column in std::mem::take(&mut self.columns) {
            match column.refused {
                Some(_) if column.needs_json => {
                    self.table.forms.insert(column.leaf.name, Form::Json);
                }
                Some(why) => self.leave_out(&column.leaf.name.clone(), why),
                None => columns.push((column.place, column.into_columns())),
            }
        }
        for column in std::mem::take(&mut self.nested) {
            match column.refused {
                Some(why) => self.leave_out(&column.name.clone(), why),
                None => columns.push((column.leaves.start, column.into_columns())),
            }
        }
        columns.sort_by_key(|(place, _)| *place);
        self.table.columns.extend(columns.into_iter().flat_map(|(_, columns)| columns));
    }

    /// Checks that the file does not stand for far more than its size.
    fn check_ratio(&self) -> Result<(), Fault> {
        let bytes = |column: &Column| {
            let lengths = match &column.rows {
                Rows::Blocks(blocks) if blocks.is_redundant => return 0,
                Rows::Blocks(Blocks { lengths: Some(lengths), .. }) => lengths,
                _ => {
                    let row = column.shape.iter().product::<u64>() * column.dtype.size_bytes();
                    return self.table.rows.saturating_mul(row);
                }
            };
            lengths.iter().map(|&bytes| u64::from(bytes)).sum()
        };
        let decoded = self.table.columns.iter().map(bytes).fold(0, u64::saturating_add);
        let limit = self.file_bytes.saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
        if decoded > limit {
            let why = format!(
                "decodes to {decoded} bytes from {}, more than {RATIO_MAX} times as many: choose \
                 columns with --columns, or write the file again without the repeated values",
                self.file_bytes
            );
            return Err(Fault::new("file", why));
        }
        Ok(())
    }
}

/// Returns the fields that only JSON can hold, or must: the name, the leaves, and why they are no
/// columns otherwise.
fn nested_fields(leaves: &[Leaf], forms: &Forms) -> Vec<(String, Range<usize>, String)> {
    let mut found: Vec<(String, Range<usize>, String)> = Vec::new();
    for (index, leaf) in leaves.iter().enumerate() {
        let is_forced = forms.get(&leaf.name) == Some(&Form::Json) && leaf.list_definition > 0;
        let why = match &leaf.column {
            Err(why) if leaf.list_definition > 0 => why.clone(),
            Ok(_) if is_forced => String::new(),
            _ => continue,
        };
        match found.last_mut() {
            Some((name, own, _)) if *name == leaf.name && own.end == index => own.end += 1,
            _ => found.push((leaf.name.clone(), index..index + 1, why)),
        }
    }
    found
}

/// Returns the names that several columns have.
fn shared_names(leaves: &[Leaf]) -> BTreeSet<String> {
    let mut known = HashSet::new();
    let columns = leaves.iter().filter(|leaf| leaf.column.is_ok());
    columns.filter(|leaf| !known.insert(&leaf.name)).map(|leaf| leaf.name.clone()).collect()
}

/// Returns whether a column is among the wanted ones, by itself or by its validity.
fn is_named(name: &str, wanted: &[String]) -> bool {
    wanted.iter().any(|own| {
        let valid = own.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        own == name || valid == Some(VALID)
    })
}

impl Scan for ParquetScan {
    fn wants(&self) -> Option<Range<u64>> {
        self.reads.wants()
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some((range, part, bytes)) = self.reads.take(&mut bytes) {
            self.take_part(part, range, &bytes)?;
        }
        self.reads.plan();
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Table, Fault> {
        if self.file_bytes == 0 {
            return Err(Fault::new("footer", "is missing: the file is empty"));
        }
        self.add_table_columns();
        self.check_ratio()?;
        Ok(self.table)
    }
}
