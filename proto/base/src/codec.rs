//! Values as bytes: eight bytes that name kind and layout, the value as MessagePack, and a checksum
//! of all before it. Structs are arrays, so the order of their fields is the layout.

use serde::{Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

const CHECKSUM_BYTES: usize = 8;

/// Bytes from another process that are not the value that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is malformed: {why}; was it written by a newer version?")]
pub struct Malformed {
    /// The kind of value: a record, a plan, an announcement.
    pub what: &'static str,
    /// The first thing that is wrong with it.
    pub why: &'static str,
}

/// Returns the bytes of a value.
///
/// # Panics
/// If a sequence or map of the value does not say its length before it is written.
pub fn encode(magic: &[u8; 8], value: &impl Serialize) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    rmp_serde::encode::write(&mut bytes, value).expect("these types have no unknown lengths");
    let checksum = xxh3_64(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads a value. Checks length, checksum and magic first, and takes memory only for bytes that are
/// there.
///
/// # Errors
/// [`Malformed`] if the bytes are longer than `bytes_max`, damaged, or of another kind.
pub fn decode<T: DeserializeOwned>(
    what: &'static str,
    magic: &[u8; 8],
    bytes: &[u8],
    bytes_max: usize,
) -> Result<T, Malformed> {
    let malformed = |why| Malformed { what, why };
    if bytes.len() > bytes_max {
        return Err(malformed("it is longer than allowed"));
    }
    let split = bytes.split_last_chunk::<CHECKSUM_BYTES>();
    let (body, checksum) = split.ok_or_else(|| malformed("it ends too soon"))?;
    if xxh3_64(body).to_le_bytes() != *checksum {
        return Err(malformed("its checksum does not match"));
    }
    let mut rest = body.strip_prefix(magic).ok_or_else(|| malformed("it is of another kind"))?;
    let value = T::deserialize(&mut rmp_serde::Deserializer::new(&mut rest));
    let value = value.map_err(|_| malformed("its fields are not as expected"))?;
    if rest.is_empty() { Ok(value) } else { Err(malformed("bytes follow its end")) }
}
