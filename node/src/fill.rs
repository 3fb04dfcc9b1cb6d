//! Fills: bringing shards from a peer that has them, or from the origin, into sealed extents.
//!
//! A fixed number of workers take fills from the queue, most urgent first. A worker makes a memory file
//! for the shard, which the budget has admitted already, reads its parts side by side, writes and hashes
//! what comes as it comes, seals, and compares the checksum if the manifest pins one. All GETs of all fills share one limit, and all their retries one budget.
//!
//! A fill that can't succeed is given up: it is listed, and whoever waits is told why. A worker that
//! dies loses only its job, which goes to the next one together with the parts that are in.
//!
//! Thread rule: everything here is a tokio task; memory is taken in huge pages, where there are any, and
//! sealed, and rows that overlap are hashed, on blocking threads. Non-goals: deciding what is filled (the
//! store admits), serving readers (they wait on the [`Flight`](crate::flight::Flight)).

mod lender;
mod read_through;
mod reader;
mod retry;
mod worker;

pub use read_through::{ReadThrough, Reservation, RowWanted};
pub(crate) use reader::Reader;
pub(crate) use worker::Filler;
