//! What crosses shared memory: one sealed memfd per shard, handed out by fd and mapped read-only.
//!
//! An extent's life is in its types, and each step is taken once:
//!
//! ```text
//! Layout ──▶ Filling ──seal──▶ Sealed ──retire──▶ Retired ──is_free──▶ gone
//! (sizes)    (parts are        (read-only,        (no new readers;
//!             written,          fds go out)        the kernel knows
//!             copied out)        │                 who still maps it)
//!                                └─fd over a socket─▶ Attached (the reader's side)
//! ```
//!
//! While it fills, an extent is private to the node: readers get copies of finished parts. Once
//! sealed the kernel refuses every write, by anyone, for as long as the memory lives, so a mistake
//! in lease keeping can cost memory but never show a wrong byte. Memory is free when the last
//! mapping is gone, and [`Retired::is_free`] asks the kernel rather than our own books.
//!
//! Thread rule: everything here is synchronous and may block for the time it takes to fault in,
//! hash or unmap the memory concerned (up to 0.5 s per GiB); never call it from an async task.
//! [`Filling`], [`Sealed`] and [`Attached`] are `Send + Sync`.
//!
//! Non-goals: no network, no datasets, no budget (the caller admits [`Layout::total_bytes`] before
//! it creates anything), no hugetlb pools (`sendfile` fails from them with EINVAL, and that is how
//! remote readers are served; transparent huge pages are as fast). Linux only, 64-bit,
//! little-endian.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("extents need 64-bit little-endian Linux (memfd seals, pidfd)");

mod error;
mod id;

pub mod crc;

mod layout;

mod kernel;
mod map;
mod memfd;
mod sys;

mod anonymous;
mod attached;
mod filling;
mod lend;
mod pagemap;
mod rows;
mod sealed;
mod view;

pub mod pages;
pub mod peer;
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;

pub use anonymous::AnonymousMap;
pub use attached::{Attached, Companion};
pub use error::ExtentError;
pub use filling::{CopyOutcome, Filling, Part, PartSpec};
pub use id::ExtentId;
pub use layout::{EXTENT_BYTES_MAX, Layout, REGIONS_MAX, Region};
pub use lend::Lent;
pub use map::PagePreference;
pub use pages::PageSize;
pub use rows::{RowCopy, RowSource, copy_rows, copy_rows_verified};
pub use sealed::{Retired, Sealed};
pub use view::{CorruptRow, ExtentView};

/// A number that differs between a process and a child it forked, for as long as both use this
/// function: what `getpid` would tell, without a system call, so that it can be asked for at every
/// read. Only forks by the C library's `fork` are noticed.
#[must_use]
pub fn fork_count() -> u32 {
    sys::fork_count()
}

/// Keeps every descriptor but standard input, output and error from the programs that this process
/// starts from now on, also those it inherited and knows nothing of.
///
/// # Errors
/// The kernel's, before Linux 5.11.
pub fn keep_descriptors_from_programs() -> std::io::Result<()> {
    sys::keep_descriptors_from_programs()
}
