//! The control plane: gRPC clients and servers of `larder.v1.Node`, for operators of
//! `larder.v1.Admin`, and among nodes of `larder.v1.Coordinator`.
//!
//! The schema is `schema/larder/v1/`. The code generated from it is checked in, so that a build
//! needs no protobuf compiler. A test in `tests/tests/schema.rs` compares the two and, with
//! `LARDER_BLESS=1`, writes the code anew. Fields of type `bytes` are [`bytes::Bytes`]: a received
//! manifest is not copied out of its message. Messages that the admin tool prints are written as
//! JSON by serde.
//!
//! Non-goals: no channels, servers, retries or interceptors.

mod convert;
mod json;
mod generated {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes,
        unused_qualifications,
        unreachable_pub,
        reason = "made from the schema and compared with it byte for byte"
    )]

    include!("control/generated.rs");
}

/// The metadata of a call that carries the ticket of a private node, as bytes.
pub const TICKET_METADATA: &str = "larder-ticket-bin";

/// The metadata of a call by a node or an operator that carries the cluster's token, as bytes.
pub const JOIN_TOKEN_METADATA: &str = "larder-join-token-bin";

/// The greatest generation of a coordinator that the sender knows, in decimal.
pub const GENERATION_METADATA: &str = "larder-generation";

/// The coordinator's address, in the answer of a node that is not the coordinator:
/// `http://host:port`.
pub const COORDINATOR_METADATA: &str = "larder-coordinator";

pub use convert::{boot_id, page_size, shard_id, snapshot_id, ticket};
pub use generated::*;
