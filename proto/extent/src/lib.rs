//! Sealed extents in shared memory: one memfd per shard, handed out by fd and mapped read-only.
//!
//! The types follow an extent's life, and each step happens once:
//!
//! ```text
//! Layout ──▶ Filling ──seal──▶ Sealed ──retire──▶ Retired ──is_free──▶ gone
//! (sizes)    (parts are        (read-only,        (no new readers;
//!             written,          fds go out)        the kernel knows
//!             copied out)        │                 which processes map it)
//!                                └─fd over a socket─▶ Attached (the reader's side)
//! ```
//!
//! While it fills, an extent is private to the node, and readers get copies of finished parts.
//! After sealing, the kernel refuses every write to it, from every process, until the memory is
//! freed. A mistake in lease keeping can therefore cost memory, but never show a wrong byte. The
//! memory is free when its last mapping is gone. [`Retired::is_free`] asks the kernel, not our own
//! loans.
//!
//! Thread rule: everything here is synchronous. It may block while memory is faulted in, hashed or
//! unmapped (up to 0.5 s per GiB), so never call it from an async task. [`Filling`], [`Sealed`] and
//! [`Attached`] are `Send + Sync`.
//!
//! Non-goals: network, datasets, and the budget (the caller admits [`Layout::total_bytes`] before
//! it creates anything). Extents use no hugetlb pools: `sendfile`, which serves remote readers,
//! fails on them with EINVAL, and transparent huge pages are as fast. Linux only, 64-bit,
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
mod pagemap;
mod private_views;
mod rows;
mod sealed;
mod view;

pub mod pages;
pub mod peer;
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;

pub use anonymous::AnonymousMap;
pub use attached::{Attached, Companion, PrivateView};
pub use error::{CorruptRow, ExtentError};
pub use filling::{CopyOutcome, Filling, Part, PartSpec};
pub use id::ExtentId;
pub use layout::{EXTENT_BYTES_MAX, Layout, REGIONS_MAX, Region};
pub use map::PagePreference;
pub use pages::PageSize;
pub use rows::{RowCopy, RowSource, copy_rows, copy_rows_verified};
pub use sealed::{Retired, Sealed};
pub use view::ExtentView;

/// Returns a number that differs between a process and a child it forked, if both call this
/// function. It replaces `getpid` without a system call, so that every read can check it. Notices
/// only forks by the C library's `fork`.
#[must_use]
pub fn fork_count() -> u32 {
    sys::fork_count()
}

/// Marks every descriptor but standard input, output and error close-on-exec, inherited ones
/// included. Programs that this process starts from now on do not get them.
///
/// # Errors
/// The kernel's, before Linux 5.11.
pub fn keep_descriptors_from_programs() -> std::io::Result<()> {
    sys::keep_descriptors_from_programs()
}
