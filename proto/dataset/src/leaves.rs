//! The leaves of a snapshot on the origin: finds their folder and reads them.
//!
//! Non-goals: keeping leaves in memory (the reader's choice); checking their bytes, which
//! [`Leaf::over`](crate::Leaf::over) does.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;

use crate::{
    DatasetError, Leaf, Manifest, ManifestLocation, Origin, OriginError, OriginUri, Snapshot,
    home::{home_of, homes, leaf_uri},
    origin::Target,
};

/// The folder of a snapshot's leaves.
#[derive(Debug, Clone)]
pub struct LeafFiles {
    origin: Origin,
    home: OriginUri,
}

impl LeafFiles {
    /// Takes the folder beside a manifest. `origin` is that of the data. It restricts which local
    /// files are read, except in the local cache.
    ///
    /// # Errors
    /// If the origin of the manifest can't be connected to.
    pub(crate) async fn of(
        origin: &Origin,
        location: &ManifestLocation,
    ) -> Result<Self, DatasetError> {
        let home = home_of(location.uri());
        let origin = match location {
            ManifestLocation::LocalCache { .. } => Origin::connect(&home).await?,
            _ => origin.reach(&home).await?,
        };
        Ok(Self { origin, home })
    }

    /// Looks for the leaves of a snapshot where its manifest may lie. With `given` it looks there
    /// only; otherwise beside the data and then in the local cache.
    ///
    /// # Errors
    /// If there are none, or the origin cannot be asked.
    pub async fn find(
        origin: &Origin,
        manifest: &Manifest,
        given: Option<&OriginUri>,
    ) -> Result<Self, DatasetError> {
        let mut missing = None;
        for home in homes(manifest.uri(), given)? {
            let files = Self { origin: origin.reach(&home).await?, home };
            match files.origin.head(&files.uri(manifest, 0)?).await {
                Ok(_) => return Ok(files),
                // Without the right to list, S3 answers "denied" for an object that does not exist.
                Err(error @ (OriginError::NotFound { .. } | OriginError::Denied { .. })) => {
                    missing = missing.or(Some(error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(missing.expect("there is one home at least").into())
    }

    /// Returns the address of a leaf.
    ///
    /// # Errors
    /// If the address would be too long.
    pub fn uri(&self, manifest: &Manifest, leaf: u32) -> Result<OriginUri, DatasetError> {
        leaf_uri(&self.home, &manifest.leaf_sha256(leaf))
    }

    /// Reads a leaf, with a few retries. Hands its bytes to `sink`, in order. `Break` ends it.
    ///
    /// # Errors
    /// The origin's.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub async fn read(
        &self,
        manifest: &Manifest,
        leaf: u32,
        sink: &mut (dyn FnMut(&[u8]) -> ControlFlow<()> + Send),
    ) -> Result<(), DatasetError> {
        let (object, size_bytes) = (self.uri(manifest, leaf)?, manifest.leaf_bytes(leaf));
        let target = Target { object, etag: None, version: None, size_bytes };
        Ok(self.origin.read_whole(&target, sink).await?)
    }

    /// Reads a leaf into memory of this process and checks it.
    ///
    /// # Errors
    /// The origin's, or that the leaf is damaged.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub async fn load(&self, manifest: &Manifest, leaf: u32) -> Result<Leaf, DatasetError> {
        let mut bytes = Vec::new();
        let mut sink = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            ControlFlow::Continue(())
        };
        self.read(manifest, leaf, &mut sink).await?;
        Leaf::over(manifest, leaf, Arc::new(Bytes::from(bytes)))
            .map_err(|source| self.damaged(manifest, leaf, source))
    }

    /// Reads all leaves of a manifest.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub async fn snapshot(&self, manifest: &Manifest) -> Result<Snapshot, DatasetError> {
        let mut leaves = Vec::new();
        for leaf in 0..manifest.leaf_count() {
            leaves.push(self.load(manifest, leaf).await?);
        }
        Ok(Snapshot { manifest: manifest.clone(), leaves })
    }

    /// Returns the error for a leaf that was read and is none.
    pub fn damaged(
        &self,
        manifest: &Manifest,
        leaf: u32,
        source: crate::ManifestError,
    ) -> DatasetError {
        match self.uri(manifest, leaf) {
            Ok(object) => DatasetError::Manifest { object, source },
            Err(error) => error,
        }
    }
}
