//! What can be wrong when a dataset is opened without a node, sorted by what the user can do.

use larder_dataset::{DatasetError, FetchError, OriginError};

use crate::{DatasetName, Error, ErrorKind};

/// The client's error for a dataset that could not be opened from the origin.
pub(super) fn open_error(name: &DatasetName, error: DatasetError) -> Error {
    let kind = match &error {
        DatasetError::Origin(error) => origin_kind(error),
        DatasetError::Fetch(error) => fetch_kind(error),
        DatasetError::NoSuchVersion { .. } | DatasetError::NothingToIndex { .. } => {
            ErrorKind::NotFound
        }
        DatasetError::TagContended { .. } => ErrorKind::ResourceExhausted,
        DatasetError::Manifest { .. } => ErrorKind::DataLoss,
        _ => ErrorKind::InvalidArgument,
    };
    let error =
        Error::new(kind, format!("cannot open {}", name.reference.uri())).with_source(error);
    match kind {
        ErrorKind::OriginUnavailable => {
            error.hint("larder doctor says what of the origin can be reached")
        }
        _ => error,
    }
}

fn origin_kind(error: &OriginError) -> ErrorKind {
    match error {
        OriginError::NotFound { .. } => ErrorKind::NotFound,
        OriginError::Denied { .. } | OriginError::Credentials { .. } => ErrorKind::PermissionDenied,
        OriginError::Failed { .. } => ErrorKind::OriginUnavailable,
        OriginError::Conflict { .. } => ErrorKind::DataChanged,
        _ => ErrorKind::InvalidArgument,
    }
}

fn fetch_kind(error: &FetchError) -> ErrorKind {
    match error {
        error if error.is_retryable() => ErrorKind::OriginUnavailable,
        FetchError::Changed { .. } => ErrorKind::DataChanged,
        FetchError::NotFound { .. } => ErrorKind::NotFound,
        FetchError::Denied { .. } => ErrorKind::PermissionDenied,
        _ => ErrorKind::Internal,
    }
}
