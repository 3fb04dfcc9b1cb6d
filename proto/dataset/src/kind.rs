//! Maps the origin's errors to kinds: the same through a node as without one.

use larder_base::ErrorKind;

use crate::{DatasetError, FetchError, OriginError};

/// Maps a refused or failed request to the origin.
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

/// Maps a failed read of a snapshot. A missing object counts as changed, like one with other bytes:
/// either way the snapshot is lost.
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

/// Maps a dataset that cannot be opened.
impl From<&DatasetError> for ErrorKind {
    fn from(error: &DatasetError) -> Self {
        match error {
            DatasetError::Origin(error) => error.into(),
            DatasetError::Fetch(error) => error.into(),
            DatasetError::NoSuchVersion { .. }
            | DatasetError::NoManifest { .. }
            | DatasetError::NothingToIndex { .. } => Self::NotFound,
            DatasetError::TagContended { .. } => Self::ResourceExhausted,
            // Another node would read the same manifest: index the dataset again.
            DatasetError::Manifest { .. } | DatasetError::Moved { .. } => Self::DataChanged,
            _ => Self::InvalidArgument,
        }
    }
}
