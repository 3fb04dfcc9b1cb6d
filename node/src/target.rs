//! Where bytes that come from elsewhere go, one piece after the other: a part of a shard that is being
//! filled, or memory. Non-goals: whether they are the right ones, and how many (their readers count).

use larder_base::{Error, ErrorKind};
use larder_extent::Part;

use crate::errors;

/// Where the bytes of a read go, in their order.
pub(crate) trait Target: Send {
    /// The first bytes come next. What came before is to be forgotten.
    fn begin(&mut self);

    /// The next bytes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error>;
}

impl Target for Part {
    fn begin(&mut self) {
        self.restart();
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write(bytes).map_err(errors::of_extent)
    }
}

/// Memory that bytes go to one after the other.
pub(crate) struct Piece<'a> {
    bytes: &'a mut [u8],
    filled: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, filled: 0 }
    }
}

impl Target for Piece<'_> {
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
