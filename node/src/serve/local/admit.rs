//! Admits prefixes: processes of a private node's owner tell it which prefixes to read.
//!
//! They could start a node on those prefixes themselves, so this grants no new access. Other users
//! are not admitted, whatever the mode of the socket is.

use larder_base::{Error, ErrorKind};
use larder_dataset::OriginUri;
use larder_wire::data::{Admit, Admitted};
use nix::unistd::geteuid;

use crate::serve::Context;
use crate::serve::peer::Peer;

/// Adds the owner's prefix. Returns how to reach the node.
pub(super) fn admit(context: &Context, peer: &Peer, wanted: &Admit) -> Result<Admitted, Error> {
    let denied = |message: &str| Err(Error::new(ErrorKind::PermissionDenied, message));
    if !context.shared.config.private() {
        return denied("this node was given its prefixes at its start; start one with --private");
    }
    if peer.user() != Some(geteuid().as_raw()) {
        return denied("this node serves the processes of another user; start one of your own");
    }
    if !wanted.prefix.is_empty() {
        let prefix = OriginUri::parse(&wanted.prefix)
            .map_err(|why| Error::new(ErrorKind::InvalidArgument, why.to_string()))?;
        context.shared.catalog.admit(&prefix)?;
        tracing::info!(%prefix, "admitted");
    }
    Ok(Admitted {
        ticket: context.ticket,
        memory_bytes: context.shared.cache.usage().limit_bytes,
        pid: std::process::id(),
        control: context.control_address.clone(),
    })
}
