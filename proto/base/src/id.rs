//! Names of fixed length: hashes of a snapshot, a shard and a blob, and the random name of a node's
//! start. `Copy`, shown as two hex digits for each byte.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// A string that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an id: expected {digits} hex digits")]
pub struct IdError {
    text: String,
    digits: usize,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident [$bytes:literal]) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(#[serde(with = "serde_bytes")] [u8; $bytes]);

        impl $name {
            /// Makes the id with these bytes.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// Returns the bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
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
    /// Names one immutable version of a dataset: the SHA-256 of its manifest.
    SnapshotId [32]
}

impl SnapshotId {
    /// Returns its first 16 bytes. They stand for it where a name has 16 bytes.
    pub fn first_half(&self) -> [u8; 16] {
        *self.0.first_chunk().expect("it has 32 bytes")
    }
}

id! {
    /// Names the bytes of one shard: the xxh3-128 of the bytes' places and their version. Unchanged
    /// bytes in place keep their id; changed bytes get another.
    ShardId [16]
}

id! {
    /// Names immutable bytes by their hash.
    BlobId [16]
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
    BootId [16]
}

fn parse_hex<const BYTES: usize>(text: &str) -> Result<[u8; BYTES], IdError> {
    let digits = 2 * BYTES;
    let refused = || IdError { text: text.chars().take(2 * digits).collect(), digits };
    if text.len() != digits || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(refused());
    }
    let mut bytes = [0; BYTES];
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
            assert!(text.parse::<ShardId>().is_err(), "{text}");
        }
    }

    #[test]
    fn snapshot_has_twice_the_digits_of_the_others() {
        let text = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let snapshot: SnapshotId = text.parse().unwrap();
        assert_eq!((snapshot.to_string().as_str(), snapshot.as_bytes()[31]), (text, 0x1f));
        assert_eq!(ShardId::from_bytes(snapshot.first_half()).to_string(), text[..32]);
        let refused = text[..32].parse::<SnapshotId>().unwrap_err().to_string();
        assert!(refused.ends_with("expected 64 hex digits"), "{refused}");
        let refused = text.parse::<ShardId>().unwrap_err().to_string();
        assert!(refused.ends_with("expected 32 hex digits"), "{refused}");
    }
}
