//! Makes one dataset of the tables of many files: agrees on the columns, and treats samples that
//! lack one of them.

use std::{collections::BTreeSet, fmt, str::FromStr};

use larder_base::{Counted, limits};
use larder_formats::{Block, Blocks, Column, Inline, PlacedBlock, Rows, Spans, Table, shown};

use crate::{
    ColumnSpec, DatasetError, Dtype, GroupSpec, Layout, Logical, ObjectInfo, OriginUri, RowLocator,
    TensorSpec,
    index::{
        LeftOut, LeftOuts,
        group::{IndexPlan, object},
    },
};

/// The treatment of a sample that lacks a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// It is an error.
    #[default]
    Error,
    /// The row is empty, or zero if all rows of the column have one length.
    Empty,
    /// The sample is left out.
    Skip,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Empty => "empty",
            Self::Skip => "skip",
        })
    }
}

impl FromStr for Missing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Error, Self::Empty, Self::Skip];
        let found = all.into_iter().find(|missing| missing.to_string() == text);
        found.ok_or_else(|| "it is one of error, empty, skip".to_owned())
    }
}

/// The columns that all files agree on.
struct Agreed {
    name: String,
    dtype: Dtype,
    logical: Logical,
    shape: Vec<u64>,
    ragged: bool,
    layout: Layout,
}

/// Plans a dataset of these tables, in their order. `columns` are those to keep, or all.
///
/// # Errors
/// Two files disagree about a column. A wanted column is in none. A sample lacks a column, and
/// `missing` does not say what to do.
pub(super) fn plan(
    uri: &OriginUri,
    mut tables: Vec<(ObjectInfo, Table)>,
    columns: Option<&[String]>,
    missing: Missing,
    left_out: &mut LeftOuts,
) -> Result<IndexPlan, DatasetError> {
    let typed = made_columns(&tables);
    let has_type = |name: &str| typed.contains(name);
    let mut unreadable = BTreeSet::new();
    for (file, table) in &mut tables {
        let mut told = std::mem::take(&mut table.left_out);
        let kept = table.nulls.extract_if(.., |name| !has_type(name));
        told.extend(kept.map(|name| (name, "is all null".to_owned())));
        let without = |name: &str| table.columns.iter().all(|column| column.name != name);
        unreadable.extend(told.iter().map(|(name, _)| name.clone()).filter(|name| without(name)));
        left_out.extend(told.into_iter().map(|(name, why)| LeftOut::tensor(&file.key, &name, why)));
        if table.rows == 0 {
            left_out.push(LeftOut::object(&file.key, "holds no samples"));
        } else if table.is_blank() {
            left_out.push(LeftOut::object(&file.key, "has no column that can be read"));
        }
    }
    tables.retain(|(_, table)| table.rows > 0 && !table.is_blank());
    // A column that one file can't give is none, or its rows there would count as missing.
    let masks = drop_redundant(uri, &mut tables)?;
    let has_no_rows = |mask: &str| {
        masks.contains(mask) && unreadable.contains(mask.strip_suffix(".valid").unwrap_or(mask))
    };
    let is_column = |name: &str| !unreadable.contains(name) && !has_no_rows(name);
    let columns = columns.map(|wanted| with_masks(wanted, &masks));
    let mut agreed = match columns.as_deref() {
        None => agree(uri, &tables, is_column)?,
        Some(wanted) => {
            let is_wanted = |name: &str| is_column(name) && wanted.iter().any(|own| own == name);
            let agreed = agree(uri, &tables, is_wanted)?;
            let columns = tables.iter().flat_map(|(_, table)| &table.columns);
            let names = columns.map(|column| column.name.as_str()).filter(|name| is_column(name));
            chosen(agreed, wanted, &names.collect())?
        }
    };
    check_rows(uri, &tables, &agreed)?;
    let mut files = Vec::with_capacity(tables.len());
    for (file, table) in tables {
        let mut found = AgreedColumns::new(file, table, &agreed);
        match missing {
            Missing::Error => found.check_complete(uri, &agreed)?,
            Missing::Empty => found.check_may_be_empty(uri, &agreed)?,
            Missing::Skip => found.skip_incomplete(left_out),
        }
        files.extend((found.rows > 0).then_some(found));
    }
    for (index, column) in agreed.iter_mut().enumerate() {
        if files.iter().any(|found| layout_of(&found.columns[index]) == Layout::Spans) {
            column.layout = Layout::Spans;
        }
    }
    let groups = files.into_iter().map(|found| found.into_group(&agreed)).collect();
    Ok(IndexPlan { tensors: agreed.iter().map(Agreed::spec).collect(), groups })
}

