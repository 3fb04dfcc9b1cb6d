//! How often bytes are copied on their way to the user. Checks the claim of "zero copy".
//!
//! Counts every move of a row's byte by this library, including the receive from a socket:
//!
//! - 0 for a view of a mapped extent
//! - 1 from a mapped extent into a batch
//! - 1 from a node into a batch, or 2 if short rows are staged
//! - 3 from the origin: received, collected, put into place
//!
//! Does not count the read-ahead with a frame's header, at most 8 KiB per frame.
//!
//! Thread rule: the counters of the process are atomics, updated once per gather and once per view.

use std::{
    ops::{Add, AddAssign},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes of rows by source, and the bytes copied for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStats {
    /// Viewed in place, in mapped extents.
    pub viewed_bytes: u64,
    /// Copied from mapped extents.
    pub local_bytes: u64,
    /// Received from nodes.
    pub remote_bytes: u64,
    /// Read from the origin by this process.
    pub origin_bytes: u64,
    /// Copied for all of these. A byte that was moved twice counts twice.
    pub copied_bytes: u64,
    /// Copied to devices, by the device itself.
    pub device_bytes: u64,
    /// Part of `device_bytes`: copied through page-locked buffers. The rest came directly from the
    /// cache.
    pub staged_bytes: u64,
}

/// Counts since the start of the process, including those of its parent before a fork.
static PROCESS: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

impl CopyStats {
    /// The counters of this process, including those of its parent before the fork.
    pub fn of_process() -> Self {
        let [viewed, local, remote, origin, copied, device, staged] = &PROCESS;
        Self {
            viewed_bytes: viewed.load(Relaxed),
            local_bytes: local.load(Relaxed),
            remote_bytes: remote.load(Relaxed),
            origin_bytes: origin.load(Relaxed),
            copied_bytes: copied.load(Relaxed),
            device_bytes: device.load(Relaxed),
            staged_bytes: staged.load(Relaxed),
        }
    }

    /// Bytes delivered to the user from all sources.
    pub fn delivered_bytes(&self) -> u64 {
        self.viewed_bytes + self.local_bytes + self.remote_bytes + self.origin_bytes
    }

    /// How often the average byte was copied. 0 before the first byte.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of sums far below 2^52")]
    pub fn copies_per_byte(&self) -> f64 {
        match self.delivered_bytes() {
            0 => 0.0,
            delivered => self.copied_bytes as f64 / delivered as f64,
        }
    }

    pub(crate) fn viewed(bytes: u64) -> Self {
        Self { viewed_bytes: bytes, ..Self::default() }
    }

    /// Bytes copied after they were counted as delivered in another way.
    pub(crate) fn moved(bytes: u64) -> Self {
        Self { copied_bytes: bytes, ..Self::default() }
    }

    pub(crate) fn local(bytes: u64) -> Self {
        Self { local_bytes: bytes, copied_bytes: bytes, ..Self::default() }
    }

    pub(crate) fn remote(bytes: u64, times: u64) -> Self {
        Self { remote_bytes: bytes, copied_bytes: bytes * times, ..Self::default() }
    }

    pub(crate) fn origin(bytes: u64, times: u64) -> Self {
        Self { origin_bytes: bytes, copied_bytes: bytes * times, ..Self::default() }
    }

    /// Bytes copied to a device, and the part of them through page-locked buffers.
    pub(crate) fn sent(device_bytes: u64, staged_bytes: u64) -> Self {
        Self { device_bytes, staged_bytes, ..Self::default() }
    }

    pub(crate) fn count(&self) {
        let parts = [
            self.viewed_bytes,
            self.local_bytes,
            self.remote_bytes,
            self.origin_bytes,
            self.copied_bytes,
            self.device_bytes,
            self.staged_bytes,
        ];
        for (counter, bytes) in PROCESS.iter().zip(parts).filter(|(_, bytes)| *bytes > 0) {
            counter.fetch_add(bytes, Relaxed);
        }
    }
}

impl Add for CopyStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            viewed_bytes: self.viewed_bytes + other.viewed_bytes,
            local_bytes: self.local_bytes + other.local_bytes,
            remote_bytes: self.remote_bytes + other.remote_bytes,
            origin_bytes: self.origin_bytes + other.origin_bytes,
            copied_bytes: self.copied_bytes + other.copied_bytes,
            device_bytes: self.device_bytes + other.device_bytes,
            staged_bytes: self.staged_bytes + other.staged_bytes,
        }
    }
}

impl AddAssign for CopyStats {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_per_byte_is_weighted_by_source() {
        assert!(CopyStats::default().copies_per_byte().abs() < 1e-9);
        let mut copies = CopyStats::viewed(300);
        assert!(copies.copies_per_byte().abs() < 1e-9);
        copies += CopyStats::local(100) + CopyStats::remote(50, 2) + CopyStats::origin(50, 3);
        assert_eq!((copies.delivered_bytes(), copies.copied_bytes), (500, 350));
        assert!((copies.copies_per_byte() - 0.7).abs() < 1e-9);
    }
}
