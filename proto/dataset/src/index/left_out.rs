//! Objects and columns that an index leaves out, each with the reason. Damaged files are among them
//! if the user says so. The manifest notes their names in its metadata, so that they do not count
//! as added later. It notes columns with their reasons, so that a reader learns why one is missing.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
    str::FromStr,
};

use larder_base::{Counted, limits};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{DatasetError, Manifest};

/// The name of the note of damaged files in the metadata, and the most that it names.
const NOTE: &str = "damaged";
const NOTED_MAX: usize = 1000;

/// The name of the note of columns that are left out, and its limits.
const COLUMNS_NOTE: &str = "left_out";
const COLUMNS_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 128;
const WHY_CHARS_MAX: usize = 200;

/// An object or tensor under the prefix that is not part of the dataset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftOut {
    /// The key of the object, relative to the prefix.
    pub object: String,
    /// The tensor, if the rest of the object is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// The reason.
    pub why: String,
}

impl LeftOut {
    pub(super) fn object(key: &str, why: impl Into<String>) -> Self {
        Self { object: key.into(), tensor: None, why: why.into() }
    }

    pub(super) fn tensor(key: &str, tensor: &str, why: impl Into<String>) -> Self {
        Self { object: key.into(), tensor: Some(tensor.into()), why: why.into() }
    }
}

/// One clause: `notes.txt is empty`.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, tensor, why } = self;
        match tensor {
            Some(tensor) => write!(f, "tensor '{tensor}' of {object} {why}"),
            None => write!(f, "{object} {why}"),
        }
    }
}

/// The treatment of a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bad {
    /// It is an error.
    #[default]
    Error,
    /// The file is left out.
    Skip,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Skip => "skip",
        })
    }
}

impl FromStr for Bad {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Error, Self::Skip].into_iter().find(|bad| bad.to_string() == text);
        found.ok_or_else(|| "it is one of error, skip".to_owned())
    }
}

/// What an index leaves out while it plans.
#[derive(Debug, Default)]
pub(super) struct LeftOuts {
    parts: Vec<LeftOut>,
    bad: Bad,
    /// The keys of damaged files.
    damaged: Vec<String>,
}

impl LeftOuts {
    /// Sets the treatment of damaged files.
    pub(super) fn treat(&mut self, bad: Bad) {
        self.bad = bad;
    }

    /// Returns what was read of a file. `None` if it is damaged and is left out.
    ///
    /// # Errors
    /// The error of the read, unless the file is left out.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        read: Result<T, DatasetError>,
    ) -> Result<Option<T>, DatasetError> {
        match read {
            Err(DatasetError::File { field, why, .. }) if self.bad == Bad::Skip => {
                self.parts.push(LeftOut::object(key, format!("is damaged: {field}: {why}")));
                self.damaged.push(key.to_owned());
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Returns the keys of the damaged files so far.
    pub(super) fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Adds a note of the damaged files to the metadata of a manifest, which is a JSON object or
    /// empty.
    pub(super) fn noted_in(&self, metadata: String) -> String {
        if self.bad == Bad::Error {
            return metadata;
        }
        let mut notes: Map<String, Value> = serde_json::from_str(&metadata).unwrap_or_default();
        let named = self.damaged.iter().take(NOTED_MAX).map(String::as_str);
        notes.insert(NOTE.to_owned(), named.collect());
        Value::Object(notes).to_string()
    }

    /// Adds a note of the columns that no file gives, each with the reason of its first file. `has`
    /// tells the columns of the dataset.
    pub(super) fn columns_noted_in(&self, metadata: String, has: impl Fn(&str) -> bool) -> String {
        let mut parts: Vec<&LeftOut> = self.parts.iter().collect();
        parts.sort();
        let mut columns = BTreeMap::new();
        for LeftOut { tensor, why, .. } in parts {
            let name = tensor.as_deref().filter(|name| name.len() <= NAME_BYTES_MAX && !has(name));
            if let Some(name) = name.filter(|_| columns.len() < COLUMNS_MAX) {
                columns.entry(name).or_insert_with(|| shortened(why));
            }
        }
        let mut notes: Map<String, Value> = serde_json::from_str(&metadata).unwrap_or_default();
        // A file may describe a column of this name.
        if columns.is_empty() || notes.contains_key(COLUMNS_NOTE) {
            return metadata;
        }
        let columns = columns.into_iter().map(|(name, why)| (name.to_owned(), why.into()));
        notes.insert(COLUMNS_NOTE.to_owned(), Value::Object(columns.collect()));
        let noted = Value::Object(notes).to_string();
        if noted.len() as u64 <= limits::METADATA_BYTES_MAX { noted } else { metadata }
    }

    pub(super) fn into_parts(self) -> Vec<LeftOut> {
        self.parts
    }
}

impl Deref for LeftOuts {
    type Target = Vec<LeftOut>;

    fn deref(&self) -> &Vec<LeftOut> {
        &self.parts
    }
}

impl DerefMut for LeftOuts {
    fn deref_mut(&mut self) -> &mut Vec<LeftOut> {
        &mut self.parts
    }
}

/// Returns the damaged files that an index left out.
pub(super) fn damaged_files(manifest: &Manifest) -> Vec<String> {
    let noted: Value = serde_json::from_str(manifest.metadata()).unwrap_or_default();
    let names = noted.get(NOTE).and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the columns that an index left out, each with the reason.
pub fn columns_left_out(manifest: &Manifest) -> BTreeMap<String, String> {
    let noted: Value = serde_json::from_str(manifest.metadata()).unwrap_or_default();
    let columns = noted.get(COLUMNS_NOTE).and_then(Value::as_object).into_iter().flatten();
    columns.filter_map(|(name, why)| Some((name.clone(), why.as_str()?.to_owned()))).collect()
}

fn shortened(why: &str) -> String {
    match why.char_indices().nth(WHY_CHARS_MAX) {
        None => why.to_owned(),
        Some((end, _)) => format!("{}...", &why[..end]),
    }
}

/// Parts that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutGroup {
    /// The reason.
    pub why: String,
    /// How many parts.
    pub count: u64,
    /// The first of them.
    pub first: LeftOut,
}

/// One clause: `12 objects, first a/._b.jpg: is a sidecar file of macOS`.
impl fmt::Display for LeftOutGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, count, first } = self;
        if *count == 1 {
            return first.fmt(f);
        }
        match &first.tensor {
            Some(name) => {
                let counted = Counted(*count, "column");
                write!(f, "{counted}, first '{name}' of {}: {why}", first.object)
            }
            None => write!(f, "{}, first {}: {why}", Counted(*count, "object"), first.object),
        }
    }
}

