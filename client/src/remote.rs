//! Reads rows from a node over its data connections.
//!
//! - [`Connection`]: one socket after its HELLO. It carries one gather at a time, and receives its
//!   rows straight into the batch.
//! - [`Pool`]: the few connections to one node. A read takes one, or waits for one.
//! - [`Failure`]: a node's failure, by the reaction to it.
//!
//! Thread rule: a connection belongs to the thread that took it from the pool. The pool's lock is
//! held only to take or return one. No runtime, and no threads of its own. Non-goals: choosing the
//! node, and the reaction to a failure (see `fetch`).

mod connection;
mod failure;
mod job;
mod placed;
mod pool;
mod receive;
mod stream;

pub(crate) use connection::{Connection, Received, client_name};
pub(crate) use failure::Failure;
pub(crate) use job::{Job, Progress, Wanted};
pub(crate) use placed::{Lengths, Placed};
pub(crate) use pool::{ConnectionSlot, Pool};
pub(crate) use receive::Batch;
