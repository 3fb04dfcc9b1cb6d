//! The data plane: binary frames over TCP between hosts and over a unix socket on one host.
//!
//! A frame is a 32-byte [`FrameHeader`], then a *body* of a length bounded by its kind. In DATA and
//! PART frames a *payload* follows, which the receiver reads straight into its place. One CRC32C
//! covers header and body. Each payload row has its own CRC32C in the body, so lengths and
//! checksums precede the bytes they describe. Everything is little-endian.
//!
//! ```text
//! client                               node
//!   HELLO          ────────────────▶            version range, features, limits, ticket
//!                  ◀────────────────   HELLO_OK  the values for both     (or ERROR, then close)
//!
//!   GATHER #7      ────────────────▶            tensors and rows, in the order wanted
//!                  ◀────────────────   DATA #7   tensor slot 0, rows [0, 27)
//!                  ◀────────────────   DATA #7   tensor slot 0, rows [27, 54) ...
//!                  ◀────────────────   GATHER_END #7             (or ERROR #7 at any frame border)
//!
//! only on the unix socket:
//!   ATTACH #8      ────────────────▶
//!                  ◀────────────────   ATTACHED #8 and a descriptor | PENDING #8 | NOT_KEPT #8
//!   RELEASE        ────────────────▶            no answer
//!                  ◀────────────────   RECALL    unasked: drop the map if nothing uses it
//!   ADMIT #10      ────────────────▶            a prefix that a private node may read
//!                  ◀────────────────   ADMITTED #10
//!
//!   PING #9        ────────────────▶
//!                  ◀────────────────   PONG #9
//! ```
//!
//! The client chooses the request number, and each answer repeats it. Answers to one request come
//! in order; those to different requests may be interleaved between frames. PENDING ends its
//! exchange: the client gathers the rows it needs and attaches at a later need. An ERROR ends its
//! request, never the connection, unless it answers HELLO. After a [`WireError`] other than
//! [`WireError::Idle`] the place in the stream is lost: close the connection.
//!
//! The format of a body never changes within a protocol version. A receiver refuses a body
//! with other values where the layout says 0. A newer peer sets them only after HELLO has agreed on
//! it. `Kind` lists all frames.
//!
//! Thread rule: plain values. Non-goals: no sockets, no file descriptors, no flow control. Payload
//! is neither held nor checked here; the caller gets its checksums.

/// The default path of a node's unix socket, below `XDG_RUNTIME_DIR` or, if that is not set, below
/// `/run`.
pub const DEFAULT_SOCKET: &str = "larder/larder.sock";

mod codec;
mod error;
mod header;
mod kind;

mod hello;

mod gather;
mod part;
mod rows;
mod shards;

mod admit;
mod attach;
mod failure;
mod io;

pub use admit::{Admit, Admitted};
pub use attach::{
    Attach, AttachManifest, Attached, NotKept, Pending, PendingState, Ping, Pong, Recall, Release,
};
pub use error::WireError;
pub use failure::ErrorReply;
pub use gather::{Gather, GatherEnd, GatherParts};
pub use header::{FRAME_HEADER_BYTES, FrameHeader};
pub use hello::{Features, Hello, HelloOk, PROTOCOL_VERSIONS, PeerLimits};
pub use io::{Split, read_body, read_header, read_hello, split_frame};
pub use kind::Kind;
pub use part::{Part, ReadPart};
pub use rows::{Data, DataPiece, DataRun};
pub use shards::DistinctShards;

#[cfg(test)]
mod tests;
