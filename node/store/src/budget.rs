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

/// A limit in bytes, and the bytes used of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Budget {
    limit_bytes: u64,
    filling: Tally,
    resident: Tally,
    orphaned: Tally,
}

impl Budget {
    /// Creates a budget of this many bytes, none of them used.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            filling: Tally::default(),
            resident: Tally::default(),
            orphaned: Tally::default(),
        }
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

    /// Takes bytes for a fill, if this many are free.
    pub(crate) fn admit(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
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
    fn size_that_would_overflow_is_refused_as_too_large() {
        let mut budget = Budget::new(u64::MAX);
        assert!(budget.admit(1));
        assert!(!budget.admit(u64::MAX));
    }
}
