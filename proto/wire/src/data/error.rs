//! The errors of reading a frame.

use std::io;

use larder_base::{Error, ErrorKind};

use super::Kind;

/// Why a frame could not be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The peer closed the connection between two frames.
    #[error("the peer closed the connection")]
    Closed,
    /// The socket's read timeout passed between two frames; nothing was lost, read again.
    #[error("no frame came within the socket's timeout")]
    Idle,
    /// The connection failed, or ended or timed out within a frame.
    #[error("the connection broke within a frame: {0}")]
    Broken(#[source] io::Error),
    /// The first bytes are not those of a frame: another protocol, or a place lost in the stream.
    #[error("not a larder frame: it begins with {found:#010x}")]
    NotAFrame {
        /// The first four bytes as a little-endian number.
        found: u32,
    },
    /// A frame of a kind that this version does not have.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A valid frame where another kind was due.
    #[error("a {found:?} frame came where {expected} was due")]
    Unexpected {
        /// The kind that came.
        found: Kind,
        /// The kind that was due.
        expected: &'static str,
    },
    /// An announced length exceeds the limit of its kind. No memory was taken.
    #[error("{kind:?} announces {what} of {value}, the limit is {limit}")]
    TooLarge {
        /// The frame's kind.
        kind: Kind,
        /// The length.
        what: &'static str,
        /// The number announced.
        value: u64,
        /// The limit of this kind.
        limit: u64,
    },
    /// Header or body changed on the way.
    #[error("{kind:?} frame has checksum {found:#010x}, its bytes give {computed:#010x}")]
    Checksum {
        /// The frame's kind, which may be damaged too.
        kind: Kind,
        /// The checksum in the frame.
        found: u32,
        /// The checksum of the bytes received.
        computed: u32,
    },
    /// The bytes arrived as sent but break a rule of the format.
    #[error("malformed {kind:?} frame: {what}")]
    Malformed {
        /// The frame's kind.
        kind: Kind,
        /// The rule.
        what: &'static str,
    },
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        let kind = match error {
            WireError::Closed | WireError::Idle | WireError::Broken(_) => ErrorKind::Unavailable,
            WireError::Checksum { .. } => ErrorKind::DataLoss,
            WireError::NotAFrame { .. } | WireError::UnknownKind(_) => ErrorKind::VersionMismatch,
            WireError::Unexpected { .. }
            | WireError::TooLarge { .. }
            | WireError::Malformed { .. } => ErrorKind::InvalidArgument,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}
