//! Sealed extents in shared memory: one memfd per shard, handed out by fd and mapped read-only.
//!
//! The types follow an extent's life, and each step happens once:
//!
//! ```text
//! ExtentLayout ──▶ Filling ──seal──▶ Sealed ──retire──▶ Retired ──is_free──▶ gone
//! (sizes)          (parts are        (read-only,        (no new readers;
//!                   written,          fds go out)        the kernel knows
//!                   copied out)        │                 which processes map it)
//!                                      └─fd over a socket─▶ Attached (the reader's side)
//! ```
//!
//! While it fills, an extent is private to the node, and readers get copies of finished parts.
//! After sealing, the kernel refuses every write to it, from every process, until the memory is
//! freed. A mistake in lease keeping can therefore cost memory, but never show a wrong byte. The
//! memory is free when its last mapping is gone. [`Retired::is_free`] asks the kernel, not our own
//! leases.
//!
//! Thread rule: everything here is synchronous. It may block while memory is faulted in, hashed or
//! unmapped (up to 0.5 s per GiB), so never call it from an async task. [`Filling`], [`Sealed`] and
//! [`Attached`] are `Send + Sync`.
//!
//! Non-goals: network, datasets, and the budget (the caller admits [`ExtentLayout::total_bytes`]
//! before it creates anything). Extents use no hugetlb pools: `sendfile`, which serves remote
//! readers, fails on them with EINVAL, and transparent huge pages are as fast. Linux only, 64-bit,
//! little-endian.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("extents need 64-bit little-endian Linux (memfd seals, pidfd)");

use std::fmt;

mod error;

pub mod crc;

mod layout;

mod memfd;
mod sys;

mod attached;
mod filling;
mod rows;
mod sealed;
mod view;

pub mod pages;
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;

pub use attached::{Attached, Companion, PrivateView};
pub use error::{CorruptRow, ExtentError};
pub use filling::{CopyOutcome, Filling, Part, PartSpec};
pub use layout::{EXTENT_BYTES_MAX, ExtentLayout, REGIONS_MAX, Region};
pub use memfd::map::PagePreference;
pub use pages::{
    AnonymousMap, PageSize,
    limit::{MemoryLimit, MemoryLimitError, available_memory, memory_figure},
};
pub use rows::{RegionRows, RowCopy, copy_rows, copy_rows_verified};
pub use sealed::{Retired, Sealed};
pub use view::ExtentView;

/// The name of an extent: 16 bytes chosen by the process that fills it. In practice, the id of the
/// shard it holds, or the first 16 bytes of the id of a snapshot. This crate only writes the name
/// into the header and compares it on attach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub [u8; 16]);

impl ExtentId {
    /// Makes an id of these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtentId({self})")
    }
}

/// Returns a number that differs between a process and a child it forked, if both call this
/// function. It replaces `getpid` without a system call, so that every read can check it. Notices
/// only forks by the C library's `fork`.
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

#[cfg(test)]
mod tests {
    use super::ExtentId;

    #[test]
    fn id_is_displayed_as_hex() {
        let mut bytes = [0; 16];
        bytes[0] = 0xab;
        bytes[15] = 0x01;
        let id = ExtentId::from_bytes(bytes);
        assert_eq!(id.to_string(), "ab000000000000000000000000000001");
        assert_eq!(id.as_bytes(), &bytes);
    }
}
