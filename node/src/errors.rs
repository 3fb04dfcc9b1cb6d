//! Turns what the contracts' errors say into the one error that crosses the wire.

use larder_base::{Error, ErrorKind};
use larder_dataset::{DatasetError, FetchError, OriginError};
use larder_extent::ExtentError;

/// Why a dataset can't be opened.
pub(crate) fn of_dataset(error: DatasetError) -> Error {
    let hint = error.hint();
    Error::new(ErrorKind::from(&error), error.to_string()).with_hint(hint).with_source(error)
}

/// Why an origin can't be reached.
pub(crate) fn of_origin(error: OriginError) -> Error {
    Error::new(ErrorKind::from(&error), error.to_string()).with_source(error)
}

/// Why bytes could not be read.
pub(crate) fn of_fetch(error: FetchError) -> Error {
    Error::new(ErrorKind::from(&error), error.to_string()).with_source(error)
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
