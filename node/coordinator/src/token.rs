//! The token that lets a node into a cluster: a secret that all its nodes share.

use std::fmt;
use std::path::Path;

use larder_base::{check_secret_mode, is_secret};

/// Most bytes of the token that lets a node into a cluster.
const JOIN_TOKEN_BYTES_MAX: usize = 256;

/// Fewest bytes of that token: shorter ones can be guessed.
const JOIN_TOKEN_BYTES_MIN: usize = 16;

/// A cluster's token. Sent with every call between nodes; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken(Box<[u8]>);

impl JoinToken {
    /// Creates a token from typed text. Leading and trailing white space is dropped.
    ///
    /// # Errors
    /// A message, when the token is too short to be secret, or too long.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.len() {
            0..JOIN_TOKEN_BYTES_MIN => Err(format!(
                "a token of {} bytes can be guessed: take at least {JOIN_TOKEN_BYTES_MIN}, such as from \
                 `head -c 24 /dev/urandom | base64`",
                text.len()
            )),
            JOIN_TOKEN_BYTES_MIN..=JOIN_TOKEN_BYTES_MAX => Ok(Self(text.as_bytes().into())),
            bytes => Err(format!("a token of {bytes} bytes; the limit is {JOIN_TOKEN_BYTES_MAX}")),
        }
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// A message, when the file can't be read, other users can read it, or it holds no valid token.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        use std::io::Read;
        use std::os::unix::fs::PermissionsExt;
        let in_file = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
        let file = std::fs::File::open(path).map_err(|why| in_file(&why))?;
        let known = file.metadata().map_err(|why| in_file(&why))?;
        check_secret_mode(path, known.permissions().mode())?;
        let mut text = String::new();
        file.take(2 * JOIN_TOKEN_BYTES_MAX as u64)
            .read_to_string(&mut text)
            .map_err(|why| in_file(&why))?;
        Self::new(&text).map_err(|why| in_file(&why))
    }

    /// Returns the bytes to send.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares with a token shown by a caller, as [`is_secret`] does.
    pub fn is(&self, shown: &[u8]) -> bool {
        is_secret(&self.0, shown)
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_itself() {
        let token = JoinToken::new(" 0123456789abcdef\n").expect("a token");
        assert!(token.is(b"0123456789abcdef"));
        for wrong in [&b""[..], b"0123456789abcdeF", b"0123456789abcde", b"0123456789abcdef0"] {
            assert!(!token.is(wrong));
        }
        assert_eq!(format!("{token:?}"), "JoinToken(..)");
    }

    #[test]
    fn too_short_or_too_long_token_is_refused() {
        assert!(JoinToken::new("secret").expect_err("short").contains("16"));
        assert!(JoinToken::new(&"x".repeat(JOIN_TOKEN_BYTES_MAX + 1)).is_err());
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("token");
        assert!(JoinToken::from_file(&missing).expect_err("no file").contains("token"));
        std::fs::write(&missing, "0123456789abcdef\n").expect("a file");
        let allow = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&missing, mode).expect("own file");
        };
        allow(0o644);
        assert!(JoinToken::from_file(&missing).expect_err("public").contains("chmod 0600"));
        allow(0o600);
        assert!(JoinToken::from_file(&missing).expect("a token").is(b"0123456789abcdef"));
    }
}
