//! Tests of the whole system that need real processes. One binary holds them all, since linking is
//! slow.
//!
//! They mostly wait for other processes, so several run at once: see `.config/nextest.toml` and the
//! Makefile.

mod answers;
mod bad_stores;
mod buckets;
mod cli;
mod client_deaths;
mod coordinator;
mod credentials;
mod demo;
mod deploy;
mod docs;
mod examples;
mod faults;
mod first_cluster;
mod first_light;
mod first_open;
mod garage;
mod host_faults;
mod host_node;
mod membership;
mod node_deaths;
mod operating;
mod operator;
mod partitions;
mod plans;
mod process_limits;
mod replicas;
#[cfg(feature = "schema")]
mod schema;
mod settings;
mod strangers;
