//! Where received bytes go, one piece after the other: a part of a shard that is being filled, or
//! memory. Non-goals: checking the bytes, and counting them (readers do both).

use larder_base::{Error, ErrorKind};
use larder_extent::Part;

use crate::errors;

/// A sink for the bytes of a read, in their order.
pub(crate) trait ByteSink: Send {
    /// Starts anew. Forgets the bytes put so far.
    fn begin(&mut self);

    /// Appends the next bytes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error>;
}

impl ByteSink for Part {
    fn begin(&mut self) {
        self.restart();
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write(bytes).map_err(errors::of_extent)
    }
}

/// Memory that is filled from front to back.
pub(crate) struct Piece<'a> {
    bytes: &'a mut [u8],
    filled: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, filled: 0 }
    }
}

impl ByteSink for Piece<'_> {
    fn begin(&mut self) {
        self.filled = 0;
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let target = self.bytes[self.filled..].get_mut(..bytes.len());
        let more = || Error::new(ErrorKind::Internal, "a read brought more than it was to");
        target.ok_or_else(more)?.copy_from_slice(bytes);
        self.filled += bytes.len();
        Ok(())
    }
}
