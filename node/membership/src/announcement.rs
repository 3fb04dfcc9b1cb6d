//! What a node says of itself for as long as it lives.

use larder_base::{codec, limits::ANNOUNCEMENT_BYTES_MAX};

use serde::{Deserialize, Serialize};

use crate::{BlobId, BootId, Malformed};

const MAGIC: &[u8; 8] = b"ldr-ann2";
const WHAT: &str = "an announcement";

/// A node's word about itself. Its id stands beside it at the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// This start of the node: after another one nothing of what was said before holds.
    pub boot: BootId,
    /// The version of the ring that the node serves by; 0 before it has one.
    pub version: u64,
    /// The plans of which the node has everything that was to come to it: of the change in flight,
    /// of the one before, or of both.
    pub settled: Vec<Settled>,
}

/// Plans that one announcement may name.
const SETTLED_MAX: usize = 2;

/// That all moves of a plan to a node have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The plan.
    pub plan: BlobId,
    /// Shards that the node could not take: no room, or gone from the origin. While there are any
    /// the old copies of what was to come here are not dropped by anybody's word.
    pub gaps: u32,
    /// Whether the plan is the committed ring's and the old copies that this node is to drop by it
    /// are dropped; those may stay that a new owner could not take.
    pub clean: bool,
}

impl Announcement {
    /// Returns the announcement as bytes.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(MAGIC, self)
    }

    /// Reads an announcement.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no announcement, or it names more plans than a node settles.
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
    fn an_announcement_is_read_back_and_anything_else_refused() {
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
