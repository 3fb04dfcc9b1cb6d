//! What an origin's errors mean to whoever asked: the same through a node as without one.

use larder_base::ErrorKind;

use crate::{DatasetError, FetchError, OriginError};

/// Why the origin refused, or could not be asked.
impl From<&OriginError> for ErrorKind {
    fn from(error: &OriginError) -> Self {
        match error {
            OriginError::Credentials { .. } | OriginError::Denied { .. } => Self::PermissionDenied,
            OriginError::NotFound { .. } => Self::NotFound,
            OriginError::Settings { .. }
            | OriginError::Loop { .. }
            | OriginError::TooLarge { .. }
            | OriginError::TooMany { .. }
            | OriginError::Unsupported { .. } => Self::InvalidArgument,
            OriginError::NoRoom { .. } => Self::ResourceExhausted,
            OriginError::Conflict { .. } | OriginError::Failed { .. } => Self::OriginUnavailable,
        }
    }
}

/// Why bytes of a snapshot could not be read. An object that is gone is as changed as one that has
/// other bytes: the snapshot can't be had.
impl From<&FetchError> for ErrorKind {
    fn from(error: &FetchError) -> Self {
        match error {
            FetchError::Changed { .. } | FetchError::Origin(OriginError::NotFound { .. }) => {
                Self::DataChanged
            }
            FetchError::Origin(OriginError::Denied { .. }) => Self::PermissionDenied,
            FetchError::Stopped { .. } => Self::Internal,
            FetchError::Truncated { .. }
            | FetchError::Overlong { .. }
            | FetchError::NotAsAsked { .. }
            | FetchError::Origin(_) => Self::OriginUnavailable,
        }
    }
}

/// Why a dataset can't be opened.
impl From<&DatasetError> for ErrorKind {
    fn from(error: &DatasetError) -> Self {
        match error {
            DatasetError::Origin(error) => error.into(),
            DatasetError::Fetch(error) => error.into(),
            DatasetError::NoSuchVersion { .. }
            | DatasetError::NoManifest { .. }
            | DatasetError::NothingToIndex { .. } => Self::NotFound,
            DatasetError::TagContended { .. } => Self::ResourceExhausted,
            // Another node would read the same one: index the dataset again.
            DatasetError::Manifest { .. } | DatasetError::Moved { .. } => Self::DataChanged,
            _ => Self::InvalidArgument,
        }
    }
}
