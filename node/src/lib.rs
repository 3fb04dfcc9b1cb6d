//! The cache node: a daemon that keeps dataset shards in shared memory and serves their rows.
//!
//! - [`config`]: the settings as typed, and as validated.
//! - [`node`]: assembles and starts the parts. Start reading here.
//! - [`cluster`]: the record that nodes agree on; [`placements`]: the shard owners that follow from
//!   it.
//! - [`catalog`]: the open datasets, and the prefixes that they must lie under.
//! - [`cache`]: the shards in memory, their holders, and eviction.
//! - [`flight`]: one shard that is being filled, and the readers that wait for it.
//! - [`fill`]: reads shards and single rows from the origin, and shards from other nodes (`peers`).
//!
//! Thread rule: threads that block serve rows. Fills, indexing and the control plane are tokio
//! tasks. The two meet in [`cache`] (a lock held for microseconds) and in [`flight`] (a condition
//! variable). Non-goals: placement (clients route), durability (the origin holds the data).

pub mod cache;
pub mod catalog;
pub mod config;
pub mod counters;
pub mod dataset;
pub mod fill;
pub mod membership;
pub mod node;
pub mod serve;
pub mod shared;

mod byte_sink;
mod clock;
mod driver;
mod errors;
mod replication;
mod resident;
#[cfg(test)]
mod testing;
