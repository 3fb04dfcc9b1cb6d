//! Rows from a node over its data connections.
//!
//! - [`Connection`]: one socket that said HELLO. One gather at a time goes over it, and its rows
//!   are received straight into the batch.
//! - [`Pool`]: the few connections kept to one node. A read takes one, or waits for one.
//! - [`Failure`]: what can go wrong with a node, by what is to be done about it.
//!
//! Thread rule: a connection belongs to the thread that took it out of the pool; the pool's lock is
//! held for the taking and giving back only. No runtime, no threads here.
//! Non-goals: which node is asked, and what happens after a failure (see `fetch`).

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
pub(crate) use pool::{Pool, Slot};
pub(crate) use receive::Batch;
