//! The resources for opening datasets, shared by all openings, and the origin's answers to one
//! opening.

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use larder_base::{SnapshotId, limits};
use larder_dataset::{Manifest, OpenBudget};
use tokio::sync::Semaphore;

use super::{Catalog, Dataset};
use crate::cache::Cache;

/// The memory and the indexing turns that openings of datasets share.
#[derive(Debug)]
pub(super) struct NodeOpenBudget {
    cache: Arc<Cache>,
    indexing: Arc<Semaphore>,
}

impl NodeOpenBudget {
    pub(super) fn new(cache: &Arc<Cache>) -> Self {
        let indexing = Arc::new(Semaphore::new(limits::INDEXINGS_MAX));
        Self { cache: Arc::clone(cache), indexing }
    }
}

/// One dataset that is being opened: its use of the catalog's resources, and the first answer of
/// the origin.
#[derive(Debug)]
pub(super) struct OpenRequest<'a> {
    catalog: &'a Catalog,
    /// Set by the first answer.
    answer: OnceLock<Answer>,
}

/// The first answer of the origin.
#[derive(Debug)]
enum Answer {
    /// The tag is there.
    Names(SnapshotId),
    /// There is no tag, but a manifest or data.
    NoTag,
}

impl<'a> OpenRequest<'a> {
    pub(super) fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, answer: OnceLock::new() }
    }

    /// Returns true once the origin has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }

    /// Returns true if the tag now names another snapshot.
    pub(super) fn names_another_than(&self, before: &Dataset) -> bool {
        let answer = self.answer.get();
        matches!(answer, Some(Answer::Names(snapshot)) if *snapshot != before.snapshot())
    }

    fn note(&self, answer: Answer) {
        let _ = self.answer.set(answer);
    }
}

impl OpenBudget for OpenRequest<'_> {
    fn kept(&self, snapshot: SnapshotId) -> Option<Manifest> {
        self.note(Answer::Names(snapshot));
        self.catalog.get(snapshot).map(|dataset| dataset.manifest().clone())
    }

    fn for_manifest(&self, bytes: u64) -> Result<Box<dyn Any + Send + Sync>, String> {
        self.note(Answer::NoTag);
        self.catalog.budget.for_manifest(bytes)
    }

    fn to_index(&self) -> Pin<Box<dyn Future<Output = Box<dyn Any + Send>> + Send + '_>> {
        self.note(Answer::NoTag);
        self.catalog.budget.to_index()
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

    fn to_index(&self) -> Pin<Box<dyn Future<Output = Box<dyn Any + Send>> + Send + '_>> {
        let turn = Arc::clone(&self.indexing).acquire_owned();
        Box::pin(async { Box::new(turn.await) as Box<dyn Any + Send> })
    }
}
