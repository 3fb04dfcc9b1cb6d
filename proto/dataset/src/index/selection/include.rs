//! The patterns by which a user takes only some files under a prefix. The manifest notes them in
//! its metadata, so that other files do not count as added later.

use std::{collections::HashSet, fmt};

use glob::{MatchOptions, Pattern};
use serde_json::{Map, Value};

use super::braces;
use crate::{DatasetError, Manifest};

/// The name of the note in the metadata.
const NOTE: &str = "include";

/// `*` and `?` stay within a segment of a key, and match a dot at its begin.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Patterns for keys under a prefix. A key is taken if one of them matches it.
pub(in crate::index) struct Include {
    /// The patterns as the user wrote them.
    texts: Vec<String>,
    /// The patterns that are whole keys. There may be many.
    keys: HashSet<String>,
    patterns: Vec<Pattern>,
}

impl Include {
    /// Parses patterns. Braces in them are expanded.
    ///
    /// # Errors
    /// A text is no pattern, or stands for too many.
    pub(in crate::index) fn parse(texts: &[String]) -> Result<Self, DatasetError> {
        let refused = |why: String| DatasetError::Option { option: "include", why };
        let mut include =
            Self { texts: texts.to_vec(), keys: HashSet::new(), patterns: Vec::new() };
        for text in braces::expand_all(texts).map_err(refused)? {
            if text.contains(['*', '?', '[']) {
                let pattern = Pattern::new(&text).map_err(|why| refused(why.to_string()))?;
                include.patterns.push(pattern);
            } else {
                include.keys.insert(text);
            }
        }
        Ok(include)
    }

    /// The patterns that a dataset was indexed with, if there were some.
    pub(in crate::index) fn of(manifest: &Manifest) -> Option<Self> {
        let noted: Value = serde_json::from_str(manifest.metadata()).ok()?;
        let texts = match noted.get(NOTE)? {
            Value::String(one) => vec![one.clone()],
            Value::Array(many) => {
                many.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => return None,
        };
        Self::parse(&texts).ok()
    }

    /// Returns whether the file with this key is taken.
    pub(in crate::index) fn takes(&self, key: &str) -> bool {
        self.keys.contains(key)
            || self.patterns.iter().any(|pattern| pattern.matches_with(key, MATCHING))
    }

    /// Returns whether a pattern that takes this key spells `mark` at the begin of a segment. So it
    /// means files that bear this mark.
    pub(in crate::index) fn spells(&self, key: &str, mark: &str) -> bool {
        let spells = |pattern: &str| pattern.split('/').any(|segment| segment.starts_with(mark));
        self.keys.contains(key)
            || self
                .patterns
                .iter()
                .any(|pattern| spells(pattern.as_str()) && pattern.matches_with(key, MATCHING))
    }

    /// Returns the keys that are named whole and are not among these, in order.
    pub(in crate::index) fn missing<'a>(&self, known: impl Iterator<Item = &'a str>) -> Vec<&str> {
        let known: HashSet<&str> = known.filter(|key| self.keys.contains(*key)).collect();
        let missing = self.keys.iter().map(String::as_str).filter(|key| !known.contains(key));
        let mut missing: Vec<&str> = missing.collect();
        missing.sort_unstable();
        missing
    }

    /// Adds the note to the metadata of a manifest, which is a JSON object or empty.
    pub(in crate::index) fn noted_in(&self, metadata: &str) -> String {
        let mut notes: Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
        let note = match &self.texts[..] {
            [one] => one.as_str().into(),
            many => many.into(),
        };
        notes.insert(NOTE.to_owned(), note);
        Value::Object(notes).to_string()
    }
}

/// The patterns as the user wrote them, the first few of them.
impl fmt::Display for Include {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.texts[..] {
            [] => f.write_str("nothing"),
            [one] => write!(f, "'{one}'"),
            [first, more @ ..] => write!(f, "'{first}' and {} more", more.len()),
        }
    }
}
