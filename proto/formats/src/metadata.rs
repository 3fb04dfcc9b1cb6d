//! The `metadata.csv` and `metadata.jsonl` of folders with pictures: values for each file.
//!
//! The column `file_name` holds paths relative to the folder of the metadata. Each other column
//! has one type, the first that takes all its values without a loss:
//!
//! 1. booleans, in JSON only;
//! 2. integers of 64 bits;
//! 3. floats of 64 bits, which take integers below 2^53;
//! 4. text. Numbers, booleans, lists and objects become text as they are written.
//!
//! A number with a leading zero or plus sign is text, because it may be an id. An empty field of a
//! CSV file and a `null` or missing value of JSON are absent.
//!
//! Thread rule: plain values, without locks. Non-goals: reading; a limit on the file's size, which
//! the caller has; matching of names with files.

mod column;

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use larder_base::limits;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{Fault, path, shown};
pub use column::MetadataColumn;
use column::{Cell, Growing};

/// The column with the names of the files.
const FILE_NAME: &str = "file_name";

/// The values for each file, in the order of the metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The files: paths below the folder of the metadata, each there once.
    pub file_names: Vec<String>,
    /// The other columns, in the order of their first values. Each has a row for each file.
    pub columns: Vec<MetadataColumn>,
}

/// Parses a `metadata.csv`: fields with commas, quoted or not, below a line of names.
///
/// # Errors
/// The first mistake, with its line.
pub fn parse_csv(bytes: &[u8]) -> Result<Metadata, Fault> {
    // The parser notes the end of each field of a record, so many fields take much memory.
    let commas = bytes.iter().filter(|byte| **byte == b',').count() as u64;
    if commas > limits::RAGGED_ROWS_MAX {
        let why = format!("has {commas} commas, over {}", limits::RAGGED_ROWS_MAX);
        return Err(Fault::new("file", why));
    }
    let mut reader = csv::Reader::from_reader(bytes);
    let names = reader.headers().map_err(|error| csv_fault(&error))?.clone();
    let mut seen = HashSet::new();
    if let Some(name) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(at_line(1, format!("names the column '{}' twice", shown(name))));
    }
    if !seen.contains(FILE_NAME) {
        return Err(at_line(1, format!("names no column '{FILE_NAME}'")));
    }
    let mut builder = Builder::default();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| csv_fault(&error))? {
        let line = record.position().map_or(0, csv::Position::line);
        let cells = names.iter().zip(&record).map(|(name, field)| {
            let cell = match field {
                "" => Cell::Absent,
                name_of_file if name == FILE_NAME => Cell::Text(name_of_file.into()),
                value => Cell::Number(value),
            };
            (name, cell)
        });
        builder.push(line, cells)?;
    }
    builder.build()
}

fn csv_fault(error: &csv::Error) -> Fault {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos: Some(pos), expected_len, len } => {
            at_line(pos.line(), format!("has {len} fields, the first line has {expected_len}"))
        }
        csv::ErrorKind::Utf8 { pos: Some(pos), err } => {
            at_line(pos.line(), format!("is not UTF-8: {err}"))
        }
        _ => Fault::new("file", error.to_string()),
    }
}

/// Parses a `metadata.jsonl`: a JSON object on each line that is not blank.
///
/// # Errors
/// The first mistake, with its line.
pub fn parse_jsonl(bytes: &[u8]) -> Result<Metadata, Fault> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut builder = Builder::default();
    for (text, line) in bytes.split(|byte| *byte == b'\n').zip(1..) {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let not_json = |error: serde_json::Error| at_line(line, format!("is no object: {error}"));
        let row: Row<'_> = serde_json::from_slice(text).map_err(not_json)?;
        let cells = row.0.iter().map(|(name, value)| Ok((&**name, json_cell(value.get())?)));
        let cells = cells.collect::<Result<Vec<_>, _>>().map_err(not_json)?;
        builder.push(line, cells)?;
    }
    builder.build()
}

/// Returns the cell of a JSON value. The text has no space before the value.
fn json_cell(text: &str) -> Result<Cell<'_>, serde_json::Error> {
    Ok(match text.as_bytes() {
        [b'n', ..] => Cell::Absent,
        [b't' | b'f', ..] => Cell::Bool(text),
        [b'"', ..] => Cell::Text(serde_json::from_str(text)?),
        [b'[' | b'{', ..] => Cell::Nested(text),
        _ => Cell::Number(text),
    })
}

