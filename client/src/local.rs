//! Rows from a node on the same host: its sealed extents, mapped into this process.
//!
//! - [`Slots`]: which shards are mapped. Looked up once for each shard of a batch, without a lock
//!   or a system call.
//! - [`Socket`]: the session on a node's unix socket. Asks for shards, takes in what comes, and
//!   drops maps that the node wants back once nothing uses them.
//! - [`Lease`]: says to a node that this process uses it, and which prefixes it may read.
//! - [`map_manifest`]: the one map that is made by a call of its own.
//! - [`who_answers`]: tells which node a socket is of, and so that it is on this host.
//!
//! Nobody waits here for a shard that is not mapped: it is asked for, and until it is there its
//! rows come over a data connection.
//!
//! Thread rule: `Slots` is shared by everybody; each socket has one thread of its own, which ends
//! with it. A forked child drops the maps it inherited and opens sessions of its own: leases are
//! those of a process.
//! Non-goals: which node is asked for what (see `fetch`).

mod listener;
mod manifest;
mod session;
mod slots;
mod socket;

use std::path::Path;

use larder_base::BootId;

use crate::remote::Failure;

pub(crate) use manifest::map_manifest;
pub(crate) use session::Lease;
pub(crate) use slots::Slots;
pub(crate) use socket::Socket;

/// The node that listens at `path`, by its name and the id of its present start. Waits no longer
/// than two seconds for its answer.
pub(crate) fn who_answers(path: &Path) -> Result<(String, BootId), Failure> {
    let (_, node) = session::Session::connect_any(path)?;
    Ok((node.node_id, node.boot_id))
}
