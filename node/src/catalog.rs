//! The datasets that are open on this node.
//!
//! Opening resolves a tag to a snapshot, puts the snapshot's manifest into a sealed extent (that is
//! what clients map), and keeps it there while the dataset is open. Only what lies under one of the
//! `--origin` prefixes is opened: clients name datasets, never arbitrary addresses.
//!
//! Thread rule: `open` is async and may take minutes (an unindexed prefix is indexed); the rest locks
//! for microseconds. Non-goal: knowing who uses a dataset.

mod dataset;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larder_dataset::{DatasetRef, OriginUri, SnapshotId};
use larder_wire::{Error, ErrorKind, limits};

use crate::cache::Cache;
use crate::clock;

pub use dataset::Dataset;

/// The datasets that are open.
#[derive(Debug)]
pub struct Catalog {
    prefixes: Vec<OriginUri>,
    cache: Arc<Cache>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<SnapshotId, Arc<Dataset>>,
    /// What a reference meant when it was last resolved: good enough while the origin is away.
    resolved: HashMap<Reference, SnapshotId>,
    /// One lock per reference that is being opened, so that nobody indexes what another indexes.
    opening: HashMap<Reference, Weak<tokio::sync::Mutex<()>>>,
}

/// A dataset as it was asked for: the address with the tag, and where its manifest lies.
type Reference = (String, Option<OriginUri>);

/// A dataset, and how it came to be open.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// It had no manifest, and was indexed for this call.
    pub indexed_now: bool,
}

impl Catalog {
    /// A catalog of nothing so far, for datasets under `prefixes`.
    #[must_use]
    pub fn new(prefixes: Vec<OriginUri>, cache: Arc<Cache>) -> Self {
        Self { prefixes, cache, state: Mutex::default() }
    }

    /// Opens a dataset by its address and tag; `manifest` says where its manifest lies if not beside
    /// the data.
    ///
    /// # Errors
    /// `PermissionDenied` outside the node's prefixes; what the origin or the manifest is refused
    /// for; `ResourceExhausted` when there is no room for one more, or for its manifest.
    pub async fn open(
        &self,
        wanted: &DatasetRef,
        manifest: Option<&OriginUri>,
    ) -> Result<Opened, Error> {
        self.check_allowed(wanted.uri())?;
        manifest.map_or(Ok(()), |uri| self.check_allowed(uri))?;
        let reference = (wanted.to_string(), manifest.cloned());
        let turn = self.turn(&reference);
        let _one_at_a_time = turn.lock().await;
        match larder_dataset::open(wanted, manifest).await {
            Ok(opened) => {
                self.check_allowed(opened.manifest.uri())?;
                let indexed_now = opened.indexed_now;
                let dataset = self.keep(opened.manifest, reference).await?;
                Ok(Opened { dataset, indexed_now })
            }
            Err(error) => self.last_known(&reference, error.into()),
        }
    }

    /// The open dataset with this snapshot.
    #[must_use]
    pub fn get(&self, snapshot: SnapshotId) -> Option<Arc<Dataset>> {
        let found = self.lock().open.get(&snapshot).cloned();
        found.inspect(|dataset| dataset.touch(clock::now()))
    }

    /// All open datasets, by snapshot.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Dataset>> {
        let mut all: Vec<_> = self.lock().open.values().cloned().collect();
        all.sort_unstable_by_key(|dataset| dataset.snapshot());
        all
    }

    fn check_allowed(&self, uri: &OriginUri) -> Result<(), Error> {
        if self.prefixes.iter().any(|prefix| uri.starts_with(prefix)) {
            return Ok(());
        }
        let prefixes: Vec<_> = self.prefixes.iter().map(ToString::to_string).collect();
        Err(Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "{uri} lies outside what this node may read ({}); start it with --origin for that \
                 prefix, or ask another node",
                prefixes.join(", ")
            ),
        ))
    }
}