/// Returns the names of the columns whose rows are made. A file without any value in such a column
/// agrees with those that have some.
fn made_columns(tables: &[(ObjectInfo, Table)]) -> BTreeSet<String> {
    let columns = tables.iter().flat_map(|(_, table)| &table.columns);
    let made = columns.filter(|column| matches!(column.rows, Rows::Blocks(_)));
    made.map(|column| column.name.clone()).collect()
}

/// Drops the masks that say nothing in any file. Returns the names of those that say something in
/// one.
///
/// # Errors
/// A mask has the name of a column that a file itself has.
fn drop_redundant(
    uri: &OriginUri,
    tables: &mut [(ObjectInfo, Table)],
) -> Result<BTreeSet<String>, DatasetError> {
    let is_redundant =
        |column: &Column| matches!(&column.rows, Rows::Blocks(blocks) if blocks.is_redundant);
    let all = || tables.iter().flat_map(|(_, table)| &table.columns);
    let said = all().filter(|column| is_mask(column) && !is_redundant(column));
    let mut said: BTreeSet<String> = said.map(|column| column.name.clone()).collect();
    let nulls = tables.iter().flat_map(|(_, table)| &table.nulls);
    said.extend(nulls.map(|name| format!("{name}.valid")));
    let own = all().filter(|column| !is_mask(column) && column.name.ends_with(".valid"));
    let own: BTreeSet<String> = own.map(|column| column.name.clone()).collect();
    if let Some(name) = said.intersection(&own).next() {
        let of = shown(name.trim_end_matches(".valid"));
        let why = format!(
            "files have a column '{of}.valid', which is also the name of the column that says \
             which rows of '{of}' have a value: rename it, or leave '{of}' out with --columns"
        );
        return Err(DatasetError::Inconsistent { prefix: uri.clone(), why });
    }
    for (_, table) in tables {
        table.columns.retain(|column| !is_redundant(column) || said.contains(&column.name));
    }
    Ok(said)
}

/// Adds to the wanted columns those that say which of their rows have a value.
fn with_masks(wanted: &[String], masks: &BTreeSet<String>) -> Vec<String> {
    let mut columns = Vec::new();
    for name in wanted {
        columns.push(name.clone());
        let mask = format!("{name}.valid");
        if masks.contains(&mask) && !wanted.contains(&mask) {
            columns.push(mask);
        }
    }
    columns
}

/// Returns whether a column says which rows of another have a value. A block without values is
/// zeros in either column.
fn is_mask(column: &Column) -> bool {
    matches!(&column.rows, Rows::Blocks(blocks)
        if blocks.blocks.iter().any(|placed| placed.block.is_mask()))
}

/// The column that names a sample.
const KEY: &str = "__key__";

