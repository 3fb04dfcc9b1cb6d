//! The network contract that nodes and clients share.
//!
//! - [`limits`]: every bound on a frame, queue, count or wait of wire, node and client, in one
//!   place.
//! - [`Error`]: the failures between processes, by kinds that say how to react.
//! - [`control`]: the gRPC schema of the control plane (package `larder.v1`).
//! - [`data`]: the frames of the data plane, over TCP and over the unix socket.
//! - [`ring`]: which members own which shards; every process computes the same answer.
//! - [`placement`]: the ring with the exceptions that a plan made to it, as served to clients.
//! - [`parse_size`]: sizes as users type them; [`printable`]: outside text made safe for terminals.
//!
//! Thread rule: everything is a plain value, `Send + Sync`, without locks or globals.
//!
//! Non-goals: no sockets, threads, clocks or runtime. Node and client provide those.

pub mod limits;

mod address;
mod error;
mod printable;
mod size;

pub mod control;
pub mod data;
pub mod placement;
pub mod ring;

pub use address::data_address;
pub use error::{Advice, Error, ErrorKind};
pub use placement::Placement;
pub use printable::{printable, printable_line};
pub use ring::{Member, Ring, Scheme};
pub use size::{SizeError, parse_size};
