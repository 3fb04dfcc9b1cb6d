//! The control plane: gRPC clients and servers of `larder.v1.Node`, for operators `larder.v1.Admin` and, among nodes,
//! `larder.v1.Coordinator`.
//!
//! The schema is `schema/larder/v1/`. What is made from it is checked in, so that neither a
//! build nor a reader needs a protobuf compiler; a test in `tests/tests/schema.rs` holds the two
//! together and, with `LARDER_BLESS=1`, writes the code anew. Fields of type `bytes` are
//! [`bytes::Bytes`]: a received manifest is not copied out of its message.
//!
//! Non-goals: no channels, servers, retries or interceptors.

mod convert;
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

/// The metadata of a call in which the ticket of a private node is shown, as bytes.
pub const TICKET_METADATA: &str = "larder-ticket-bin";

/// The metadata of a call among nodes, or of an operator's, in which the cluster's token is shown, as bytes.
pub const JOIN_TOKEN_METADATA: &str = "larder-join-token-bin";

/// The greatest generation of a coordinator that the sender knows, in decimal.
pub const GENERATION_METADATA: &str = "larder-generation";

/// Where the coordinator is, for who asked a node that is not: `http://host:port`.
pub const COORDINATOR_METADATA: &str = "larder-coordinator";

pub use convert::{boot_id, page_size, shard_id, snapshot_id, ticket};
pub use generated::*;
