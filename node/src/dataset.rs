//! One open dataset.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use larder_base::{Error, ErrorKind, ShardId, SnapshotId};
use larder_dataset::{Manifest, Origin, OriginUri};
use larder_extent::Sealed;
use larder_store::NoRoom;

/// An open dataset: its manifest in shared memory, and the origin of its bytes.
#[derive(Debug)]
pub(crate) struct Dataset {
    manifest: Manifest,
    manifest_extent: Arc<Sealed>,
    manifest_uri: OriginUri,
    origin: Origin,
    health: OriginHealth,
    /// One bit per shard, set once its id was checked.
    vouched: Box<[AtomicU64]>,
    /// The shard indices in the order of their ids, built at the first request by id.
    by_id: OnceLock<Box<[u32]>>,
    /// Set once the log says that some of its shards are never kept.
    warned: AtomicBool,
    last_used: Mutex<Instant>,
}

impl Dataset {
    pub(crate) fn new(
        manifest: Manifest,
        manifest_extent: Arc<Sealed>,
        manifest_uri: OriginUri,
        origin: Origin,
        now: Instant,
    ) -> Self {
        let words = manifest.shard_count().div_ceil(u64::BITS);
        let vouched = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self {
            manifest,
            manifest_extent,
            manifest_uri,
            origin,
            health: OriginHealth::default(),
            vouched,
            by_id: OnceLock::new(),
            warned: AtomicBool::new(false),
            last_used: Mutex::new(now),
        }
    }

    /// Returns the manifest. Its bytes are those of [`manifest_extent`](Self::manifest_extent).
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the extent that clients map to read the manifest.
    pub(crate) fn manifest_extent(&self) -> &Arc<Sealed> {
        &self.manifest_extent
    }

    /// Returns the object that the manifest was read from when the dataset was opened.
    pub(crate) fn manifest_uri(&self) -> &OriginUri {
        &self.manifest_uri
    }

    /// Returns access to the origin of its bytes.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the health of the origin.
    pub(crate) fn health(&self) -> &OriginHealth {
        &self.health
    }

    /// Returns the index of the shard with this id. The first call waits until all ids are sorted.
    pub(crate) fn find_shard(&self, id: ShardId) -> Option<u32> {
        let id_of = |&shard: &u32| self.manifest.shard(shard).id;
        let by_id = self.by_id.get_or_init(|| {
            let mut all: Box<[u32]> = (0..self.manifest.shard_count()).collect();
            all.sort_unstable_by_key(id_of);
            all
        });
        by_id.binary_search_by_key(&id, id_of).ok().map(|at| by_id[at])
    }

    /// Returns the address of the dataset.
    pub(crate) fn uri(&self) -> &OriginUri {
        self.manifest.uri()
    }

    /// Returns the snapshot of the dataset.
    pub(crate) fn snapshot(&self) -> SnapshotId {
        self.manifest.snapshot()
    }

    /// Checks that there is a shard with this index.
    pub(crate) fn check_shard(&self, shard: u32) -> Result<(), Error> {
        let count = self.manifest.shard_count();
        if shard < count {
            return Ok(());
        }
        let message = format!("shard {shard} of a snapshot of {count} shards");
        Err(Error::new(ErrorKind::NotFound, message))
    }

    /// Checks, once per shard, that a shard's id is the one computed from its ranges in the
    /// manifest. Otherwise a manifest with another dataset's ids could read the shards cached under
    /// them.
    ///
    /// # Panics
    /// There is no such shard.
    pub(crate) fn vouch(&self, shard: u32) -> Result<(), Error> {
        let word = &self.vouched[usize::try_from(shard / u64::BITS).unwrap_or(usize::MAX)];
        let bit = 1_u64 << (shard % u64::BITS);
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        if !self.manifest.shard_id_holds(shard) {
            return Err(Error::new(
                ErrorKind::DataLoss,
                format!(
                    "the manifest of {} names shard {shard} by an id that its bytes don't have; \
                     index the dataset again",
                    self.uri()
                ),
            ));
        }
        word.fetch_or(bit, Ordering::Relaxed);
        Ok(())
    }

    /// Warns once that shards of this dataset are larger than the node's memory. It works, but
    /// slowly.
    pub(crate) fn warn_never_kept(&self, reason: &NoRoom) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let uri = self.uri();
            tracing::warn!(
                "shards of {uri} are never kept, their rows are read by range each time: {reason}, \
                 or index the dataset with smaller shards (--shard-bytes)"
            );
        }
    }

    pub(super) fn touch(&self, now: Instant) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    pub(crate) fn last_used(&self) -> Instant {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a manifest in its extent.
pub(super) struct ManifestBytes(pub(super) Arc<Sealed>);

impl AsRef<[u8]> for ManifestBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.region(0)
    }
}

/// The known state of one origin.
#[derive(Debug, Default)]
pub(crate) struct OriginHealth {
    answers: AtomicU64,
    away: AtomicBool,
}

impl OriginHealth {
    /// Returns the number of successful reads so far, for [`gave_up`](Self::gave_up).
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Notes a successful read.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.away.store(false, Ordering::Relaxed);
    }

    /// Notes a failed read. `answers` is the number of successful reads when it began.
    pub(crate) fn gave_up(&self, answers: u64) {
        if self.answers() == answers {
            self.away.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true while no read gets an answer: try only once.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod health_tests {
    use super::*;

    #[test]
    fn origin_is_away_when_a_read_gives_up_without_any_answer() {
        let health = OriginHealth::default();
        let begun = health.answers();
        health.answered();
        health.gave_up(begun);
        assert!(!health.is_away(), "another read succeeded meanwhile");
        health.gave_up(health.answers());
        assert!(health.is_away());
        health.answered();
        assert!(!health.is_away());
    }
}
