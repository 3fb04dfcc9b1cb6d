//! Maps the sealed extents of a node on the same host.
//!
//! - [`Slots`]: the mapped shards. A batch looks each shard up once, without a lock or a system
//!   call.
//! - [`Socket`]: the session on a node's unix socket. It asks for shards, receives maps, and drops
//!   a recalled map when its last reader is done.
//! - [`Lease`]: tells a node that this process uses it, and which prefixes it may read.
//! - [`map_manifest`], [`map_leaf`]: map a manifest or a leaf, in a session of their own.
//! - [`who_answers`]: asks a socket for its node. An answer proves that the node is on this host.
//!
//! No read waits for a shard that is not mapped. The client asks for the shard, and meanwhile its
//! rows come over a data connection.
//!
//! Thread rule: all threads share `Slots`. Each socket has its own thread, which ends with it. A
//! forked child drops inherited maps and opens its own sessions, because a lease belongs to one
//! process. Non-goals: choosing the node to ask (see `fetch`).

mod listener;
mod manifest;
mod session;
mod slots;
mod socket;

use std::path::Path;

use larder_base::BootId;

use crate::remote::Failure;

pub(crate) use manifest::{map_leaf, map_manifest};
pub(crate) use session::Lease;
pub(crate) use slots::Slots;
pub(crate) use socket::Socket;

/// The id and the current start of the node that listens at `path`. Waits at most two seconds.
pub(crate) fn who_answers(path: &Path) -> Result<(String, BootId), Failure> {
    let (_, node) = session::Session::connect_any(path)?;
    Ok((node.node_id, node.boot_id))
}