/// Returns the wanted columns of all tables, in the order in which they come first.
fn agree(
    uri: &OriginUri,
    tables: &[(ObjectInfo, Table)],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Agreed>, DatasetError> {
    let mut agreed: Vec<(Agreed, &str)> = Vec::new();
    for (file, table) in tables {
        for column in table.columns.iter().filter(|column| is_wanted(&column.name)) {
            let known = agreed.iter_mut().find(|(known, _)| known.name == column.name);
            let Some((known, owner)) = known else {
                let (name, shape) = (column.name.clone(), column.shape.clone());
                let Column { dtype, logical, ragged, .. } = *column;
                let layout = layout_of(column);
                agreed.push((Agreed { name, dtype, logical, shape, ragged, layout }, &file.key));
                continue;
            };
            if layout_of(column) == Layout::Spans {
                known.layout = Layout::Spans;
            }
            let same = (known.dtype, known.logical, &known.shape, known.ragged);
            if same != (column.dtype, column.logical, &column.shape, column.ragged) {
                let why = format!(
                    "column '{}' is {} in '{owner}' and {} in '{}': index them under prefixes of \
                     their own, or leave it out with --columns",
                    shown(&column.name),
                    described(known.dtype, known.logical, &known.shape, known.ragged),
                    described(column.dtype, column.logical, &column.shape, column.ragged),
                    file.key,
                );
                return Err(DatasetError::Inconsistent { prefix: uri.clone(), why });
            }
        }
    }
    Ok(agreed.into_iter().map(|(column, _)| column).collect())
}

/// Describes a column as `int64 []` or `timestamp[ms] (int64 [])`.
fn described(dtype: Dtype, logical: Logical, shape: &[u64], ragged: bool) -> String {
    let rows = if ragged { " of any length" } else { "" };
    let physical = format!("{} {shape:?}{rows}", dtype.name());
    match logical {
        Logical::Number | Logical::Boolean => physical,
        _ => format!("{logical} ({physical})"),
    }
}

/// Returns the layout of a column. Rows with gaps between them are listed one by one, so that
/// shards hold no gaps.
fn layout_of(column: &Column) -> Layout {
    match column.rows {
        Rows::Strided { stride, .. } if stride == row_bytes(column) => Layout::Column,
        Rows::Strided { .. } | Rows::Spans(_) => Layout::Spans,
        Rows::Inline(_) => Layout::Inline,
        Rows::Blocks(_) => Layout::Blocks,
    }
}

/// Returns whether rows of this layout have their places listed one by one.
fn is_listed(layout: Layout, ragged: bool) -> bool {
    match layout {
        Layout::Column => false,
        Layout::Blocks => ragged,
        Layout::Spans | Layout::Inline => true,
    }
}

fn row_bytes(column: &Column) -> u64 {
    column.shape.iter().product::<u64>() * column.dtype.size_bytes()
}

/// Returns the wanted columns, in the wanted order. `names` are those of all columns.
fn chosen(
    agreed: Vec<Agreed>,
    wanted: &[String],
    names: &BTreeSet<&str>,
) -> Result<Vec<Agreed>, DatasetError> {
    let (mut left, mut chosen) = (agreed, Vec::new());
    for name in wanted {
        let Some(at) = left.iter().position(|column| column.name == *name) else {
            let names = names.iter().copied().collect::<Vec<_>>().join(", ");
            let name = shown(name);
            let why =
                format!("there is no column '{name}', or it is named twice; there are: {names}");
            return Err(DatasetError::Option { option: "columns", why });
        };
        chosen.push(left.swap_remove(at));
    }
    Ok(chosen)
}

/// Checks that memory has room for the places of these rows.
fn check_rows(
    uri: &OriginUri,
    tables: &[(ObjectInfo, Table)],
    agreed: &[Agreed],
) -> Result<(), DatasetError> {
    let has = |table: &Table, name: &str| table.columns.iter().any(|column| column.name == name);
    let takes_places = |column: &&Agreed| {
        let all_have = || tables.iter().all(|(_, table)| has(table, &column.name));
        is_listed(column.layout, column.ragged) || (column.layout == Layout::Column && !all_have())
    };
    let listed = agreed.iter().filter(takes_places).count() as u64;
    let rows = tables.iter().fold(0u64, |sum, (_, table)| sum.saturating_add(table.rows));
    check_places(uri, rows.saturating_mul(listed))
}

/// Returns the rows of the wanted columns whose places are listed one by one.
pub(super) fn listed_places(table: &Table, columns: Option<&[String]>) -> u64 {
    let is_wanted = |name: &str| columns.is_none_or(|wanted| wanted.iter().any(|own| own == name));
    let takes_places = |column: &&Column| is_listed(layout_of(column), column.ragged);
    let listed = table.columns.iter().filter(|column| is_wanted(&column.name)).filter(takes_places);
    table.rows.saturating_mul(listed.count() as u64)
}

/// Checks that memory has room for so many places of rows.
pub(super) fn check_places(uri: &OriginUri, places: u64) -> Result<(), DatasetError> {
    let limit = limits::RAGGED_ROWS_MAX;
    if places <= limit {
        return Ok(());
    }
    let why = format!(
        "there are {places} places of rows where at most {limit} can be indexed: index the files \
         under several prefixes, or fewer columns with --columns"
    );
    Err(DatasetError::Inconsistent { prefix: uri.clone(), why })
}

impl Agreed {
    fn row_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size_bytes()
    }

    fn spec(&self) -> TensorSpec {
        let row_bytes = self.row_bytes();
        let locator = match self.ragged {
            true => RowLocator::Ragged,
            false => RowLocator::Strided { row_bytes, stride_bytes: row_bytes },
        };
        let (name, shape) = (self.name.clone(), self.shape.clone());
        let Self { dtype, logical, layout, .. } = *self;
        TensorSpec { name, dtype, logical, shape, locator, layout }
    }

    /// Makes the column of a file that has none of its values. `blocks` are the rows of each block
    /// of the file's other columns.
    fn absent(&self, rows: u64, blocks: &[u32]) -> Column {
        let (name, shape) = (self.name.clone(), self.shape.clone());
        let Self { dtype, logical, ragged, .. } = *self;
        let places = match self.layout {
            Layout::Inline => {
                let bytes = if ragged { 0 } else { self.row_bytes() };
                let zeros = vec![0; usize::try_from(bytes).expect("an inline row is short")];
                let mut values = Inline::default();
                (0..rows).for_each(|_| values.push(&zeros));
                Rows::Inline(values)
            }
            Layout::Blocks => {
                let absent = |&rows: &u32| PlacedBlock { range: 0..0, rows, block: Block::ABSENT };
                let count = usize::try_from(rows).expect("compared with a limit");
                Rows::Blocks(Blocks {
                    blocks: blocks.iter().map(absent).collect(),
                    lengths: ragged.then(|| vec![0; count]),
                    ..Blocks::default()
                })
            }
            Layout::Column | Layout::Spans => {
                let mut spans = Spans::default();
                (0..rows).for_each(|_| spans.push(0, 0));
                Rows::Spans(spans)
            }
        };
        let absent = (0..rows).collect();
        Column { name, dtype, logical, shape, ragged, rows: places, absent }
    }
}

