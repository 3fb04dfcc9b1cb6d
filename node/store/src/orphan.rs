//! Bytes that nobody can ask for any more, counted until they are proved free.

use crate::token::OrphanToken;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For how long an orphan is expected to be free any moment. Proof takes the shell milliseconds;
/// one that is older is held by somebody's mapping, and room has to be made elsewhere.
pub const LEAVING_FOR: Duration = Duration::from_secs(2);

/// A handle that left the store. Its bytes stay counted until `token` is given back with `freed`,
/// which the caller does once the memory behind `handle` is proved to be mapped by nobody.
#[must_use = "an orphan's bytes stay counted until its token is given back with `freed`"]
#[derive(Debug)]
pub struct Orphan<K, H> {
    /// The shard it was.
    pub id: K,
    /// What it still takes of the budget.
    pub bytes: u64,
    /// The fill's or the resident shard's handle.
    pub handle: H,
    /// What to give back when the bytes are free.
    pub token: OrphanToken,
}

/// A resident shard that had to go.
pub type Evicted<K, R> = Orphan<K, R>;

#[derive(Debug)]
pub(crate) struct Record<K> {
    pub(crate) id: K,
    pub(crate) bytes: u64,
    pub(crate) since: Instant,
}

/// Orphans by serial, hence by age.
#[derive(Debug)]
pub(crate) struct Orphans<K>(BTreeMap<u64, Record<K>>);

impl<K> Orphans<K> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn add(&mut self, serial: u64, record: Record<K>) -> OrphanToken {
        self.0.insert(serial, record);
        OrphanToken { serial }
    }

    /// Takes an orphan out, proved free. Returns its bytes, or `None` for another store's token.
    pub(crate) fn take(&mut self, token: OrphanToken) -> Option<u64> {
        self.0.remove(&token.spend()).map(|record| record.bytes)
    }

    /// Bytes that should be free any moment.
    pub(crate) fn leaving_bytes(&self, now: Instant) -> u64 {
        let leaving =
            |record: &&Record<K>| now.saturating_duration_since(record.since) < LEAVING_FOR;
        self.0.values().rev().take_while(leaving).map(|record| record.bytes).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record<K>> {
        self.0.values()
    }
}
