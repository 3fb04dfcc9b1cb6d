//! Turns what the contracts' errors say into the one error that crosses the wire.

use larder_dataset::{DatasetError, FetchError, OriginError};
use larder_extent::ExtentError;
use larder_wire::{Error, ErrorKind};

/// Why a dataset can't be opened.
pub(crate) fn of_dataset(error: DatasetError) -> Error {
    let kind = match &error {
        DatasetError::Origin(origin) => kind_of_origin(origin),
        DatasetError::Fetch(fetch) => kind_of_fetch(fetch),
        DatasetError::NoSuchVersion { .. } | DatasetError::NothingToIndex { .. } => {
            ErrorKind::NotFound
        }
        DatasetError::TagContended { .. } => ErrorKind::ResourceExhausted,
        _ => ErrorKind::InvalidArgument,
    };
    Error::new(kind, error.to_string()).with_source(error)
}

/// Why an origin can't be reached.
pub(crate) fn of_origin(error: OriginError) -> Error {
    Error::new(kind_of_origin(&error), error.to_string()).with_source(error)
}

/// Why bytes could not be read.
pub(crate) fn of_fetch(error: FetchError) -> Error {
    Error::new(kind_of_fetch(&error), error.to_string()).with_source(error)
}

/// Why there is no extent: our own doing, or the kernel's.
pub(crate) fn of_extent(error: ExtentError) -> Error {
    let kind = match error {
        ExtentError::Os { .. } => ErrorKind::ResourceExhausted,
        ExtentError::TooLarge { .. }
        | ExtentError::TooManyRegions { .. }
        | ExtentError::BadRegion { .. }
        | ExtentError::TooMuchHashing { .. } => ErrorKind::InvalidArgument,
        _ => ErrorKind::Internal,
    };
    let message = match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    Error::new(kind, message).with_source(error)
}

fn kind_of_origin(error: &OriginError) -> ErrorKind {
    match error {
        OriginError::Credentials { .. } | OriginError::Denied { .. } => ErrorKind::PermissionDenied,
        OriginError::NotFound { .. } => ErrorKind::NotFound,
        OriginError::Settings { .. }
        | OriginError::TooLarge { .. }
        | OriginError::TooMany { .. }
        | OriginError::Unsupported { .. } => ErrorKind::InvalidArgument,
        OriginError::Conflict { .. } | OriginError::Failed { .. } => ErrorKind::OriginUnavailable,
    }
}

/// An object that is gone is as changed as one that has other bytes: the snapshot can't be had.
fn kind_of_fetch(error: &FetchError) -> ErrorKind {
    match error {
        FetchError::Changed { .. } | FetchError::NotFound { .. } => ErrorKind::DataChanged,
        FetchError::Denied { .. } => ErrorKind::PermissionDenied,
        FetchError::Stopped { .. } => ErrorKind::Internal,
        FetchError::Truncated { .. }
        | FetchError::Overlong { .. }
        | FetchError::NotAsAsked { .. }
        | FetchError::Failed { .. } => ErrorKind::OriginUnavailable,
    }
}
