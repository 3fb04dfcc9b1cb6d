//! The order of a job's batches: the samples of each batch on this rank, the rows that a locality
//! gives it, and how far samples are shuffled.
//!
//! Thread rule: immutable values. Non-goals: rows and threads. Only the choice of a shuffle asks
//! nodes, for their memory.

mod locality;
mod pass;
pub(super) mod shuffle;

pub(super) use locality::Divider;
pub use locality::Locality;
pub(super) use pass::{Lane, LoaderJob, Pass};
pub use pass::{Schedule, ScheduledBatch};
pub use shuffle::{RankHosts, ShuffleMode};