/// The names and values of one JSON object.
struct Row<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Row<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = Row<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a value for each column")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row<'de>, A::Error> {
        let mut cells = Vec::new();
        while let Some(cell) = map.next_entry()? {
            if cells.len() > limits::TENSORS_MAX as usize {
                return Err(A::Error::custom(format!("more than {} columns", limits::TENSORS_MAX)));
            }
            cells.push(cell);
        }
        Ok(Row(cells))
    }
}

fn at_line(line: u64, why: String) -> Fault {
    Fault::new(format!("line {line}"), why)
}

/// The rows so far.
#[derive(Default)]
struct Builder {
    file_names: Vec<String>,
    /// The line of each row.
    lines: Vec<u64>,
    columns: Vec<Growing>,
    by_name: HashMap<String, usize>,
}

impl Builder {
    /// Appends the row of a line.
    fn push<'a>(
        &mut self,
        line: u64,
        cells: impl IntoIterator<Item = (&'a str, Cell<'a>)>,
    ) -> Result<(), Fault> {
        self.check_room(self.columns.len()).map_err(|why| at_line(line, why))?;
        let row = self.file_names.len();
        let mut file_name = None;
        for (name, cell) in cells {
            let fault =
                |why: String| Fault::new(format!("line {line} column '{}'", shown(name)), why);
            let is_second = if name == FILE_NAME {
                file_name.replace(checked_file_name(cell).map_err(fault)?).is_some()
            } else {
                let column = self.column(name).map_err(fault)?;
                column.push(&cell).map_err(fault)?;
                column.rows() > row + 1
            };
            if is_second {
                return Err(fault("is there twice".into()));
            }
        }
        let file_name = file_name.ok_or_else(|| at_line(line, format!("has no '{FILE_NAME}'")))?;
        self.file_names.push(file_name);
        self.lines.push(line);
        for column in self.columns.iter_mut().filter(|column| column.rows() == row) {
            column.push_absent();
        }
        Ok(())
    }

    /// Returns the column of this name. A new one is absent from the rows before.
    fn column(&mut self, name: &str) -> Result<&mut Growing, String> {
        if let Some(at) = self.by_name.get(name) {
            return Ok(&mut self.columns[*at]);
        }
        let (count, name_limit) = (self.columns.len(), limits::TENSOR_NAME_BYTES_MAX as usize);
        if name.is_empty() || name.len() > name_limit {
            return Err(format!("has no name, or one of more than {name_limit} bytes"));
        }
        if count == limits::TENSORS_MAX as usize {
            return Err(format!("comes after {count} others, the most of a dataset"));
        }
        self.check_room(count + 1)?;
        self.by_name.insert(name.into(), count);
        self.columns.push(Growing::new(name, self.file_names.len()));
        Ok(&mut self.columns[count])
    }

    /// Checks that one row more of so many columns stays within the limits.
    fn check_room(&self, columns: usize) -> Result<(), String> {
        let rows = self.file_names.len() as u64 + 1;
        if rows > limits::OBJECTS_MAX.into() {
            return Err(format!("comes after {} others, the most of a dataset", rows - 1));
        }
        let values = rows * columns as u64;
        if values > limits::RAGGED_ROWS_MAX {
            let limit = limits::RAGGED_ROWS_MAX;
            return Err(format!("makes {values} values of {columns} columns, over {limit}"));
        }
        Ok(())
    }

    fn build(self) -> Result<Metadata, Fault> {
        let mut seen = HashMap::new();
        for (name, line) in self.file_names.iter().zip(&self.lines) {
            if let Some(first) = seen.insert(name, line) {
                let why = format!("names the file '{}', as line {first} does", shown(name));
                return Err(at_line(*line, why));
            }
        }
        let columns = self.columns.into_iter().map(Growing::finish).collect();
        Ok(Metadata { file_names: self.file_names, columns })
    }
}

fn checked_file_name(cell: Cell<'_>) -> Result<String, String> {
    let Cell::Text(name) = cell else { return Err("is no text".into()) };
    path::check(&name)?;
    Ok(name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_over_the_limit_are_refused() {
        let file_names = vec![String::new(); (1 << 14) - 1];
        let builder = Builder { file_names, ..Builder::default() };
        assert_eq!(builder.check_room(4096), Ok(()));
        let why = builder.check_room(4097).unwrap_err();
        assert_eq!(why, "makes 67125248 values of 4097 columns, over 67108864");
    }
}
