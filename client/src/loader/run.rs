//! A loader at work: its settings, the threads of an epoch that fetch ahead, and the counts of the
//! batches that it hands out.
//!
//! Thread rule: an [`Epoch`] owns one thread for each batch that it fetches at once. Non-goals: the
//! samples of a batch (`order`), and their rows (`batch`).

mod builder;
mod caller_buffers;
mod epoch;
mod prefetch;
mod stats;

pub use builder::{LoaderBuilder, LoaderOptions};
pub(super) use epoch::{Ahead, AnnouncedJob, EpochProgress, Reading, Start};
pub use epoch::{Epoch, PreparedEpoch};

pub use stats::{LoaderStats, SlowBatch};
