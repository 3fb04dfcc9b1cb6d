//! The samples that the members of a tar make, after webdataset 1.0.2.
//!
//! A sample is a run of adjacent members with one key. Each suffix is a column. A column grows only
//! when a sample has a member for it, so a sample costs no more than its members.
//!
//! Thread rule: plain values. Non-goals: the bytes of members, which stay in the file.

use std::collections::HashMap;

use larder_base::limits;

use super::header::escaped;
use crate::{Column, Dtype, Inline, Logical, Rows, Spans, Table};

/// The column of the keys.
const KEY: &str = "__key__";
/// Most bytes of an integer as text: 20 digits and a sign, with spaces.
const INTEGER_BYTES_MAX: u64 = 64;
/// Suffixes of members that hold an integer as text: those that webdataset decodes to `int`.
const INTEGERS: [&str; 5] = ["cls", "cls2", "index", "inx", "id"];
/// Members that are left out by name. Further ones are counted.
const LEFT_OUT_MAX: usize = 16;
/// Most rows without a value, in all columns together. Otherwise a tar of a few megabytes, with
/// other suffixes in each sample, makes a table of gigabytes.
const ABSENT_MAX: u64 = 10_000_000;

/// The samples so far.
#[derive(Default)]
pub(super) struct Samples {
    keys: Inline,
    columns: Vec<Growing>,
    by_suffix: HashMap<String, usize>,
    absent_count: u64,
    left_out: Vec<(String, String)>,
    left_out_count: u64,
}

/// A column that has a value or a gap for each row up to some row.
struct Growing {
    suffix: String,
    /// The values, if the suffix is one of integers and all values so far are some.
    integers: Option<Inline>,
    spans: Spans,
    absent: Vec<u64>,
}

impl Samples {
    /// Finds the column of a regular file. The caller then pushes its value. Returns `None` if the
    /// file is not part of a sample.
    ///
    /// # Errors
    /// The mistake as a clause, such as a suffix that the sample already has.
    pub(super) fn place(&mut self, path: &[u8]) -> Result<Option<usize>, String> {
        if is_metadata(path) {
            self.leave_out(path, "is metadata by its name");
            return Ok(None);
        }
        if is_sidecar(path) {
            self.leave_out(path, "is a sidecar file of macOS");
            return Ok(None);
        }
        let Some((key, suffix)) = key_and_suffix(path) else {
            self.leave_out(path, "has no extension");
            return Ok(None);
        };
        let column = self.column(suffix)?;
        let last = self.keys.len().checked_sub(1);
        if last.is_none_or(|row| self.keys.value(row) != key) {
            self.keys.push(key);
        }
        let row = self.keys.len() - 1;
        if self.columns[column].spans.len() > row {
            return Err(format!(
                "is the second '{}' of the sample '{}': a sample has each suffix once",
                self.columns[column].suffix,
                escaped(key)
            ));
        }
        self.fill(column, row)?;
        Ok(Some(column))
    }

    /// Returns whether a body of this size may be an integer.
    pub(super) fn may_be_integer(&self, column: usize, bytes: u64) -> bool {
        bytes <= INTEGER_BYTES_MAX && self.columns[column].integers.is_some()
    }

    /// Appends the place of a member's body, which is no integer.
    pub(super) fn push_span(&mut self, column: usize, begin: u64, bytes: u32) {
        self.columns[column].spans.push(begin, bytes);
        if self.columns[column].integers.is_some() {
            self.make_bytes(column, &format!("a value of {bytes} bytes"));
        }
    }

    /// Appends a member that may hold an integer as text.
    pub(super) fn push_integer(&mut self, column: usize, begin: u64, text: &[u8]) {
        let bytes = u32::try_from(text.len()).expect("an integer is short");
        let Growing { integers, spans, .. } = &mut self.columns[column];
        spans.push(begin, bytes);
        match (integer(text), integers) {
            (Some(value), Some(integers)) => integers.push(&value.to_le_bytes()),
            _ => self.make_bytes(column, &format!("the value '{}'", escaped(text))),
        }
    }

    /// Makes a column of integers one of bytes, because it has this value.
    fn make_bytes(&mut self, column: usize, value: &str) {
        self.columns[column].integers = None;
        let key = escaped(self.keys.value(self.keys.len() - 1));
        let why = format!("is no column of integers but of bytes: sample '{key}' has {value}");
        self.left_out_count += 1;
        self.left_out.push((self.columns[column].suffix.clone(), why));
    }

