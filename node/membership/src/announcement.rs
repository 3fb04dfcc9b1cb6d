//! The announcement that a node renews for as long as it lives.
//!
//! ```text
//! magic 8 | boot 16 | ring version in use 8
//!         | settled: count 4, each (plan 16, gaps 4, clean 1)
//!         | checksum 8
//! ```

use larder_base::{codec, limits::ANNOUNCEMENT_BYTES_MAX};

use serde::{Deserialize, Serialize};

use crate::{BlobId, BootId, Malformed};

const MAGIC: &[u8; 8] = b"ldr-ann2";
const WHAT: &str = "an announcement";

/// A node's announcement. The coordinator stores it under the node's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// This start of the node. A new start voids everything that an earlier one announced.
    pub boot: BootId,
    /// The ring version that the node serves by; 0 before it has a ring.
    pub version: u64,
    /// The plans that have no open moves to the node: that of the change in flight, that of the
    /// committed ring, or both.
    pub settled: Vec<Settled>,
}

/// Most plans that one announcement may name.
const SETTLED_MAX: usize = 2;

/// All moves of a plan to a node have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The plan.
    pub plan: BlobId,
    /// Shards that the node could not take: it had no room, or they are gone from the origin. While
    /// there are any, sources keep their old copies of all shards that move to this node.
    pub gaps: u32,
    /// Whether this node has dropped the old copies that it drops by the plan of the committed
    /// ring. Copies for a target with gaps may stay.
    pub clean: bool,
}

impl Announcement {
    /// Returns the announcement as bytes.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(MAGIC, self)
    }

    /// Decodes an announcement.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not an announcement.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let said: Self = codec::decode(WHAT, MAGIC, bytes, ANNOUNCEMENT_BYTES_MAX)?;
        if said.settled.len() > SETTLED_MAX {
            return Err(Malformed { what: WHAT, why: "it names too many plans" });
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_reads_back_and_other_bytes_are_refused() {
        let settled = vec![Settled { plan: BlobId::of(b"plan"), gaps: 3, clean: true }];
        let said = Announcement { boot: BootId::from_bytes([7; 16]), version: 9, settled };
        let bytes = said.encode();
        assert_eq!(Announcement::decode(&bytes), Ok(said));
        for cut in 0..bytes.len() {
            assert!(Announcement::decode(&bytes[..cut]).is_err());
        }
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1;
            assert!(Announcement::decode(&flipped).is_err());
        }
        assert!(Announcement::decode(&[0; ANNOUNCEMENT_BYTES_MAX + 1]).is_err());
    }
}
