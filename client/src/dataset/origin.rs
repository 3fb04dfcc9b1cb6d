//! What can be wrong when a dataset is opened, sorted by what the user can do.

use larder_dataset::{DatasetError, OriginUri};

use crate::{DatasetName, Error, ErrorKind};

/// The client's error for a dataset that could not be opened from the origin.
pub(super) fn open_error(name: &DatasetName, error: DatasetError) -> Error {
    let uri = name.reference.uri();
    let (kind, hint) = (ErrorKind::from(&error), error.hint());
    let failed = Error::new(kind, format!("cannot open {uri}")).with_source(error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed.hint_at_opening(uri),
    }
}

/// The client's error for a prefix that could not be indexed.
pub(crate) fn index_error(prefix: &OriginUri, error: DatasetError) -> Error {
    let kind = ErrorKind::from(&error);
    let error = Error::new(kind, format!("cannot index {prefix}")).with_source(error);
    error.hint_at_opening(prefix)
}