/// The columns of one file, in the order that all files agree on.
struct AgreedColumns {
    file: ObjectInfo,
    rows: u64,
    columns: Vec<Column>,
    /// The column that names samples, for errors.
    key: Option<Column>,
}

impl AgreedColumns {
    fn new(file: ObjectInfo, table: Table, agreed: &[Agreed]) -> Self {
        let (rows, mut rest) = (table.rows, table.columns);
        let key = rest.iter().find(|column| column.name == KEY).cloned();
        let blocks = rest.iter().find_map(|column| match &column.rows {
            Rows::Blocks(blocks) => Some(blocks.blocks.iter().map(|block| block.rows).collect()),
            _ => None,
        });
        let blocks: Vec<u32> = blocks.unwrap_or_else(|| even_blocks(rows));
        // A column of nulls is not missing, and neither is the one that says so.
        let is_null = |name: &str| {
            let name = name.strip_suffix(".valid").unwrap_or(name);
            table.nulls.iter().any(|null| null == name)
        };
        let take = |column: &Agreed| {
            let at = rest.iter().position(|known| known.name == column.name);
            let absent = || match column.absent(rows, &blocks) {
                nulls if is_null(&column.name) => Column { absent: Vec::new(), ..nulls },
                absent => absent,
            };
            at.map_or_else(absent, |at| rest.swap_remove(at))
        };
        let columns = agreed.iter().map(take).collect();
        Self { file, rows, columns, key }
    }

