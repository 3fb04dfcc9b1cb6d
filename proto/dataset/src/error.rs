//! The error of indexing and opening a dataset, and the kinds of the origin's errors. A failure has
//! the same kind through a node as without one.

use larder_base::ErrorKind;

use crate::{BuildError, DatasetRef, FetchError, ManifestError, OriginError, OriginUri, UriError};

/// Why a dataset could not be indexed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The request to the origin failed.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The header of a file could not be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A file is damaged, or of another format than its name says.
    #[error("{object}: {field}: {why}")]
    File {
        /// The object.
        object: OriginUri,
        /// The field of its header.
        field: String,
        /// The mistake in it.
        why: String,
    },
    /// No object under the prefix can be used as samples.
    #[error("{prefix} can't be indexed: {why}")]
    NothingToIndex {
        /// The prefix.
        prefix: OriginUri,
        /// The objects found there.
        why: String,
    },
    /// The files do not make one dataset.
    #[error("the files under {prefix} do not fit together: {why}")]
    Inconsistent {
        /// The prefix.
        prefix: OriginUri,
        /// The difference, and the remedy.
        why: String,
    },
    /// An option is out of its range.
    #[error("{option}: {why}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its allowed values.
        why: String,
    },
    /// The manifest would exceed a limit.
    #[error("{prefix} can't be indexed: {source}")]
    Build {
        /// The prefix.
        prefix: OriginUri,
        /// The limit that was exceeded.
        source: BuildError,
    },
    /// The manifest is damaged.
    #[error("{object}: {source}")]
    Manifest {
        /// Its address.
        object: OriginUri,
        /// The damage.
        source: ManifestError,
    },
    /// A tag does not point to a manifest of this dataset.
    #[error("{object}: {why}")]
    Tag {
        /// The address of the tag.
        object: OriginUri,
        /// The mistake in it.
        why: String,
    },
    /// There is no such tag or snapshot.
    #[error("{dataset} has no {what}")]
    NoSuchVersion {
        /// The dataset.
        dataset: OriginUri,
        /// The tag or snapshot.
        what: String,
    },
    /// There is no manifest under the given address.
    #[error("there is no manifest of {dataset} under {home}")]
    NoManifest {
        /// The dataset, and its version.
        dataset: DatasetRef,
        /// The given address.
        home: OriginUri,
    },
    /// The manifest describes data that lay elsewhere when it was indexed.
    #[error("{object} is not the manifest of {opened}: it was made of the data at {indexed}")]
    Moved {
        /// The manifest.
        object: OriginUri,
        /// The address of the data when it was indexed.
        indexed: OriginUri,
        /// The address of the data now.
        opened: OriginUri,
    },
    /// Opens would not find a manifest in the cache, since they look beside the data first.
    #[error("{tag} names another snapshot, which opens find before one in the cache")]
    HiddenInCache {
        /// The tag beside the data.
        tag: OriginUri,
        /// The prefix of the data.
        prefix: OriginUri,
    },
    /// Other processes keep moving the tag.
    #[error(
        "{object} was moved by another process {attempts} times while it was written: try again"
    )]
    TagContended {
        /// The address of the tag.
        object: OriginUri,
        /// The number of attempts.
        attempts: usize,
    },
    /// The prefix has no manifest, and its process indexes no more at once.
    #[error("{prefix} has no manifest, and other prefixes are being indexed: try again")]
    OthersIndexed {
        /// The prefix.
        prefix: OriginUri,
    },
    /// An address is malformed.
    #[error(transparent)]
    Uri(#[from] UriError),
}

impl DatasetError {
    /// Returns the user's remedy, if it is known. The message does not contain it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Origin(error) => error.hint(),
            Self::NoSuchVersion { dataset, .. } => Some(format!(
                "see its tags: larder dataset ls {dataset}; make one: larder dataset index {dataset} \
                 --tag TAG"
            )),
            Self::NoManifest { dataset, home } => {
                let (uri, tag) = (dataset.uri(), dataset.tag());
                Some(format!(
                    "correct that address, or index the dataset into it: larder dataset index {uri} \
                     --manifest {home} --tag {tag}"
                ))
            }
            Self::Moved { indexed, opened, .. } => Some(format!(
                "if it was moved or copied, index it again: larder dataset index {opened}; if both \
                 are one place, open it as {indexed}"
            )),
            Self::HiddenInCache { prefix, .. } => Some(format!(
                "give the new manifest a place of its own, and open the dataset with it: larder \
                 dataset index {prefix} --manifest URI"
            )),
            _ => None,
        }
    }
}

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
            OriginError::NoRoom { .. } | OriginError::NoDescriptor { .. } => {
                Self::ResourceExhausted
            }
            OriginError::Conflict { .. }
            | OriginError::Busy { .. }
            | OriginError::Failed { .. } => Self::OriginUnavailable,
        }
    }
}

/// Maps a failed read of a snapshot. A missing object counts as changed, like one with other bytes.
/// One that has not changed and can't be decoded is damaged.
impl From<&FetchError> for ErrorKind {
    fn from(error: &FetchError) -> Self {
        match error {
            FetchError::Changed { .. } | FetchError::Origin(OriginError::NotFound { .. }) => {
                Self::DataChanged
            }
            FetchError::Damaged { .. } => Self::DataLoss,
            FetchError::Origin(OriginError::Denied { .. }) => Self::PermissionDenied,
            FetchError::Origin(OriginError::NoDescriptor { .. }) => Self::ResourceExhausted,
            FetchError::Origin(OriginError::Unsupported { .. }) => Self::InvalidArgument,
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
            DatasetError::TagContended { .. } | DatasetError::OthersIndexed { .. } => {
                Self::ResourceExhausted
            }
            // Another node would read the same manifest: index the dataset again.
            DatasetError::Manifest { .. } | DatasetError::Moved { .. } => Self::DataChanged,
            DatasetError::File { .. } => Self::DataLoss,
            _ => Self::InvalidArgument,
        }
    }
}
