//! The two random names of a session: the ticket, a secret, and the boot id, which is public.

use std::fmt;
use std::hint::black_box;

/// The right to read one dataset from one node, issued by the control plane. It is a secret: shown
/// only as `Ticket(..)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket([u8; 16]);

impl Ticket {
    /// Makes a ticket of these bytes, which the caller drew at random.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, to be sent and never shown.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Compares with a ticket shown by a client, in a time that does not depend on the first
    /// difference.
    pub fn is(&self, shown: &[u8]) -> bool {
        if shown.len() != self.0.len() {
            return false;
        }
        let differ = self.0.iter().zip(shown).fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
        black_box(differ) == 0
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(..)")
    }
}

/// Names one start of a node: random, so that facts from an earlier start are recognised as stale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct BootId(#[serde(with = "serde_bytes")] [u8; 16]);

impl BootId {
    /// Makes an id of these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_matches_only_all_of_its_bytes() {
        let ticket = Ticket::from_bytes([7; 16]);
        assert!(ticket.is(&[7; 16]));
        for at in 0..16 {
            let mut other = [7; 16];
            other[at] ^= 1;
            assert!(!ticket.is(&other), "byte {at} differs");
        }
        assert!(!ticket.is(&[]) && !ticket.is(&[7; 15]) && !ticket.is(&[7; 17]));
    }
}