    /// Checks that every sample has every column.
    fn check_complete(&self, uri: &OriginUri, agreed: &[Agreed]) -> Result<(), DatasetError> {
        let mut columns = agreed.iter().zip(&self.columns);
        match columns.find(|(_, found)| !found.absent.is_empty()) {
            None => Ok(()),
            Some((column, found)) => Err(self.lacking(
                uri,
                (column, found),
                "choose columns that all have with --columns, or pass --missing empty or --missing \
                 skip",
            )),
        }
    }

    /// Checks that rows that are missing can be empty.
    fn check_may_be_empty(&self, uri: &OriginUri, agreed: &[Agreed]) -> Result<(), DatasetError> {
        let may = |column: &Agreed| {
            column.ragged || matches!(column.layout, Layout::Inline | Layout::Blocks)
        };
        let mut columns = agreed.iter().zip(&self.columns);
        match columns.find(|(column, found)| !may(column) && !found.absent.is_empty()) {
            None => Ok(()),
            Some((column, found)) => Err(self.lacking(
                uri,
                (column, found),
                "its rows have one length and can't be empty, so pass --missing skip",
            )),
        }
    }

    fn lacking(
        &self,
        uri: &OriginUri,
        (column, found): (&Agreed, &Column),
        remedy: &str,
    ) -> DatasetError {
        let row = found.absent.first().copied().unwrap_or(0);
        let sample = match self.key.as_ref().map(|key| &key.rows) {
            Some(Rows::Inline(keys)) => {
                let row = usize::try_from(row).expect("a row of a table in memory");
                format!("sample '{}'", shown(&String::from_utf8_lossy(keys.value(row))))
            }
            _ => format!("sample {row}"),
        };
        let others = match found.absent.len() as u64 {
            0 | 1 => String::new(),
            count => format!(", nor have {} more of this file", Counted(count - 1, "sample")),
        };
        let why = format!(
            "{sample} of '{}' has no '{}', which other samples have{others}: {remedy}",
            self.file.key,
            shown(&column.name),
        );
        DatasetError::Inconsistent { prefix: uri.clone(), why }
    }

    /// Removes the samples that lack a column, and notes how many.
    fn skip_incomplete(&mut self, left_out: &mut LeftOuts) {
        let mut absent: Vec<u64> =
            self.columns.iter().flat_map(|column| column.absent.iter().copied()).collect();
        absent.sort_unstable();
        absent.dedup();
        if absent.is_empty() {
            return;
        }
        let count = Counted(absent.len() as u64, "sample");
        left_out.push(LeftOut::object(&self.file.key, format!("has {count} without all columns")));
        for column in &mut self.columns {
            let kept = |row: &u64| absent.binary_search(row).is_err();
            column.rows = picked(column, (0..self.rows).filter(kept));
            column.absent.clear();
        }
        self.rows -= absent.len() as u64;
    }

    fn into_group(self, agreed: &[Agreed]) -> GroupSpec {
        let column = |(column, agreed): (Column, &Agreed)| {
            let listed = agreed.layout == Layout::Spans;
            let rows = match &column.rows {
                Rows::Strided { .. } if listed => picked(&column, 0..self.rows),
                _ => column.rows,
            };
            ColumnSpec { object: 0, rows }
        };
        let columns = self.columns.into_iter().zip(agreed).map(column).collect();
        GroupSpec { rows: self.rows, objects: vec![object(&self.file)], columns }
    }
}

/// Returns the rows of each block of a file that has none: a million each.
fn even_blocks(rows: u64) -> Vec<u32> {
    let full = 1_000_000;
    let count = rows.div_ceil(full);
    let of = |block: u64| u32::try_from((rows - block * full).min(full)).expect("a million");
    (0..count).map(of).collect()
}

