//! The error between processes: its coarse kind says how to react.
//!
//! Programs act on the kind. It crosses the wire as a 16-bit number in an ERROR frame on the data
//! plane, which the table below maps, and as a gRPC status on the control plane
//! (`larder_wire::status`). The message is for people. The source stays in the process.

use std::{error, fmt, sync::Arc};

/// A failure that crosses, or may cross, a process border.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error of this kind. The message is lower case, without a full stop. It names the
    /// value, the limit that was hit and the next step for the user.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, source: None }
    }

    /// Adds what the user can do about it. The message does not repeat it. It crosses the control
    /// plane, not the data plane.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds the cause. Only the message crosses the wire.
    #[must_use]
    pub fn with_source(mut self, source: impl error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Puts a context before the message: `"{context}: {message}"`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what the user can do about it, if that is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the caller's next step: shorthand for `kind().advice()`.
    pub fn advice(&self) -> Advice {
        self.kind.advice()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, " (caused by {source:?})"))
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The caller's next step after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Ask the same node again after a growing wait.
    Retry,
    /// Ask the next member on the walk now.
    TryNextNode,
    /// Change the request: no node will answer this one.
    CallerFault,
    /// Give up and tell the user: no repetition helps.
    GiveUp,
}

/// Declares each kind once: its number on the data plane, its word in listings, and its advice.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $advice:ident;)*) => {
        /// The kinds of failure. Numbers are part of the wire and are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the number of this kind in an ERROR frame.
            pub const fn number(self) -> u16 {
                match self { $(Self::$kind => $number,)* }
            }

            /// Returns the kind with this number; `None` for kinds of newer peers.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)* _ => None }
            }

            /// Returns the kind as one word, for metric labels, logs and listings.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Returns the caller's next step.
            pub const fn advice(self) -> Advice {
                match self { $(Self::$kind => Advice::$advice,)* }
            }
        }
    };
}

kinds! {
    /// The request makes no sense, or exceeds a limit.
    InvalidArgument = 1, "invalid_argument", CallerFault;
    /// The dataset, tag, snapshot, tensor or shard does not exist, or the node uses another version
    /// of the ring.
    NotFound = 2, "not_found", CallerFault;
    /// The node may not or will not read that: outside its origin prefixes, or denied by the
    /// origin.
    PermissionDenied = 3, "permission_denied", CallerFault;
    /// The ticket or credential is missing, unknown or expired. A client opens the dataset again
    /// once. If that fails too, the caller must correct the credential.
    Unauthenticated = 4, "unauthenticated", CallerFault;
    /// A queue, quota, connection limit or the memory budget is full for now.
    ResourceExhausted = 5, "resource_exhausted", Retry;
    /// The node is draining, unreachable or silent, or the connection broke.
    Unavailable = 6, "unavailable", TryNextNode;
    /// The origin does not answer, while the node itself works. Other nodes share that origin.
    OriginUnavailable = 7, "origin_unavailable", Retry;
    /// The objects changed since the manifest was made: index the dataset again.
    DataChanged = 8, "data_changed", GiveUp;
    /// Bytes did not match their checksum here; another copy may be intact.
    DataLoss = 9, "data_loss", TryNextNode;
    /// The two sides speak no common version of the protocol.
    VersionMismatch = 10, "version_mismatch", GiveUp;
    /// A defect of the program that answered.
    Internal = 11, "internal", GiveUp;
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the text of an error's innermost cause: lower case, without a full stop or error
/// numbers. The layers above it mostly repeat it, in words for programmers.
pub fn root_cause(error: &(dyn error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let text = innermost.to_string().replace('\n', " ");
    let text = text.split(" (os error").next().unwrap_or_default().trim().trim_end_matches('.');
    lower_first(text)
}

/// Makes a sentence part of another one. A name in capitals stays.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn every_kind_survives_the_data_plane() {
        for &kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(ErrorKind::from_number(0), None);
        assert_eq!(ErrorKind::from_number(u16::MAX), None);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("Generic X error")]
    struct Outer(#[source] io::Error);

    #[test]
    fn root_cause_is_the_text_of_the_innermost_error() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(root_cause(&Outer(refused)), "connection refused");
        let own = io::Error::other("TLS says no.");
        assert_eq!(root_cause(&Outer(own)), "TLS says no");
        assert_eq!(root_cause(&Outer(io::Error::other(""))), "");
    }
}
