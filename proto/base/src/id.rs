//! Names of 16 bytes: hashes of a snapshot, a shard and a blob, and the random name of a node's
//! start. `Copy`, shown as 32 hex digits.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// A string that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an id: expected 32 hex digits")]
pub struct IdError(String);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(#[serde(with = "serde_bytes")] [u8; 16]);

        impl $name {
            /// Makes the id with these bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Returns the bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_hex(text).map(Self)
            }
        }
    };
}

id! {
    /// Names one immutable version of a dataset: the xxh3-128 of its manifest.
    SnapshotId
}

id! {
    /// Names the bytes of one shard: the xxh3-128 of the bytes' places and their version. Unchanged
    /// bytes in place keep their id; changed bytes get another.
    ShardId
}

id! {
    /// Names immutable bytes by their hash.
    BlobId
}

impl BlobId {
    /// Returns the id of these bytes: their xxh3-128, little-endian.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes).to_le_bytes())
    }
}

id! {
    /// Names one start of a node: random, so that facts from an earlier start are recognised as
    /// stale.
    BootId
}

fn parse_hex(text: &str) -> Result<[u8; 16], IdError> {
    let refused = || IdError(text.chars().take(64).collect());
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(refused());
    }
    let mut bytes = [0; 16];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| refused())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| refused())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_displayed_as_hex_and_parsed_back() {
        let id = ShardId::from_bytes(
            *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff",
        );
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse::<ShardId>(), Ok(id));
    }

    #[test]
    fn refuses_malformed_ids() {
        for text in
            ["", "00", "+00102030405060708090a0b0c0d0eff", "000102030405060708090a0b0c0d0efg"]
        {
            assert!(text.parse::<SnapshotId>().is_err(), "{text}");
        }
    }
}
