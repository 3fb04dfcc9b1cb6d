//! One open dataset.

pub(crate) mod bucket;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use larder_base::{Error, ErrorKind, ShardId, SnapshotId};
use larder_dataset::{Leaf, LeafFiles, Manifest, Origin, OriginUri};
use larder_extent::Sealed;
use larder_store::NoRoom;

use bucket::Bucket;

/// An open dataset: its manifest in shared memory, and the origin of its bytes.
#[derive(Debug)]
pub(crate) struct Dataset {
    manifest: Manifest,
    manifest_extent: Arc<Sealed>,
    manifest_uri: OriginUri,
    leaf_files: LeafFiles,
    origin: Origin,
    bucket: Arc<Bucket>,
    /// One bit per shard, set once its leaf was read and its id holds.
    vouched: Box<[AtomicU64]>,
    /// One bit per leaf, set once the ids of its shards were checked.
    checked: Box<[AtomicU64]>,
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
        leaf_files: LeafFiles,
        origin: Origin,
        bucket: Arc<Bucket>,
        now: Instant,
    ) -> Self {
        let (vouched, checked) = (bits(manifest.shard_count()), bits(manifest.leaf_count()));
        Self {
            manifest,
            manifest_extent,
            manifest_uri,
            leaf_files,
            origin,
            bucket,
            vouched,
            checked,
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

    /// Returns the files of the manifest's leaves.
    pub(crate) fn leaf_files(&self) -> &LeafFiles {
        &self.leaf_files
    }

    /// Returns access to the origin of its bytes.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the bucket, as all its datasets use it.
    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
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

    /// Checks that the manifest has a leaf with this number.
    pub(crate) fn check_leaf(&self, leaf: u32) -> Result<(), Error> {
        let count = self.manifest.leaf_count();
        if leaf < count {
            return Ok(());
        }
        let message = format!("leaf {leaf} of a manifest of {count} leaves");
        Err(Error::new(ErrorKind::NotFound, message))
    }

    /// Returns whether a shard's id was found to be the one of its bytes.
    pub(crate) fn is_vouched(&self, shard: u32) -> bool {
        is_set(&self.vouched, shard)
    }

    /// Checks that the shards of a leaf have the ids that are computed from their ranges. Otherwise
    /// a manifest with another dataset's ids could read the shards cached under them.
    pub(crate) fn vouch(&self, leaf: &Leaf) {
        if is_set(&self.checked, leaf.number()) {
            return;
        }
        for shard in leaf.shards() {
            if self.manifest.shard_id_holds(leaf, shard) {
                set(&self.vouched, shard);
            }
        }
        set(&self.checked, leaf.number());
    }

    /// Checks that a shard may be looked for in the cache.
    ///
    /// # Errors
    /// Its id is not the one of its bytes, or its leaf was not read yet.
    pub(crate) fn check_vouched(&self, shard: u32) -> Result<(), Error> {
        if self.is_vouched(shard) {
            return Ok(());
        }
        let uri = self.uri();
        if is_set(&self.checked, self.manifest.leaf_of(shard)) {
            let message = format!(
                "the manifest of {uri} names shard {shard} by an id that its bytes don't have; index \
                 the dataset again"
            );
            return Err(Error::new(ErrorKind::DataLoss, message));
        }
        let message = format!("the leaf of shard {shard} of {uri} was not read yet");
        Err(Error::new(ErrorKind::Internal, message))
    }

    /// Warns once that shards of this dataset are not kept, which an operator can change. It works,
    /// but slowly.
    pub(crate) fn warn_not_kept(&self, reason: &NoRoom) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let uri = self.uri();
            tracing::warn!(
                "shards of {uri} are not kept, their rows are read by range each time: {reason}, or \
                 index the dataset with other shards (--shard-bytes)"
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

/// Makes so many bits, none of them set.
fn bits(count: u32) -> Box<[AtomicU64]> {
    (0..count.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect()
}

fn is_set(bits: &[AtomicU64], bit: u32) -> bool {
    bits[(bit / u64::BITS) as usize].load(Ordering::Relaxed) & 1 << (bit % u64::BITS) != 0
}

fn set(bits: &[AtomicU64], bit: u32) {
    bits[(bit / u64::BITS) as usize].fetch_or(1 << (bit % u64::BITS), Ordering::Relaxed);
}

/// The bytes of a manifest, or of a leaf of one, in its extent.
pub(super) struct SealedBytes(pub(super) Arc<Sealed>);

impl AsRef<[u8]> for SealedBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.region(0)
    }
}
