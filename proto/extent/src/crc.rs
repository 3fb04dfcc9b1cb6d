//! CRC32C (Castagnoli), the checksum of rows, headers and frames.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// Returns the CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// A CRC32C computed piece by piece, while the bytes are still in the cache.
pub struct Crc32c(Digest);

impl Crc32c {
    /// Begins before the first byte.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the CRC32C of all bytes added so far.
    pub fn finish(&self) -> u32 {
        u32::try_from(self.0.finalize()).expect("a CRC of 32 bits fits 32 bits")
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Crc32c, crc32c};

    #[test]
    fn the_checksum_is_castagnoli_and_pieces_add_up() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut pieces = Crc32c::new();
        pieces.update(b"1234");
        pieces.update(b"56789");
        assert_eq!(pieces.finish(), 0xe306_9283);
    }
}
