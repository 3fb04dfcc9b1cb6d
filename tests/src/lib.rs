//! The shared parts of system tests: real nodes as child processes, a real S3 server, and data
//! written by other projects' programs.
//!
//! Everything here cleans up on drop and touches only loopback and temporary folders.

use std::time::Duration;

mod ports;

pub mod client;
pub mod dataset;
pub mod etcd;
pub mod garage;
pub mod interrupt;
pub mod living;
pub mod load;
pub mod netns;
pub mod node;
pub mod python;
pub mod ring_demo;
pub mod tool;

pub use client::{ClientOptions, TrainingProcess};
pub use dataset::{PythonDataset, words, write_npy};
pub use etcd::Etcd;
pub use garage::Garage;
pub use living::{Keeper, LivingCluster};
pub use load::{Load, Read};
pub use node::memory_group::MemoryGroup;
pub use node::{Cluster, NodeOptions, NodeProcess, scripted, stranger};

/// The longest wait of a test: far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds. Unwinds when the program is interrupted.
///
/// # Panics
/// When it does not for two minutes.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let tick = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / tick.as_millis() {
        if holds() {
            return;
        }
        interrupt::check();
        std::thread::park_timeout(tick);
    }
    panic!("waited in vain until {what}");
}

/// Whether this is `make test-full`, which runs every test at its full scale.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("LARDER_TEST_FULL").is_some()
}

/// How often to repeat: `quick` in `make test`, `full` in `make test-full`.
#[must_use]
pub fn repeats(quick: usize, full: usize) -> usize {
    if is_full() { full } else { quick }
}

/// Whether the calling test is for `make test-full` only and this is not it. Then it says so.
#[must_use]
pub fn is_left_to_full(what: &str) -> bool {
    if !is_full() {
        println!("not tested: {what} is for make test-full");
    }
    !is_full()
}
