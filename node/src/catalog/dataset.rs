//! One open dataset.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use larder_dataset::{Manifest, Origin, OriginUri, SnapshotId};
use larder_extent::Sealed;
use larder_wire::{Error, ErrorKind};

/// An open dataset: its manifest, in shared memory, and the origin its bytes come from.
#[derive(Debug)]
pub struct Dataset {
    manifest: Manifest,
    manifest_extent: Arc<Sealed>,
    origin: Origin,
}

impl Dataset {
    /// The manifest; its bytes are those of [`manifest_extent`](Self::manifest_extent).
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The extent that clients map to have the manifest too.
    #[must_use]
    pub fn manifest_extent(&self) -> &Arc<Sealed> {
        &self.manifest_extent
    }

    /// Where its bytes come from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The address it lies at.
    #[must_use]
    pub fn uri(&self) -> &OriginUri {
        self.manifest.uri()
    }

    /// The snapshot it is.
    #[must_use]
    pub fn snapshot(&self) -> SnapshotId {
        self.manifest.snapshot()
    }
}