/// Returns the places of some rows of a column, listed one by one.
fn picked(column: &Column, rows: impl Iterator<Item = u64>) -> Rows {
    let index = |row: u64| usize::try_from(row).expect("a row of a table in memory");
    let mut spans = Spans::default();
    match &column.rows {
        Rows::Strided { begin, stride } => {
            let bytes =
                u32::try_from(row_bytes(column)).expect("a row is below the limit of a sample");
            rows.for_each(|row| spans.push(begin + row * stride, bytes));
        }
        Rows::Spans(places) => rows.for_each(|row| {
            let place = places.range(index(row));
            let bytes = u32::try_from(place.end - place.start).expect("a listed row is short");
            spans.push(place.start, bytes);
        }),
        Rows::Inline(values) => {
            let mut kept = Inline::default();
            rows.for_each(|row| kept.push(values.value(index(row))));
            return Rows::Inline(kept);
        }
        // A file has all rows of a column in blocks, or none. So none of these rows is kept.
        Rows::Blocks(_) => return Rows::Blocks(Blocks::default()),
    }
    Rows::Spans(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(name: &str) -> Column {
        let rows = Rows::Strided { begin: 0, stride: 8 };
        Column {
            name: name.to_owned(),
            dtype: Dtype::I64,
            logical: Logical::Number,
            shape: Vec::new(),
            ragged: false,
            rows,
            absent: Vec::new(),
        }
    }

    fn file(key: &str) -> ObjectInfo {
        ObjectInfo { key: key.into(), size_bytes: 16, etag: Some("e".into()), version: None }
    }

    fn uri() -> OriginUri {
        "s3://bucket/data".parse().expect("valid")
    }

    #[test]
    fn files_need_to_agree_on_wanted_columns_only() {
        let mut other = numbers("b");
        other.dtype = Dtype::I32;
        let one = Table { rows: 2, columns: vec![numbers("a"), numbers("b")], ..Table::default() };
        let two = Table { rows: 2, columns: vec![numbers("a"), other], ..Table::default() };
        let tables = vec![(file("x"), one), (file("y"), two)];
        let planned = |columns: Option<&[String]>| {
            plan(&uri(), tables.clone(), columns, Missing::Error, &mut LeftOuts::default())
        };
        let why = planned(None).expect_err("two types").to_string();
        assert!(why.contains("column 'b' is int64 [] in 'x' and int32 [] in 'y'"), "{why}");
        assert_eq!(planned(Some(&["a".into()])).expect("one type").tensors.len(), 1);
    }

    #[test]
    fn rows_without_columns_take_no_memory() {
        let whole = Table { rows: 2, columns: vec![numbers("a")], ..Table::default() };
        let none = Table { rows: 1 << 60, ..Table::default() };
        let other = Table { rows: 1 << 60, columns: vec![numbers("b")], ..Table::default() };
        let mut left_out = LeftOuts::default();
        let tables = vec![(file("x"), whole.clone()), (file("y"), none)];
        let planned = plan(&uri(), tables, None, Missing::Empty, &mut left_out);
        assert_eq!(planned.expect("one file").groups.len(), 1);
        assert_eq!(*left_out, [LeftOut::object("y", "has no column that can be read")]);
        let tables = vec![(file("x"), whole), (file("y"), other)];
        let why = plan(&uri(), tables, None, Missing::Skip, &mut left_out).err();
        let why = why.expect("too many places").to_string();
        assert!(why.contains("places of rows where at most"), "{why}");
    }

    #[test]
    fn a_column_that_one_file_cannot_give_is_no_column() {
        let whole =
            Table { rows: 2, columns: vec![numbers("a"), numbers("b")], ..Table::default() };
        let with_nulls = Table {
            rows: 2,
            columns: vec![numbers("a")],
            left_out: vec![("b".into(), "has nulls".into())],
            ..Table::default()
        };
        for missing in [Missing::Error, Missing::Empty, Missing::Skip] {
            let tables = vec![(file("x"), whole.clone()), (file("y"), with_nulls.clone())];
            let mut left_out = LeftOuts::default();
            let plan = plan(&uri(), tables, None, missing, &mut left_out).expect("one column");
            let names: Vec<&str> = plan.tensors.iter().map(|spec| &*spec.name).collect();
            assert_eq!(names, ["a"]);
            assert_eq!(plan.groups.iter().map(|group| group.rows).sum::<u64>(), 4);
            assert_eq!(*left_out, [LeftOut::tensor("y", "b", "has nulls")]);
        }
    }
}
