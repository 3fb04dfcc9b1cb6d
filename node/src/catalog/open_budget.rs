//! The resources for opening datasets, shared by all openings, and the origin's answers to one
//! opening.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use larder_base::{SnapshotId, limits};
use larder_dataset::{IndexProgress, Manifest, OpenBudget, Origin, ReadKeeper, WritePolicy};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Catalog, Dataset, queue::Queue};
use crate::cache::{Cache, IndexReads};

/// Prefixes being indexed at once because a client opened them. Each has its listing and the
/// headers of its files on the heap, several times the size of its manifest.
const INDEXINGS_MAX: usize = 2;

/// The memory and the indexing turns that openings of datasets share.
#[derive(Debug)]
pub(super) struct NodeOpenBudget {
    cache: Arc<Cache>,
    indexing: Arc<Semaphore>,
}

impl NodeOpenBudget {
    pub(super) fn new(cache: &Arc<Cache>) -> Self {
        let indexing = Arc::new(Semaphore::new(INDEXINGS_MAX));
        Self { cache: Arc::clone(cache), indexing }
    }

    /// Waits for permission to index a prefix.
    pub(super) async fn turn_to_index(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.indexing).acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }
}

/// One dataset that is being opened: its use of the catalog's resources, and the first answer of
/// the origin.
#[derive(Debug)]
pub(super) struct OpenRequest<'a> {
    catalog: &'a Catalog,
    write: Option<WritePolicy>,
    /// Set by the first answer.
    answer: OnceLock<OriginAnswer>,
    /// Permission to index the prefix, if the caller waited for it.
    may_index: Mutex<Option<OwnedSemaphorePermit>>,
    must_index: AtomicBool,
    /// The callers that wait for it.
    queue: Arc<Queue>,
    /// What scans read, if the prefix is indexed.
    reads: Mutex<Option<Arc<IndexReads>>>,
}

/// The first answer of the origin.
#[derive(Debug)]
enum OriginAnswer {
    /// The tag is there.
    Names(SnapshotId),
    /// There is no tag, but a manifest or data.
    NoTag,
}

impl<'a> OpenRequest<'a> {
    pub(super) fn new(
        catalog: &'a Catalog,
        write: Option<WritePolicy>,
        may_index: Option<OwnedSemaphorePermit>,
        queue: Arc<Queue>,
    ) -> Self {
        let (answer, must_index) = (OnceLock::new(), AtomicBool::new(false));
        let (may_index, reads) = (Mutex::new(may_index), Mutex::default());
        Self { catalog, write, answer, may_index, must_index, queue, reads }
    }

    /// Notes the store that is read.
    pub(super) fn reads(&self, origin: &Origin) {
        self.queue.reads(origin);
    }

    /// Returns true if the prefix must be indexed, and the permission for that was missing.
    pub(super) fn must_index(&self) -> bool {
        self.must_index.load(Ordering::Relaxed)
    }

    /// Returns true once the origin has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }

    /// Returns true if the tag now names another snapshot.
    pub(super) fn names_another_than(&self, before: &Dataset) -> bool {
        let answer = self.answer.get();
        matches!(answer, Some(OriginAnswer::Names(snapshot)) if *snapshot != before.snapshot())
    }

    /// Returns what scans read, if the prefix was indexed.
    pub(super) fn take_reads(&self) -> Option<Arc<IndexReads>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, answer: OriginAnswer) {
        let _ = self.answer.set(answer);
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.queue.ends();
    }
}

impl OpenBudget for OpenRequest<'_> {
    fn kept(&self, snapshot: SnapshotId) -> Option<Manifest> {
        self.note(OriginAnswer::Names(snapshot));
        self.catalog.get(snapshot).map(|dataset| dataset.manifest().clone())
    }

    fn for_manifest(&self, bytes: u64) -> Result<Box<dyn Any + Send + Sync>, String> {
        self.note(OriginAnswer::NoTag);
        self.catalog.budget.for_manifest(bytes)
    }

    fn to_index(&self) -> Option<Box<dyn Any + Send>> {
        self.note(OriginAnswer::NoTag);
        let permit = self.may_index.lock().unwrap_or_else(PoisonError::into_inner).take();
        let permit = permit.map(|permit| Box::new(permit) as Box<dyn Any + Send>);
        let permit = permit.or_else(|| self.catalog.budget.to_index());
        self.must_index.store(permit.is_none(), Ordering::Relaxed);
        permit
    }

    fn write_policy(&self) -> Option<WritePolicy> {
        self.write
    }

    fn indexes(&self, step: IndexProgress) {
        self.queue.indexes(step);
    }

    fn keeper(&self) -> Option<Arc<dyn ReadKeeper>> {
        self.catalog.first_fill.as_ref()?;
        let reads = IndexReads::new(&self.catalog.cache);
        *self.reads.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&reads));
        Some(reads)
    }
}

impl OpenBudget for NodeOpenBudget {
    fn for_manifest(&self, bytes: u64) -> Result<Box<dyn Any + Send + Sync>, String> {
        if bytes <= limits::MANIFEST_BYTES_FREE {
            return Ok(Box::new(()));
        }
        let reserved = self.cache.reserve(bytes).map_err(|why| why.message().to_owned())?;
        Ok(Box::new(reserved))
    }

    fn to_index(&self) -> Option<Box<dyn Any + Send>> {
        let turn = Arc::clone(&self.indexing).try_acquire_owned().ok()?;
        Some(Box::new(turn))
    }
}
