//! Secrets: the ticket of a session, and the comparison that every secret is checked by.

use std::fmt;
use std::hint::black_box;

/// Returns whether `shown` is `secret`. The time depends on the lengths, not on the first
/// difference.
pub fn is_secret(secret: &[u8], shown: &[u8]) -> bool {
    if shown.len() != secret.len() {
        return false;
    }
    let differ = secret.iter().zip(shown).fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    black_box(differ) == 0
}

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

    /// Compares with a ticket shown by a client, as [`is_secret`] does.
    pub fn is(&self, shown: &[u8]) -> bool {
        is_secret(&self.0, shown)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(..)")
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
