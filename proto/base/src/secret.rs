//! Secrets: the ticket of a session, the comparison that every secret is checked by, and the modes
//! of files that hold one.

use std::fmt;
use std::hint::black_box;
use std::path::Path;

/// Returns whether `shown` is `secret`. The time depends on the lengths, not on the first
/// difference.
pub fn is_secret(secret: &[u8], shown: &[u8]) -> bool {
    if shown.len() != secret.len() {
        return false;
    }
    let differ = secret.iter().zip(shown).fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    black_box(differ) == 0
}

/// Checks the mode of a file that holds a secret: only its owner may write it, and only its owner
/// and group may read it.
///
/// # Errors
/// A message with the command that mends it.
pub fn check_secret_mode(path: &Path, mode: u32) -> Result<(), String> {
    if mode & 0o027 == 0 {
        return Ok(());
    }
    let (path, mode) = (path.display(), mode & 0o777);
    Err(format!(
        "{path} has mode {mode:04o}, so other users of this host can get at the secret in it; run: \
         chmod 0600 {path}"
    ))
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
    fn files_that_others_can_read_hold_no_secret() {
        let check = |mode| check_secret_mode(Path::new("/etc/larder/token"), mode);
        for mode in [0o100_600, 0o100_400, 0o100_640, 0o100_440] {
            check(mode).unwrap();
        }
        for mode in [0o100_644, 0o100_604, 0o100_660, 0o100_601] {
            assert!(check(mode).unwrap_err().ends_with("run: chmod 0600 /etc/larder/token"));
        }
    }

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
