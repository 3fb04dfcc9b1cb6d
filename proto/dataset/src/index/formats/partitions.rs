//! Hive partitions: a folder `label=cat` gives the files below it a column `label`. All its
//! rows are `cat`. Spark, pyarrow and others leave that column out of the files.
//!
//! The values are integers if all are, else texts. A row without a value (`null` to the writers)
//! is 0 or empty, and then there is a column `label.valid`, as for other columns with nulls.

use std::collections::BTreeSet;

use larder_base::limits;
use larder_formats::{Column, Inline, Logical, Rows, Table};

use crate::{Dtype, ObjectInfo};

/// The value that writers give rows without one.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Adds the columns of partitions to the tables of files. A column that a file itself has stays.
pub(super) fn add(tables: &mut [(ObjectInfo, Table)], columns: Option<&[String]>) {
    let is_wanted = |name: &str| columns.is_none_or(|wanted| wanted.iter().any(|own| own == name));
    let mut names = Vec::new();
    for (file, _) in &*tables {
        let own = partitions(&file.key).map(|(name, _)| name);
        let new = own.filter(|name| is_wanted(name)).collect::<BTreeSet<_>>();
        names.extend(new.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    }
    for name in names {
        add_column(tables, &name);
    }
}

/// Returns the partitions that a key names, outer folders first.
fn partitions(key: &str) -> impl Iterator<Item = (String, String)> {
    let folders = key.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').filter_map(|folder| {
        let (name, value) = folder.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((unescaped(name), unescaped(value)))
    })
}

/// Returns a text without its percent escapes.
fn unescaped(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn value_in(key: &str, name: &str) -> Option<String> {
    partitions(key).find(|(own, _)| own == name).map(|(_, value)| value)
}

fn add_column(tables: &mut [(ObjectInfo, Table)], name: &str) {
    let values: Vec<Option<String>> =
        tables.iter().map(|(file, _)| value_in(&file.key, name)).collect();
    let known = || values.iter().flatten().filter(|value| *value != NULL);
    let are_integers = known().all(|value| integer(value).is_some());
    let has_nulls = values.iter().flatten().any(|value| value == NULL);
    let rows = tables.iter().fold(0u64, |sum, (_, table)| sum.saturating_add(table.rows));
    for ((_, table), value) in tables.iter_mut().zip(values) {
        let Some(value) = value else { continue };
        if table.columns.iter().any(|column| column.name == name) {
            continue;
        }
        if rows > limits::RAGGED_ROWS_MAX {
            let limit = limits::RAGGED_ROWS_MAX;
            let why = format!("is a partition of {rows} rows: at most {limit} rows have one");
            table.left_out.push((name.to_owned(), why));
            continue;
        }
        let value = Some(value).filter(|value| value != NULL);
        let is_valid = u8::from(value.is_some());
        let number = || value.as_deref().and_then(integer).unwrap_or(0).to_le_bytes();
        table.columns.push(match are_integers {
            true => repeated(name, Dtype::I64, &number(), table.rows),
            false => {
                let text = value.as_deref().unwrap_or_default();
                repeated(name, Dtype::U8, text.as_bytes(), table.rows)
            }
        });
        if has_nulls {
            let mask = format!("{name}.valid");
            table.columns.push(repeated(&mask, Dtype::Bool, &[is_valid], table.rows));
        }
    }
}

/// Parses digits with or without a minus sign.
fn integer(value: &str) -> Option<i64> {
    value.parse().ok().filter(|_| !value.starts_with('+'))
}

/// Makes a column of equal rows. Those of bytes are texts.
fn repeated(name: &str, dtype: Dtype, value: &[u8], rows: u64) -> Column {
    let mut values = Inline::default();
    (0..rows).for_each(|_| values.push(value));
    let ragged = dtype == Dtype::U8;
    Column {
        name: name.to_owned(),
        dtype,
        logical: if ragged { Logical::Text } else { Logical::of(dtype) },
        shape: Vec::new(),
        ragged,
        rows: Rows::Inline(values),
        absent: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(keys: &[&str], wanted: Option<&[String]>) -> Vec<Vec<(String, Vec<u8>)>> {
        let file = |key: &&str| {
            let key = (*key).to_owned();
            let info = ObjectInfo { key, size_bytes: 1, etag: None, version: None };
            (info, Table { rows: 1, ..Table::default() })
        };
        let mut tables: Vec<_> = keys.iter().map(file).collect();
        add(&mut tables, wanted);
        let shown = |column: &Column| match &column.rows {
            Rows::Inline(values) => (column.name.clone(), values.value(0).to_vec()),
            _ => panic!("a partition stands in the manifest"),
        };
        tables.iter().map(|(_, table)| table.columns.iter().map(shown).collect()).collect()
    }

    fn one(name: &str, value: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), value.to_vec())
    }

    #[test]
    fn values_are_integers_if_all_are() {
        let found = columns(&["y=2024/m=01/a", "y=2025/m=x/a"], None);
        let years = [2024_i64, 2025].map(i64::to_le_bytes);
        assert_eq!(found[0], [one("m", b"01"), one("y", &years[0])]);
        assert_eq!(found[1], [one("m", b"x"), one("y", &years[1])]);
    }

    #[test]
    fn value_that_is_null_has_a_mask() {
        let found = columns(&["c=a%20b/x", "c=__HIVE_DEFAULT_PARTITION__/x"], None);
        assert_eq!(found[0], [one("c", b"a b"), one("c.valid", &[1])]);
        assert_eq!(found[1], [one("c", b""), one("c.valid", &[0])]);
    }

    #[test]
    fn names_of_files_and_unwanted_columns_are_no_partitions() {
        assert_eq!(columns(&["a/x=1.parquet", "=1/b"], None), [vec![], vec![]]);
        assert_eq!(columns(&["x=1/y=2/a"], Some(&["y".to_owned()]))[0].len(), 1);
    }
}