/// Counts the parts that were left out by reason, the most frequent reason first.
pub fn left_out_by_reason(left_out: &[LeftOut]) -> Vec<LeftOutGroup> {
    let mut groups: BTreeMap<(&str, bool), LeftOutGroup> = BTreeMap::new();
    for one in left_out {
        let group = groups
            .entry((&one.why, one.tensor.is_some()))
            .or_insert_with(|| LeftOutGroup { why: one.why.clone(), count: 0, first: one.clone() });
        group.count += 1;
    }
    let mut groups: Vec<LeftOutGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| Reverse(group.count));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_no_file_are_noted_with_a_short_reason() {
        let parts = vec![
            LeftOut::tensor("b", "chat", "is a map"),
            LeftOut::tensor("a", "chat", "x".repeat(300)),
            LeftOut::tensor("a", "label", "is there in other files"),
            LeftOut::object("c", "is hidden"),
        ];
        let left_out = LeftOuts { parts, ..LeftOuts::default() };
        let noted = left_out.columns_noted_in(r#"{"k":1}"#.to_owned(), |name| name == "label");
        let why = format!("{}...", "x".repeat(WHY_CHARS_MAX));
        assert_eq!(noted, format!(r#"{{"k":1,"left_out":{{"chat":"{why}"}}}}"#));
        let described = r#"{"left_out":{"names":["a"]}}"#.to_owned();
        assert_eq!(left_out.columns_noted_in(described.clone(), |_| false), described);
        assert_eq!(LeftOuts::default().columns_noted_in(String::new(), |_| false), "");
    }

    #[test]
    fn noted_columns_are_bounded() {
        let columns = (0..300).map(|n| LeftOut::tensor("a", &format!("{n:03}"), "is a map"));
        let left_out = LeftOuts { parts: columns.collect(), ..LeftOuts::default() };
        let noted = left_out.columns_noted_in(String::new(), |_| false);
        let noted: Value = serde_json::from_str(&noted).expect("a document");
        assert_eq!(noted[COLUMNS_NOTE].as_object().map(Map::len), Some(COLUMNS_MAX));
    }

    #[test]
    fn reasons_are_counted_the_most_frequent_first() {
        let left_out = [
            LeftOut::object("a", "is empty"),
            LeftOut::tensor("b", "x", "has no name"),
            LeftOut::object("c", "is hidden"),
            LeftOut::object("d", "is hidden"),
        ];
        let said: Vec<String> =
            left_out_by_reason(&left_out).iter().map(ToString::to_string).collect();
        let expected =
            ["2 objects, first c: is hidden", "tensor 'x' of b has no name", "a is empty"];
        assert_eq!(said, expected);
    }
}
