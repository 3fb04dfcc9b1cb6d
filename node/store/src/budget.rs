//! The memory that the store may use, and the sum of its users.
//!
//! ```text
//! limit = free + filling + resident + orphaned       (bytes)
//!
//!   free --admit--> filling --settle--> resident
//!    ^                 | drop_fill         | evict
//!    |                 v                   v
//!    +----free------ orphaned <------------+
//! ```
//!
//! A cgroup answers an over-large allocation with SIGKILL, not with an error. So the store takes
//! bytes here before it allocates, and they return only when the kernel has let go of them.
//!
//! Each shard in any state also takes a place, since its extent is an open file and a process may
//! have only so many.

/// Shards in one state, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Their number.
    pub shards: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.shards += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: u64) {
        let rest = self.shards.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        (self.shards, self.bytes) = rest.expect("a shard leaves a state that it was counted in");
    }
}

/// A limit in bytes and one in shards, and what is used of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Budget {
    limit_bytes: u64,
    shards_max: usize,
    filling: Tally,
    resident: Tally,
    orphaned: Tally,
}

impl Budget {
    /// Creates a budget of this many bytes, none of them used, for any number of shards.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            shards_max: usize::MAX,
            filling: Tally::default(),
            resident: Tally::default(),
            orphaned: Tally::default(),
        }
    }

    /// Limits the number of shards too.
    #[must_use]
    pub fn with_shards_max(self, shards_max: usize) -> Self {
        Self { shards_max, ..self }
    }

    /// Returns the most shards there may be, in any state.
    pub fn shards_max(&self) -> usize {
        self.shards_max
    }

    /// Returns the limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the shards being filled. Each counts whole from its admission on.
    pub fn filling(&self) -> Tally {
        self.filling
    }

    /// Returns the resident shards.
    pub fn resident(&self) -> Tally {
        self.resident
    }

    /// Returns the evicted shards and dropped fills that are not yet proved free.
    pub fn orphaned(&self) -> Tally {
        self.orphaned
    }

    /// Returns the bytes used, in any state. Never more than the limit.
    pub fn used_bytes(&self) -> u64 {
        self.filling.bytes + self.resident.bytes + self.orphaned.bytes
    }

    /// Returns the bytes that can be admitted.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes - self.used_bytes()
    }

    /// Returns whether one more shard may come.
    pub fn has_place(&self) -> bool {
        self.filling.shards + self.resident.shards + self.orphaned.shards < self.shards_max
    }

    /// Returns the bytes that must leave before this many are free. A shard that only lacks a place
    /// needs one byte: that of any other shard.
    pub(crate) fn missing_bytes(&self, bytes: u64) -> u64 {
        let missing = bytes.saturating_sub(self.free_bytes());
        missing.max(u64::from(!self.has_place()))
    }

    /// Takes bytes and a place for a fill, if they are free.
    pub(crate) fn admit(&mut self, bytes: u64) -> bool {
        let fits = self.missing_bytes(bytes) == 0;
        if fits {
            self.filling.add(bytes);
        }
        fits
    }

    pub(crate) fn settle(&mut self, bytes: u64) {
        self.filling.take(bytes);
        self.resident.add(bytes);
    }

    pub(crate) fn drop_fill(&mut self, bytes: u64) {
        self.filling.take(bytes);
        self.orphaned.add(bytes);
    }

    pub(crate) fn evict(&mut self, bytes: u64) {
        self.resident.take(bytes);
        self.orphaned.add(bytes);
    }

    pub(crate) fn free(&mut self, bytes: u64) {
        self.orphaned.take(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_from_admission_until_proven_free() {
        let mut budget = Budget::new(100);
        assert!(budget.admit(60));
        assert!(!budget.admit(41));
        budget.settle(60);
        assert!(!budget.admit(41));
        budget.evict(60);
        assert_eq!(budget.orphaned(), Tally { shards: 1, bytes: 60 });
        assert!(!budget.admit(41));
        budget.free(60);
        assert!(budget.admit(100));
        assert_eq!(budget.free_bytes(), 0);
    }

    #[test]
    fn shard_needs_a_place_that_another_has_left() {
        let mut budget = Budget::new(100).with_shards_max(2);
        assert!(budget.admit(10) && budget.admit(10));
        assert!(!budget.admit(0));
        assert_eq!((budget.missing_bytes(10), budget.missing_bytes(85)), (1, 5));
        budget.drop_fill(10);
        assert!(!budget.admit(10));
        budget.free(10);
        assert!(budget.admit(10));
    }

    #[test]
    fn size_that_would_overflow_is_refused_as_too_large() {
        let mut budget = Budget::new(u64::MAX);
        assert!(budget.admit(1));
        assert!(!budget.admit(u64::MAX));
    }
}
