//! Which callers may change the cluster.
//!
//! A caller must show the cluster's token. A node that was started without a token accepts only
//! callers on its own host. Such a cluster keeps its record in etcd, which may have its own access
//! control.
//!
//! Non-goals: protecting calls that only read.

use std::fmt;
use std::net::SocketAddr;

use larder_base::{Error, ErrorKind, limits};
use larder_wire::control::JOIN_TOKEN_METADATA;
use tonic::metadata::MetadataMap;

use larder_coordinator::JoinToken;

/// A caller that may change the cluster.
#[derive(Debug)]
pub(super) struct Asker {
    /// The name that the caller gives itself.
    by: String,
    /// The address of the caller.
    from: Option<SocketAddr>,
}

impl Asker {
    /// Checks a caller. `token` is the node's, if it has one.
    pub(super) fn entitled(
        token: Option<&JoinToken>,
        metadata: &MetadataMap,
        from: Option<SocketAddr>,
    ) -> Result<Self, Error> {
        match token {
            Some(token) => shows(token, metadata)?,
            None => is_of_this_host(from)?,
        }
        Ok(Self { by: String::new(), from })
    }

    /// Sets the name that the caller gives itself.
    pub(super) fn named(self, asked_by: &str) -> Result<Self, Error> {
        let max = limits::ASKED_BY_BYTES_MAX;
        if asked_by.is_empty() || asked_by.len() > max || asked_by.contains(char::is_control) {
            let message =
                format!("asked_by names the caller in 1 to {max} bytes without control characters");
            let why = Error::new(ErrorKind::InvalidArgument, message);
            audit_stranger(self.from, &why);
            return Err(why);
        }
        Ok(Self { by: asked_by.to_owned(), ..self })
    }

    pub(super) fn name(&self) -> &str {
        &self.by
    }

    /// Returns a request that could be parsed. Audits a request that could not.
    pub(super) fn heard<T>(&self, read: Result<T, Error>, what: &str) -> Result<T, Error> {
        read.inspect_err(|why| self.audit(&format!("{what} that can't be read"), Err(why)))
    }

    /// Writes a request and its outcome to the audit log.
    pub(super) fn audit(&self, words: &str, outcome: Result<(), impl fmt::Display>) {
        let (by, from) = (&self.by, place(self.from));
        match outcome {
            Ok(()) => tracing::info!(target: "larder::audit", "{by} (from {from}) asked: {words}"),
            Err(why) => tracing::info!(
                target: "larder::audit",
                "{by} (from {from}) asked in vain: {words}: {why}"
            ),
        }
    }
}

/// Audits a request for a change by a caller without permission or name.
pub(super) fn audit_stranger(from: Option<SocketAddr>, why: &Error) {
    tracing::info!(target: "larder::audit", "an unknown caller (from {}) asked in vain: {why}", place(from));
}

fn place(from: Option<SocketAddr>) -> String {
    from.map_or("?".to_owned(), |from| from.to_string())
}

fn shows(token: &JoinToken, metadata: &MetadataMap) -> Result<(), Error> {
    let shown = metadata.get_bin(JOIN_TOKEN_METADATA);
    let Some(shown) = shown.and_then(|shown| shown.to_bytes().ok()) else {
        let message = "a call that changes this cluster must show its token; this one shows none";
        return Err(Error::new(ErrorKind::Unauthenticated, message));
    };
    if token.is(&shown) {
        return Ok(());
    }
    let message = "the token of the call is not the token of this cluster";
    Err(Error::new(ErrorKind::Unauthenticated, message))
}

fn is_of_this_host(from: Option<SocketAddr>) -> Result<(), Error> {
    if from.is_some_and(|from| from.ip().to_canonical().is_loopback()) {
        return Ok(());
    }
    let message = "this node was started without a token, so only its own host may change the cluster: run larder there \
                   with --cluster http://127.0.0.1:PORT, or start the nodes with --token-file";
    Err(Error::new(ErrorKind::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use tonic::metadata::BinaryMetadataValue;

    use super::*;

    fn metadata(token: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        let value = BinaryMetadataValue::from_bytes(token.as_bytes());
        metadata.insert_bin(JOIN_TOKEN_METADATA, value);
        metadata
    }

    fn from(address: &str) -> Option<SocketAddr> {
        Some(address.parse().unwrap())
    }

    #[test]
    fn token_is_required_from_every_address() {
        let token = JoinToken::new("0123456789abcdef").unwrap();
        let entitled = |metadata: &MetadataMap, address| {
            Asker::entitled(Some(&token), metadata, from(address)).map(drop)
        };
        entitled(&metadata("0123456789abcdef"), "10.0.0.1:1").unwrap();
        for (shown, says) in [
            (metadata("0123456789abcdeX"), "not the token"),
            (metadata(""), "not the token"),
            (MetadataMap::new(), "shows none"),
        ] {
            let refused = entitled(&shown, "127.0.0.1:1").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
            assert!(refused.message().contains(says), "{refused}");
        }
    }

    #[test]
    fn without_a_token_only_the_own_host_is_accepted() {
        let entitled = |from| Asker::entitled(None, &metadata("whatever it is"), from).map(drop);
        for own in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            entitled(from(own)).unwrap();
        }
        for other in
            [from("10.0.0.1:1"), from("[2001:db8::1]:1"), from("[::ffff:10.0.0.1]:1"), None]
        {
            let refused = entitled(other).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            assert!(refused.message().contains("--token-file"), "{refused}");
        }
    }

    #[test]
    fn caller_name_must_fit_a_line() {
        let asker = || Asker::entitled(None, &MetadataMap::new(), from("127.0.0.1:1")).unwrap();
        assert_eq!(asker().named("ops@host").unwrap().name(), "ops@host");
        for odd in ["", "two\nlines", &"x".repeat(limits::ASKED_BY_BYTES_MAX + 1)] {
            assert_eq!(asker().named(odd).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
