//! How often bytes were copied on their way to the user: what "zero copy" is held to.
//!
//! Counted is every time this library moves a byte of a row, the receiving from a socket included:
//! 0 for a view of a mapped extent, 1 out of a mapped extent into a batch, 1 from a node into a
//! batch (2 where short rows go through a staging piece), 3 from the origin (received, collected,
//! put into place). Not counted is what is read ahead with a frame's header, at most 8 KiB a frame.
//!
//! Thread rule: the counters of the process are atomics, added to once a gather and once a view.

use std::{
    ops::{Add, AddAssign},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes of rows by the way they came, and how many were copied for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStats {
    /// Seen where they lie, in mapped extents.
    pub viewed_bytes: u64,
    /// Copied out of mapped extents.
    pub local_bytes: u64,
    /// Received from nodes.
    pub remote_bytes: u64,
    /// Read from the origin by this process.
    pub origin_bytes: u64,
    /// Copied for all these: a byte that was moved twice counts twice.
    pub copied_bytes: u64,
    /// Copied to devices, by the device itself.
    pub device_bytes: u64,
    /// Of those, through page-locked buffers: the rest came directly from the pages of the cache.
    pub staged_bytes: u64,
}

/// Since the process, or the one that it was forked from, began.
static PROCESS: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];

impl CopyStats {
    /// Those of this process, and of the one that it was forked from until then.
    #[must_use]
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

    /// Bytes that reached the user, by whatever way.
    #[must_use]
    pub fn delivered_bytes(&self) -> u64 {
        self.viewed_bytes + self.local_bytes + self.remote_bytes + self.origin_bytes
    }

    /// How often the average byte was copied; 0 before there was one.
    #[must_use]
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

    /// Bytes copied that were delivered, and counted, some other way.
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

    /// Bytes copied to a device, so many of them through a page-locked buffer.
    pub(crate) fn sent(device_bytes: u64, staged_bytes: u64) -> Self {
        Self { device_bytes, staged_bytes, ..Self::default() }
    }

    /// Adds these to the counters of the process.
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
