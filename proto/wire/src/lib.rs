//! The network contract that nodes and clients share.
//!
//! - [`control`]: the gRPC schema of the control plane (package `larder.v1`).
//! - [`data`]: the frames of the data plane, over TCP and over the unix socket.
//! - [`status`]: errors as gRPC statuses, and back.
//!
//! Thread rule: everything is a plain value, `Send + Sync`, without locks or globals.
//!
//! Non-goals: no sockets, threads, clocks or runtime. Node and client provide those.

pub mod control;
pub mod data;
pub mod status;
