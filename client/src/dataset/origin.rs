//! What can be wrong when a dataset is opened, sorted by what the user can do.

use larder_dataset::{DatasetError, OriginUri};

use crate::{DatasetName, Error, ErrorKind};

/// The client's error for a dataset that could not be opened from the origin.
pub(super) fn open_error(name: &DatasetName, error: DatasetError) -> Error {
    let uri = name.reference.uri();
    let kind = ErrorKind::from(&error);
    with_hint(Error::new(kind, format!("cannot open {uri}")).with_source(error), uri)
}

/// The client's error for a prefix that could not be indexed.
pub(crate) fn index_error(prefix: &OriginUri, error: DatasetError) -> Error {
    let kind = ErrorKind::from(&error);
    with_hint(Error::new(kind, format!("cannot index {prefix}")).with_source(error), prefix)
}

/// The error with what to do about it, where nothing is said of that yet: a node's errors bring no hints, and
/// are those of the origin that it asked.
pub(super) fn with_hint(error: Error, uri: &OriginUri) -> Error {
    if error.advice_text().is_some() || error.to_string().contains("larder dataset") {
        return error;
    }
    match error.kind() {
        ErrorKind::OriginUnavailable => {
            error.hint(format!("larder doctor {uri} says what of the origin can be reached"))
        }
        ErrorKind::PermissionDenied => {
            error.hint(format!("larder doctor {uri} says which rights are missing"))
        }
        ErrorKind::NotFound => {
            error.hint(format!("check the address; larder doctor {uri} says what is there"))
        }
        ErrorKind::DataChanged => error.hint(format!("index it again: larder dataset index {uri}")),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_node_gets_the_hint_that_it_has_without_one_and_keeps_its_own() {
        let uri = OriginUri::parse("s3://bucket/data").unwrap();
        let hint = |error| with_hint(error, &uri).advice_text().map(str::to_owned);
        for kind in [ErrorKind::OriginUnavailable, ErrorKind::PermissionDenied, ErrorKind::NotFound]
        {
            let found = hint(Error::new(kind, "the call to node a failed")).unwrap();
            assert!(found.contains("larder doctor s3://bucket/data"), "{found}");
        }
        let changed = Error::new(ErrorKind::DataChanged, "the call to node a failed");
        assert_eq!(hint(changed).unwrap(), "index it again: larder dataset index s3://bucket/data");
        let own = Error::new(ErrorKind::PermissionDenied, "no").hint("ask for it");
        assert_eq!(hint(own).unwrap(), "ask for it");
        let said = Error::new(ErrorKind::NotFound, "no tag: see 'larder dataset ls'");
        assert_eq!(hint(said), None);
    }
}
