//! The record as bytes.

use larder_base::{codec, limits};

use super::{Dataset, Record};
use crate::{Malformed, record::step::Refused};

const WHAT: &str = "the record";
const MAGIC: &[u8; 8] = b"ldr-rec2";
/// The cluster is the first field: the header of the array, then the header of 16 bytes.
const CLUSTER_AT: usize = MAGIC.len() + 3;

impl Record {
    /// Returns the record as bytes.
    ///
    /// # Errors
    /// [`Refused`] if it is not well formed, or longer than [`limits::RECORD_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, Refused> {
        self.check().map_err(|why| Refused::new(format!("this would break the record: {why}")))?;
        let bytes = codec::encode(MAGIC, self);
        let (length, max) = (bytes.len(), limits::RECORD_BYTES_MAX);
        if length > max {
            return Err(Refused::new(format!(
                "the record would have {length} bytes, the limit is {max}; use shorter names"
            )));
        }
        Ok(bytes)
    }

    /// Returns the cluster that a record names, without decoding the rest; none when the bytes are
    /// too few.
    pub(crate) fn cluster_of(bytes: &[u8]) -> Option<[u8; 16]> {
        bytes.get(CLUSTER_AT..)?.first_chunk().copied()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a record, or one that no step leads to.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let record: Self = codec::decode(WHAT, MAGIC, bytes, limits::RECORD_BYTES_MAX)?;
        let checked = record.check();
        checked.map_err(|_| Malformed { what: WHAT, why: "no step leads to it" })?;
        Ok(record)
    }
}

impl Dataset {
    /// Returns its length in an encoded record.
    pub(super) fn encoded_bytes(&self) -> usize {
        const ID: usize = 2 + 16;
        const TEXT_HEADER: usize = 3;
        const NUMBER: usize = 9;
        1 + ID + 2 * TEXT_HEADER + self.uri.len() + self.manifest.len() + 2 * NUMBER
    }
}
