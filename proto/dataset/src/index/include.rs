//! The pattern by which a user takes only some files under a prefix. The manifest notes it in its
//! metadata, so that other files do not count as added later.

use std::fmt;

use glob::{MatchOptions, Pattern};
use serde_json::{Map, Value};

use crate::{DatasetError, Manifest};

/// The name of the note in the metadata.
const NOTE: &str = "include";

/// `*` and `?` stay within a segment of a key, and match a dot at its begin.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A pattern for keys under a prefix.
pub(super) struct Include(Pattern);

impl Include {
    /// # Errors
    /// The text is no pattern.
    pub(super) fn parse(text: &str) -> Result<Self, DatasetError> {
        Pattern::new(text)
            .map(Self)
            .map_err(|why| DatasetError::Option { option: "include", why: why.to_string() })
    }

    /// The pattern that a dataset was indexed with, if there was one.
    pub(super) fn of(manifest: &Manifest) -> Option<Self> {
        let noted: Value = serde_json::from_str(manifest.metadata()).ok()?;
        Self::parse(noted.get(NOTE)?.as_str()?).ok()
    }

    /// Returns whether the file with this key is taken.
    pub(super) fn takes(&self, key: &str) -> bool {
        self.0.matches_with(key, MATCHING)
    }

    /// Adds the note to the metadata of a manifest, which is a JSON object or empty.
    pub(super) fn noted_in(&self, metadata: &str) -> String {
        let mut notes: Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
        notes.insert(NOTE.to_owned(), self.0.as_str().into());
        Value::Object(notes).to_string()
    }
}

impl fmt::Display for Include {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}
