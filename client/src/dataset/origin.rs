//! What can be wrong when a dataset is opened without a node, sorted by what the user can do.

use larder_dataset::DatasetError;

use crate::{DatasetName, Error, ErrorKind};

/// The client's error for a dataset that could not be opened from the origin.
pub(super) fn open_error(name: &DatasetName, error: DatasetError) -> Error {
    origin_error(format!("cannot open {}", name.reference.uri()), error)
}

/// The client's error for what could not be done with a dataset on the origin.
pub(crate) fn origin_error(what: String, error: DatasetError) -> Error {
    let kind = ErrorKind::from(&error);
    let error = Error::new(kind, what).with_source(error);
    match kind {
        ErrorKind::OriginUnavailable => {
            error.hint("larder doctor says what of the origin can be reached")
        }
        _ => error,
    }
}
