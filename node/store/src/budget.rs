//! The memory the store may use, and the sum of those who use it.
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
//! An over-large allocation under a memory cgroup is answered by SIGKILL, not by an error, so the
//! budget is ours to keep: bytes are taken here before any memory is, and come back only when the
//! kernel has let go of them.

mod available;
mod detect;

pub use detect::{BudgetError, MemoryLimit};

/// Shards in one state, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many.
    pub shards: usize,
    /// What they take, in bytes.
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

/// A limit in bytes, and what is used of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Budget {
    limit_bytes: u64,
    filling: Tally,
    resident: Tally,
    orphaned: Tally,
}

impl Budget {
    /// A budget of so many bytes, none of them used.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            filling: Tally::default(),
            resident: Tally::default(),
            orphaned: Tally::default(),
        }
    }

    /// All the bytes there are to use.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Shards being filled, counted whole from their admission on.
    pub fn filling(&self) -> Tally {
        self.filling
    }

    /// Shards that are here.
    pub fn resident(&self) -> Tally {
        self.resident
    }

    /// Shards that left, and whose bytes are not yet proved free.
    pub fn orphaned(&self) -> Tally {
        self.orphaned
    }

    /// Bytes that are used, in whatever state. Never more than the limit.
    pub fn used_bytes(&self) -> u64 {
        self.filling.bytes + self.resident.bytes + self.orphaned.bytes
    }

    /// Bytes that can be admitted.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes - self.used_bytes()
    }

    /// Takes bytes for a fill, if there are so many.
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
    fn bytes_are_counted_from_admission_until_they_are_proved_free() {
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
    fn a_number_that_would_overflow_is_only_too_large() {
        let mut budget = Budget::new(u64::MAX);
        assert!(budget.admit(1));
        assert!(!budget.admit(u64::MAX));
    }
}
