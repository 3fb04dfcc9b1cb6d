//! The tokens that a caller holds while the store waits for it: made here, moved, never copied.
//!
//! Each carries a serial number that its store gives out once. So the store recognizes an old token
//! of a shard that has changed its state since.

/// The right to perform one fill. It ends in `complete`, `fail` or `give_up`.
#[must_use = "a permit that is dropped leaves its shard filling until it is revoked"]
#[derive(Debug)]
pub struct FillPermit<K> {
    pub(crate) id: K,
    pub(crate) serial: u64,
}

impl<K: Copy> FillPermit<K> {
    /// The shard to fill.
    pub fn id(&self) -> K {
        self.id
    }

    pub(crate) fn spend(self) -> (K, u64) {
        (self.id, self.serial)
    }
}

/// One caller's place among the waiters of a fill, returned with `leave`.
///
/// It stays valid when the fill is handed over, and is void once the fill has ended.
#[must_use = "a waiter that is dropped keeps a failing fill alive: give it back with `leave`"]
#[derive(Debug)]
pub struct Waiter<K> {
    pub(crate) id: K,
    pub(crate) flight: u64,
}

impl<K: Copy> Waiter<K> {
    /// The shard waited for.
    pub fn id(&self) -> K {
        self.id
    }

    pub(crate) fn spend(self) -> (K, u64) {
        (self.id, self.flight)
    }
}

/// Stands for bytes that left the store but perhaps not the memory; returned with `freed`.
#[must_use = "a token that is dropped keeps its bytes counted for ever: give it back with `freed`"]
#[derive(Debug)]
pub struct OrphanToken {
    pub(crate) serial: u64,
}

impl OrphanToken {
    pub(crate) fn spend(self) -> u64 {
        self.serial
    }
}

/// Gives out each number once.
#[derive(Debug, Default)]
pub(crate) struct Serials(u64);

impl Serials {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}
