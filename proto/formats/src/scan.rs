//! The scan of one file.

mod reads;
pub(crate) mod tail;

use std::ops::Range;

use crate::{Fault, Table};

pub(crate) use reads::Reads;

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
