//! Errors as gRPC statuses, and back.
//!
//! These are functions because both types belong to other crates.

use larder_base::{Error, ErrorKind, head, limits};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::{Code, Status};

/// Most bytes of an error's hint on the wire: a command with two URIs in it. Longer ones are cut.
const ERROR_HINT_BYTES_MAX: u32 = 2 << 10;

/// The metadata of a failed call that holds the hint, as UTF-8 bytes.
const HINT_METADATA: &str = "larder-hint-bin";

/// Returns the status that carries an error's kind, message and hint.
#[expect(clippy::needless_pass_by_value, reason = "callers write `map_err(to_status)`")]
pub fn to_status(error: Error) -> Status {
    let message = head(error.message(), limits::ERROR_MESSAGE_BYTES_MAX);
    let mut metadata = MetadataMap::new();
    if let Some(hint) = error.hint() {
        let hint = head(hint, ERROR_HINT_BYTES_MAX);
        metadata.insert_bin(HINT_METADATA, BinaryMetadataValue::from_bytes(hint.as_bytes()));
    }
    Status::with_metadata(code(error.kind()), message, metadata)
}

/// Returns the error behind a status, which becomes its source.
pub fn from_status(status: Status) -> Error {
    let error = Error::new(kind(status.code()), status.message()).with_hint(hint(&status));
    error.with_source(status)
}

/// Returns the hint that a status carries, if any.
pub fn hint(status: &Status) -> Option<String> {
    let bytes = status.metadata().get_bin(HINT_METADATA)?.to_bytes().ok()?;
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    Some(head(&text, ERROR_HINT_BYTES_MAX).to_owned())
}

/// The gRPC code of a kind. No two kinds share one.
pub const fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::OriginUnavailable => Code::Aborted,
        ErrorKind::DataChanged => Code::FailedPrecondition,
        ErrorKind::DataLoss => Code::DataLoss,
        ErrorKind::VersionMismatch => Code::Unimplemented,
        ErrorKind::Internal => Code::Internal,
    }
}

/// The kind behind a gRPC code. The transport sends the codes that no Larder process sends: the
/// connection broke or a deadline passed.
pub fn kind(of: Code) -> ErrorKind {
    let own = ErrorKind::ALL.iter().copied().find(|kind| code(*kind) == of);
    own.unwrap_or(match of {
        Code::AlreadyExists | Code::OutOfRange => ErrorKind::InvalidArgument,
        Code::Ok => ErrorKind::Internal,
        _ => ErrorKind::Unavailable,
    })
}

#[cfg(test)]
mod tests {
    use larder_base::Advice;

    use super::*;

    #[test]
    fn every_kind_survives_the_control_plane() {
        for &each in ErrorKind::ALL {
            assert_eq!(kind(code(each)), each);
        }
    }

    #[test]
    fn no_two_kinds_share_a_code() {
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            assert!(ErrorKind::ALL[..index].iter().all(|other| code(*other) != code(*kind)));
        }
    }

    #[test]
    fn a_broken_transport_means_the_next_node() {
        for code in [Code::Unknown, Code::Cancelled, Code::DeadlineExceeded] {
            assert_eq!(kind(code).advice(), Advice::TryNextNode);
        }
    }

    #[test]
    fn an_error_keeps_kind_message_and_hint_through_a_status() {
        let error = Error::new(ErrorKind::DataChanged, "object a.npy has another etag");
        let error =
            error.with_hint("index it again: larder dataset index s3://bucket/ä".to_owned());
        let error = from_status(to_status(error.context("shard 3")));
        assert_eq!(error.kind(), ErrorKind::DataChanged);
        assert_eq!(error.to_string(), "shard 3: object a.npy has another etag");
        assert_eq!(error.hint(), Some("index it again: larder dataset index s3://bucket/ä"));
    }
}
