//! Fills: read shards into sealed extents, from a peer that holds them or from the origin.
//!
//! A fixed number of workers take fills from the queue, most urgent first. A worker makes a memory
//! file for the shard, which the budget has admitted already, reads its parts side by side, writes
//! and hashes what comes as it comes, seals, and compares the checksum if the manifest pins one.
//! All GETs of all fills share one limit, and all their retries one budget.
//!
//! 1. creates a memory file for the shard, in bytes that the budget has admitted;
//! 2. reads its parts in parallel, and writes and hashes bytes as they arrive;
//! 3. seals the extent;
//! 4. compares the checksum, if the snapshot of a waiting reader pins one (`compare`).
//!
//! All GETs of all fills share one limit, and all their retries one budget. A fill that can't
//! succeed is given up: it is listed, and its readers are told the error. A worker that dies loses
//! only its job. The next worker continues that job with the parts that are in.
//!
//! Thread rule: fills are tokio tasks. Blocking threads allocate memory (in huge pages where
//! available), seal extents, and hash rows that overlap. Non-goals: deciding which shards to fill
//! (the store admits), serving readers (they wait on the
//! [`InFlightFill`](crate::cache::InFlightFill)).

mod peer_source;
mod peers;
mod read_through;
mod reader;
mod retry;
mod throttle;
mod worker;

pub(crate) use peers::{Holder, Missed, Peer, Peers};
pub use read_through::{ReadThrough, Reservation, RowWanted};
pub(crate) use reader::Reader;
pub(crate) use throttle::TransferThrottle;
pub(crate) use worker::Filler;
