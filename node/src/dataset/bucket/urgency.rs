//! How urgent the requests of a fill are. It changes while they wait for their turns.
//!
//! Thread rule: numbers that all threads read and write, without a lock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Stands for no reader.
const NO_READER: u64 = u64::MAX;

/// How much a shard is needed, beside the rows that readers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Need {
    /// A reader asked for some of its rows.
    Reader,
    /// A reader will want it soon.
    Soon,
    /// It must be here in the end.
    Once,
}

/// How urgent the requests of one fill are. The smaller [rank](Self::rank) comes first.
#[derive(Debug)]
pub(crate) struct Urgency {
    /// The number of the reader for whose rows the next request is.
    reader: AtomicU64,
    need: AtomicU8,
    /// The place of the fill among those that made requests. 0 before its first one.
    fill: AtomicU64,
}

impl Default for Urgency {
    fn default() -> Self {
        let need = AtomicU8::new(Need::Once as u8);
        Self { reader: AtomicU64::new(NO_READER), need, fill: AtomicU64::new(0) }
    }
}

impl Urgency {
    /// Gives the fill its number at its first request. Returns whether it took that one.
    pub(super) fn begin(&self, number: u64) -> bool {
        self.fill.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes that the shard is needed at least so much.
    pub(crate) fn raise(&self, need: Need) {
        self.need.fetch_min(need as u8, Ordering::Relaxed);
    }

    /// Notes the reader for whose rows the next request is, if there is one.
    pub(crate) fn next_for(&self, reader: Option<u64>) {
        self.reader.store(reader.unwrap_or(NO_READER), Ordering::Relaxed);
    }

    /// Returns what requests are ordered by: readers as they came, then needs, then fills.
    pub(super) fn rank(&self) -> (u64, u8, u64) {
        let (reader, fill) = (&self.reader, &self.fill);
        let need = self.need.load(Ordering::Relaxed);
        (reader.load(Ordering::Relaxed), need, fill.load(Ordering::Relaxed))
    }
}