    /// Notes a member that is not part of a sample.
    pub(super) fn leave_out(&mut self, path: &[u8], why: &str) {
        self.left_out_count += 1;
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push((escaped(path), why.to_owned()));
        }
    }

    /// Returns all samples.
    ///
    /// # Errors
    /// The mistake as a clause.
    pub(super) fn finish(mut self) -> Result<Table, String> {
        for column in 0..self.columns.len() {
            self.fill(column, self.keys.len())?;
        }
        let more = self.left_out_count - self.left_out.len() as u64;
        if more > 0 {
            self.left_out.push((format!("{more} more members"), "are not part of a sample".into()));
        }
        let rows = self.keys.len() as u64;
        let mut columns: Vec<Column> = self.columns.into_iter().map(Growing::grown).collect();
        columns.push(Column {
            name: KEY.into(),
            dtype: Dtype::U8,
            logical: Logical::Text,
            shape: vec![],
            ragged: true,
            rows: Rows::Inline(self.keys),
            absent: vec![],
        });
        Ok(Table { rows, columns, left_out: self.left_out, ..Table::default() })
    }

    /// Returns the column of a suffix, which it adds if it is new.
    fn column(&mut self, suffix: &[u8]) -> Result<usize, String> {
        let suffix = std::str::from_utf8(suffix)
            .map_err(|_| format!("has a suffix that is not UTF-8: '{}'", escaped(suffix)))?
            .to_lowercase();
        if let Some(column) = self.by_suffix.get(&suffix) {
            return Ok(*column);
        }
        let why = if suffix == KEY {
            "is the name of the column of keys".to_owned()
        } else if suffix.len() > limits::TENSOR_NAME_BYTES_MAX as usize {
            format!("has more than {} bytes", limits::TENSOR_NAME_BYTES_MAX)
        } else if self.columns.len() + 1 >= limits::TENSORS_MAX as usize {
            format!("is one column too many: at most {}, with the keys", limits::TENSORS_MAX)
        } else {
            self.by_suffix.insert(suffix.clone(), self.columns.len());
            self.columns.push(Growing::new(suffix));
            return Ok(self.columns.len() - 1);
        };
        Err(format!("has the suffix '{}', which {why}", escaped(suffix.as_bytes())))
    }

    /// Appends gaps to a column until it has this many rows.
    fn fill(&mut self, column: usize, rows: usize) -> Result<(), String> {
        let column = &mut self.columns[column];
        let gaps = column.spans.len()..rows;
        self.absent_count += gaps.len() as u64;
        if self.absent_count > ABSENT_MAX {
            return Err(format!(
                "makes more than {ABSENT_MAX} rows without a value: are these the samples of one \
                 dataset?"
            ));
        }
        for row in gaps {
            column.absent.push(row as u64);
            column.spans.push(0, 0);
            if let Some(integers) = &mut column.integers {
                integers.push(&0_i64.to_le_bytes());
            }
        }
        Ok(())
    }
}

impl Growing {
    fn new(suffix: String) -> Self {
        let last = suffix.rsplit('.').next().unwrap_or(&suffix);
        let integers = INTEGERS.contains(&last).then(Inline::default);
        Self { suffix, integers, spans: Spans::default(), absent: vec![] }
    }

    fn grown(self) -> Column {
        let ragged = self.integers.is_none();
        let (dtype, logical, rows) = match self.integers {
            Some(integers) => (Dtype::I64, Logical::Number, Rows::Inline(integers)),
            None => {
                let extension = self.suffix.rsplit('.').next().unwrap_or_default();
                (Dtype::U8, Logical::of_extension(extension), Rows::Spans(self.spans))
            }
        };
        let (name, absent) = (self.suffix, self.absent);
        Column { name, dtype, logical, shape: vec![], ragged, rows, absent }
    }
}

/// Returns whether webdataset takes a path for metadata: `^__[^/]*__($|/)`.
fn is_metadata(path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__")
}

/// Returns whether macOS wrote this member beside another: its tar and zip programs do.
fn is_sidecar(path: &[u8]) -> bool {
    let mut segments = path.rsplit(|byte| *byte == b'/');
    segments.next().is_some_and(|name| name.starts_with(b"._"))
        || segments.any(|folder| folder == b"__MACOSX")
}

/// Splits a path as webdataset does: `^((?:.*/|)[^.]+)[.]([^/]*)$`. The suffix begins after the
/// first dot of the base name. If that name begins with its dot, the key ends with the slash before
/// it, and the folder must have no dot. A suffix cannot be empty here, because a column has a name.
fn key_and_suffix(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let after_slash =
        |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let base = after_slash(path);
    let dot = base + path[base..].iter().position(|byte| *byte == b'.')?;
    let stem = after_slash(&path[..dot.saturating_sub(1)])..dot;
    let (key, suffix) = (&path[..dot], &path[dot + 1..]);
    let splits = !stem.is_empty() && !path[stem].contains(&b'.') && !suffix.is_empty();
    splits.then_some((key, suffix))
}

/// Parses an integer of 64 bits as Python's `int` does.
fn integer(text: &[u8]) -> Option<i64> {
    let space = [' ', '\t', '\n', '\r', '\x0b', '\x0c'];
    let text = std::str::from_utf8(text).ok()?.trim_matches(space);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    digits.split('_').all(is_number).then(|| text.replace('_', "").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_as_in_webdataset() {
        let split = |path: &'static str| {
            key_and_suffix(path.as_bytes())
                .map(|(key, suffix)| [key, suffix].map(|part| std::str::from_utf8(part).unwrap()))
        };
        for (path, expected) in [
            ("a.png", Some(["a", "png"])),
            ("./a.seg.png", Some(["./a", "seg.png"])),
            ("x.y/../a.b.", Some(["x.y/../a", "b."])),
            ("x.y/a", None),
            (".a", None),
            ("./.a", None),
            ("x/.a", Some(["x/", "a"])),
            ("x.y/.a", None),
            ("x.y/z/..a", Some(["x.y/z/", ".a"])),
            ("/.a", Some(["/", "a"])),
            ("a.", None),
            ("a", None),
            ("", None),
        ] {
            assert_eq!(split(path), expected, "{path}");
        }
    }

    #[test]
    fn integers_parse_as_in_python() {
        for (text, expected) in [
            ("7", Some(7)),
            (" \t\r\n\x0b\x0c-007\n", Some(-7)),
            ("+1_000", Some(1000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("+-1", None),
            ("- 1", None),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("1.0", None),
            ("0x1", None),
            ("1\0", None),
            ("\u{661}", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn metadata_is_told_by_the_first_part_of_the_path() {
        for (path, expected) in [
            ("__a__", true),
            ("__a__/b.c", true),
            ("____", true),
            ("___", false),
            ("x/__a__", false),
            ("__a.b", false),
        ] {
            assert_eq!(is_metadata(path.as_bytes()), expected, "{path}");
        }
    }
}
