//! Maps errors of the contract crates to the one error that crosses the wire.

use larder_base::{Error, ErrorKind};
use larder_dataset::{DatasetError, FetchError, OriginError};
use larder_extent::ExtentError;

/// Maps an error of opening a dataset.
pub(crate) fn of_dataset(error: DatasetError) -> Error {
    let hint = error.hint();
    Error::new(ErrorKind::from(&error), error.to_string()).with_hint(hint).with_source(error)
}

/// Maps an error of reaching an origin.
pub(crate) fn of_origin(error: OriginError) -> Error {
    Error::new(ErrorKind::from(&error), error.to_string()).with_source(error)
}

/// Maps an error of reading bytes.
pub(crate) fn of_fetch(error: FetchError) -> Error {
    Error::new(ErrorKind::from(&error), error.to_string()).with_source(error)
}

/// Maps an error of an extent. The caller is at fault, or the kernel refused.
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
