//! The mistakes that are found in files.

use std::fmt;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place: a member, a tensor or a field.
    pub field: String,
    /// The mistake, as a clause: `ends before its data`.
    pub why: String,
}

impl Fault {
    /// Makes a fault of a place and a reason.
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    /// Puts a wider place before the place.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        Self { field: format!("{place} {}", self.field), why: self.why }
    }
}

/// Shortens and escapes a name from a file for a message.
pub fn shown(name: &str) -> String {
    name.chars().take(100).flat_map(char::escape_debug).collect()
}
