//! The cache node: a daemon that keeps dataset shards in shared memory and serves their rows.
//!
//! - [`config`]: what was typed, and what was validated.
//! - [`node`]: the assembly; start here.
//! - [`cluster`]: what nodes agree on, and how; [`placements`]: who owns which shard because of it.
//! - [`catalog`]: the datasets that are open, and under which prefixes they may lie.
//! - [`cache`]: which shards are here, who holds them, what leaves.
//! - [`flight`]: a shard on its way, and those who wait for it.
//! - [`fill`]: how shards, and single rows, come from the origin, and shards from other nodes (`peers`).
//!
//! Thread rule: servers of rows are threads that block; fills, indexing and the control plane are
//! tokio tasks. The two meet in [`cache`] (a lock held for microseconds) and [`flight`] (a condition
//! variable). Non-goals: placement (clients route), durability (the origin has the truth).

pub mod cache;
pub mod catalog;
pub mod cluster;
pub mod config;
pub mod counters;
pub mod dataset;
pub mod fill;
pub mod flight;
pub mod node;
pub mod placements;
pub mod serve;
pub mod shared;

mod bring;
mod clock;
mod copies;
mod driver;
mod errors;
mod pace;
mod peers;
mod preflight;
mod target;
#[cfg(test)]
mod testing;
