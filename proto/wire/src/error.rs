//! The error between processes: its coarse kind says how to react.
//!
//! Programs act on the kind. It crosses the wire as a gRPC status on the control plane, and as a
//! 16-bit number in an ERROR frame on the data plane. The table below holds both mappings. The
//! message is for people. The source stays in the process.

mod origin;

use std::{error, fmt, sync::Arc};

use tonic::{Code, Status};

use crate::limits;

/// A failure that crosses, or may cross, a process border.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error of this kind. The message is lower case, without a full stop. It names the
    /// value, the limit that was hit and the next step for the user.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
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

/// Declares each kind once: its number on the data plane, its word in listings, its gRPC code on
/// the control plane, and its advice.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $code:ident, $advice:ident;)*) => {
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

            /// Returns the gRPC code of this kind.
            pub const fn code(self) -> Code {
                match self { $(Self::$kind => Code::$code,)* }
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
    InvalidArgument = 1, "invalid_argument", InvalidArgument, CallerFault;
    /// The dataset, tag, snapshot, tensor or shard does not exist, or the node uses another version
    /// of the ring.
    NotFound = 2, "not_found", NotFound, CallerFault;
    /// The node may not or will not read that: outside its origin prefixes, or denied by the
    /// origin.
    PermissionDenied = 3, "permission_denied", PermissionDenied, CallerFault;
    /// The ticket or credential is missing, unknown or expired. A client opens the dataset again
    /// once. If that fails too, the caller must correct the credential.
    Unauthenticated = 4, "unauthenticated", Unauthenticated, CallerFault;
    /// A queue, quota, connection limit or the memory budget is full for now.
    ResourceExhausted = 5, "resource_exhausted", ResourceExhausted, Retry;
    /// The node is draining, unreachable or silent, or the connection broke.
    Unavailable = 6, "unavailable", Unavailable, TryNextNode;
    /// The origin does not answer, while the node itself works. Other nodes share that origin.
    OriginUnavailable = 7, "origin_unavailable", Aborted, Retry;
    /// The objects changed since the manifest was made: index the dataset again.
    DataChanged = 8, "data_changed", FailedPrecondition, GiveUp;
    /// Bytes did not match their checksum here; another copy may be intact.
    DataLoss = 9, "data_loss", DataLoss, TryNextNode;
    /// The two sides speak no common version of the protocol.
    VersionMismatch = 10, "version_mismatch", Unimplemented, GiveUp;
    /// A defect of the program that answered.
    Internal = 11, "internal", Internal, GiveUp;
}

impl ErrorKind {
    /// Returns the kind of a gRPC code. Codes that no Larder process sends come from the transport:
    /// the connection broke or a deadline passed.
    pub fn from_code(code: Code) -> Self {
        let own = Self::ALL.iter().copied().find(|kind| kind.code() == code);
        own.unwrap_or(match code {
            Code::AlreadyExists | Code::OutOfRange => Self::InvalidArgument,
            Code::Ok => Self::Internal,
            _ => Self::Unavailable,
        })
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = head(&error.message, limits::ERROR_MESSAGE_BYTES_MAX);
        Self::new(error.kind.code(), message)
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let error = Self::new(ErrorKind::from_code(status.code()), status.message());
        error.with_source(status)
    }
}

/// Returns the longest head of `text` of at most `bytes_max` bytes that ends between two
/// characters.
pub(crate) fn head(text: &str, bytes_max: u32) -> &str {
    &text[..text.floor_char_boundary(bytes_max as usize)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_control_plane_and_the_data_plane() {
        for &kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), kind);
            assert_eq!(ErrorKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(ErrorKind::from_number(0), None);
        assert_eq!(ErrorKind::from_number(u16::MAX), None);
    }

    #[test]
    fn no_two_kinds_share_a_code() {
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            assert!(ErrorKind::ALL[..index].iter().all(|other| other.code() != kind.code()));
        }
    }

    #[test]
    fn a_broken_transport_means_the_next_node() {
        for code in [Code::Unknown, Code::Cancelled, Code::DeadlineExceeded] {
            assert_eq!(ErrorKind::from_code(code).advice(), Advice::TryNextNode);
        }
    }

    #[test]
    fn an_error_keeps_kind_and_message_through_a_status() {
        let error = Error::new(ErrorKind::DataChanged, "object a.npy has another etag");
        let error = Error::from(Status::from(error.context("shard 3")));
        assert_eq!(error.kind(), ErrorKind::DataChanged);
        assert_eq!(error.to_string(), "shard 3: object a.npy has another etag");
    }
}
