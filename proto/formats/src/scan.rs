//! The scan of one file, and the mistakes that it finds.

use std::{fmt, ops::Range};

use crate::Table;

/// Reads the headers of one file. The caller performs the reads:
///
/// 1. It asks [`wants`](Self::wants) for a range of the file.
/// 2. It passes the bytes of that range to [`take`](Self::take), in order, in pieces of any size.
/// 3. It asks again. After `None` it calls [`finish`](Self::finish).
pub trait Scan {
    /// Returns the range to read next, never empty and inside the file. `None` after the last.
    fn wants(&self) -> Option<Range<u64>>;

    /// Takes the next bytes of the range.
    ///
    /// # Errors
    /// The first mistake in the file. The scan is of no use after it.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// Returns the samples of the file.
    ///
    /// # Errors
    /// A mistake that shows only when all headers are known.
    fn finish(self: Box<Self>) -> Result<Table, Fault>;
}

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
