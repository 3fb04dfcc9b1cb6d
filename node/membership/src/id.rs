//! Identifiers: of a blob, of one start of a node, of one revision of the record.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// Names immutable bytes by their hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobId(#[serde(with = "serde_bytes")] [u8; 16]);

impl BlobId {
    /// Returns the id of these bytes: their xxh3-128, little-endian.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes).to_le_bytes())
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id that [`Display`](fmt::Display) writes, read back.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u128::from_str_radix(text, 16).ok().filter(|_| digits)?;
        Some(Self(value.to_be_bytes()))
    }

    /// The bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobId({self})")
    }
}

pub use larder_base::BootId;

/// The coordinator's count of writes to the record. The greater of two is the newer one, while the
/// record's generation is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_id_parses_back_from_its_text() {
        let id = BlobId::of(b"placement");
        assert_eq!(BlobId::parse(&id.to_string()), Some(id));
        let signed = format!("+{}", &id.to_string()[1..]);
        for text in ["", "00", &"g".repeat(32), &format!("{id}0"), &signed] {
            assert_eq!(BlobId::parse(text), None, "{text}");
        }
    }
}
