//! Adds hints to errors without one. Errors of nodes have no hints, and often come from the origin.

use larder_dataset::OriginUri;

use crate::{Cluster, Error, ErrorKind};

/// The error of opening or indexing `uri`, with a hint.
pub(crate) fn of_opening(error: Error, uri: &OriginUri) -> Error {
    if error.advice_text().is_some() {
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

/// The error of reading rows of an open dataset, with a hint.
pub(crate) fn of_reading(error: Error, uri: &OriginUri) -> Error {
    if error.advice_text().is_some() {
        return error;
    }
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::NotFound => {
            error.hint(format!("open the dataset again; larder doctor {uri} says what is there"))
        }
        ErrorKind::ResourceExhausted => error.hint(
            "larder node show says how full a node is: give it more --memory, or read less at once",
        ),
        ErrorKind::Unavailable => error.hint(
            "larder doctor says which nodes answer, given the same LARDER_CLUSTER or --cluster",
        ),
        ErrorKind::DataLoss => error.hint(format!(
            "larder dataset verify {uri} says what differs; index it again if its files were meant to change"
        )),
        ErrorKind::VersionMismatch => {
            error.hint("run the same version of Larder here and on the nodes")
        }
        _ => of_opening(error, uri),
    }
}

/// Adds a hint about the credentials of this host's node, if the origin refuses it.
pub(crate) fn of_node(error: Error, cluster: &Cluster) -> Error {
    match cluster.host() {
        Some(node) if error.kind() == ErrorKind::PermissionDenied => error.hint(format!(
            "the cache of this host (pid {}) reads with the credentials that the process which started it had; \
             if yours are newer, set LARDER_HOST_NODE to a name of its own for this job",
            node.pid()
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri() -> OriginUri {
        OriginUri::parse("s3://bucket/data").unwrap()
    }

    #[test]
    fn node_error_keeps_its_hint_or_gets_one_for_its_kind() {
        let hint = |error| of_opening(error, &uri()).advice_text().map(str::to_owned);
        for kind in [ErrorKind::OriginUnavailable, ErrorKind::PermissionDenied, ErrorKind::NotFound]
        {
            let found = hint(Error::new(kind, "the call to node a failed")).unwrap();
            assert!(found.contains("larder doctor s3://bucket/data"), "{found}");
        }
        let changed = Error::new(ErrorKind::DataChanged, "the call to node a failed");
        assert_eq!(hint(changed).unwrap(), "index it again: larder dataset index s3://bucket/data");
        let own = Error::new(ErrorKind::PermissionDenied, "no").hint("ask for it");
        assert_eq!(hint(own).unwrap(), "ask for it");
    }

    #[test]
    fn read_errors_have_hints_except_invalid_argument_and_internal() {
        for &kind in ErrorKind::ALL {
            let error = of_reading(Error::new(kind, "node a answered"), &uri());
            let own = matches!(kind, ErrorKind::InvalidArgument | ErrorKind::Internal);
            assert_eq!(error.advice_text().is_none(), own, "{error:?}");
        }
        let own = Error::new(ErrorKind::DataLoss, "no").hint("look");
        assert_eq!(of_reading(own, &uri()).advice_text(), Some("look"));
    }
}
