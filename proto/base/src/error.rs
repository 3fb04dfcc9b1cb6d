//! What goes wrong between processes: one error with a coarse kind that says what to do.
//!
//! The kind is what programs act on and what crosses the wire, as a gRPC status on the control
//! plane and as a 16-bit number in an ERROR frame on the data plane; both mappings are the table
//! below. The message is for people; the source stays in the process.

use std::{error, fmt, sync::Arc};

/// A failure that crosses, or may cross, a process border.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind. The message is lower case, without a full stop, with the value and
    /// the limit that was hit and what to do next.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error, with what caused it. Only the message crosses the wire.
    #[must_use]
    pub fn with_source(mut self, source: impl error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same error, its message led by what was being done: `"{context}: {message}"`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the caller should do: shorthand for `kind().advice()`.
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

/// What a caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Ask the same node again after a wait that grows.
    Retry,
    /// Ask the next member on the walk now.
    TryNextNode,
    /// The request itself must change; nobody will answer this one.
    CallerFault,
    /// No repetition helps; tell the user.
    GiveUp,
}

/// One table for the faces of a kind: its number on the data plane, its word in listings, its gRPC
/// code on the control plane, and the advice that goes with it.
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

            /// The number of this kind in an ERROR frame.
            pub const fn number(self) -> u16 {
                match self { $(Self::$kind => $number,)* }
            }

            /// The kind with this number, unless a newer peer has kinds that we do not know.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)* _ => None }
            }

            /// The kind as one word, for metric labels, logs and listings.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// What the caller should do.
            pub const fn advice(self) -> Advice {
                match self { $(Self::$kind => Advice::$advice,)* }
            }
        }
    };
}

kinds! {
    /// The request makes no sense, or exceeds a limit that it could keep.
    InvalidArgument = 1, "invalid_argument", CallerFault;
    /// There is no such dataset, tag, snapshot, tensor or shard, or the node goes by another version of
    /// the ring.
    NotFound = 2, "not_found", CallerFault;
    /// The node may not or will not read that: outside its origin prefixes, or denied by the origin.
    PermissionDenied = 3, "permission_denied", CallerFault;
    /// The ticket or credential is missing, unknown or expired. A client opens the dataset again
    /// once; if that fails too it is the caller's to mend.
    Unauthenticated = 4, "unauthenticated", CallerFault;
    /// A queue, quota, connection limit or the memory budget is full for now.
    ResourceExhausted = 5, "resource_exhausted", Retry;
    /// The node is draining, unreachable, silent, or the connection broke.
    Unavailable = 6, "unavailable", TryNextNode;
    /// The origin does not answer; the node itself is well. Other nodes share that origin.
    OriginUnavailable = 7, "origin_unavailable", Retry;
    /// The objects are no longer those that the manifest was made from: index the dataset again.
    DataChanged = 8, "data_changed", GiveUp;
    /// Bytes did not match their checksum here; another copy may be sound.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_data_plane() {
        for &kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(ErrorKind::from_number(0), None);
        assert_eq!(ErrorKind::from_number(u16::MAX), None);
    }
}
