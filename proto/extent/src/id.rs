//! The name of an extent: 16 bytes chosen by the process that fills it.

use std::fmt;

/// The name of an extent, in practice the id of the shard or snapshot it holds. This crate only
/// writes it into the header and compares it on attach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub [u8; 16]);

impl ExtentId {
    /// Makes an id of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the id.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtentId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::ExtentId;

    #[test]
    fn id_is_displayed_as_hex() {
        let mut bytes = [0; 16];
        bytes[0] = 0xab;
        bytes[15] = 0x01;
        let id = ExtentId::from_bytes(bytes);
        assert_eq!(id.to_string(), "ab000000000000000000000000000001");
        assert_eq!(id.as_bytes(), &bytes);
    }
}
