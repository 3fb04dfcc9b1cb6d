//! Bytes that fills read from the origin, until a gather reports them to its client.
//!
//! A client learns by these how much the origin had to send for it. The first gather that needs the
//! shard reports all of its bytes. A gather of resident shards finds nothing to report, and takes
//! no lock.
//!
//! Thread rule: shared freely; the lock is held for microseconds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_base::ShardId;

/// Fills whose bytes no gather has reported. Few fills end without a gather that waits for them.
const FILLS_UNREPORTED_MAX: usize = 4096;

/// The bytes of each shard that no gather has reported.
#[derive(Debug, Default)]
pub(crate) struct UnreportedReads {
    /// The shards in `bytes`.
    count: AtomicUsize,
    bytes: Mutex<HashMap<ShardId, u64>>,
}

impl UnreportedReads {
    /// Adds bytes of a shard. Beyond [`FILLS_UNREPORTED_MAX`] shards, leaves them out.
    pub(super) fn add(&self, shard: ShardId, bytes: u64) {
        let mut unreported = self.lock();
        if unreported.len() < FILLS_UNREPORTED_MAX || unreported.contains_key(&shard) {
            *unreported.entry(shard).or_default() += bytes;
        }
        self.count.store(unreported.len(), Ordering::Release);
    }

    /// Takes the bytes of these shards.
    pub(crate) fn take(&self, shards: impl Iterator<Item = ShardId>) -> u64 {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut unreported = self.lock();
        let bytes = shards.filter_map(|shard| unreported.remove(&shard)).sum();
        self.count.store(unreported.len(), Ordering::Release);
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ShardId, u64>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_fill_are_reported_once() {
        let (reads, shard) = (UnreportedReads::default(), |byte| ShardId::from_bytes([byte; 16]));
        reads.add(shard(1), 10);
        reads.add(shard(1), 5);
        reads.add(shard(2), 100);
        assert_eq!(reads.take([1, 3].map(shard).into_iter()), 15);
        assert_eq!(reads.take([1, 2].map(shard).into_iter()), 100);
        assert_eq!(reads.take([1, 2].map(shard).into_iter()), 0);
    }
}
