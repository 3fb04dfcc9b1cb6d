//! Bytes of shards that left the store, counted until they are proved free.

use crate::token::OrphanToken;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// An orphan is expected to be free within this time. The shell proves that within milliseconds. A
/// process still maps an older orphan, so the store must make room elsewhere.
pub const LEAVING_FOR: Duration = Duration::from_secs(2);

/// A handle that left the store. Its bytes stay counted until the caller returns `token` with
/// `freed`, once it is proved that no process maps the memory behind `handle`.
#[must_use = "an orphan's bytes stay counted until its token is given back with `freed`"]
#[derive(Debug)]
pub struct Orphan<K, H> {
    /// The shard it was.
    pub id: K,
    /// Its bytes, which the budget still counts.
    pub bytes: u64,
    /// The fill's or the resident shard's handle.
    pub handle: H,
    /// Whether it was used since its fill was complete.
    pub was_used: bool,
    /// The token to return when the bytes are free.
    pub token: OrphanToken,
}

/// A resident shard that was evicted.
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

    /// Removes an orphan proved free. Returns its bytes, or `None` for another store's token.
    pub(crate) fn take(&mut self, token: OrphanToken) -> Option<u64> {
        self.0.remove(&token.spend()).map(|record| record.bytes)
    }

    /// Returns the bytes that should be free any moment.
    pub(crate) fn leaving_bytes(&self, now: Instant) -> u64 {
        let leaving =
            |record: &&Record<K>| now.saturating_duration_since(record.since) < LEAVING_FOR;
        self.0.values().rev().take_while(leaving).map(|record| record.bytes).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record<K>> {
        self.0.values()
    }
}
