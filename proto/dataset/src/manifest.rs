//! The manifest: the index of one snapshot, used in place.
//!
//! [`Manifest::parse`] checks its hash and every number in it, once. It keeps the few tensors as
//! parsed values and leaves shards, objects and names in the bytes. Later lookups of samples
//! allocate nothing.
//!
//! Thread rule: immutable after parsing, `Send + Sync`, a clone is one reference count. Non-goals:
//! reading data (see [`crate::Origin`]); changing a manifest (build another one).

mod build;
mod format;
mod keys;
mod locate;
mod parse;
mod plan;
mod summary;

use std::sync::Arc;

use larder_base::{ShardId, SnapshotId};

use crate::{Dtype, OriginUri};
use format::{Header, Tables};

pub use build::{BuildError, GroupSpec, ManifestBuilder, ObjectSpec, TensorSpec};
pub use keys::{Key, KeyTable};
pub(crate) use keys::{KeyKind, keys_max, parts, record};
pub use parse::ManifestError;
pub use plan::{FillPlan, PartRead, RegionPlan};

/// The index of one snapshot. Cheap to clone.
#[derive(Clone)]
pub struct Manifest {
    inner: Arc<Inner>,
}

struct Inner {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    header: Header,
    tables: Tables,
    snapshot: SnapshotId,
    uri: OriginUri,
    tensors: Box<[Tensor]>,
}

/// One named column of the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    locator: RowLocator,
    /// Which of the objects of a group holds this tensor.
    slot: u32,
    /// `Strided`: the column of that object that gives the tensor's offset. `Spans`: its span
    /// table.
    column: u32,
}

impl Tensor {
    /// Returns the name, unique in the dataset.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of an element.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the shape of one sample; `[]` is a scalar. Of ragged tensors: the shape of one
    /// element.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the shape of one sample. The first dimension of ragged rows is `None`.
    pub fn sample_shape(&self) -> Vec<Option<u64>> {
        let any = self.is_ragged().then_some(None);
        any.into_iter().chain(self.shape.iter().copied().map(Some)).collect()
    }

    /// Returns the bytes of one row, 0 if rows differ in length.
    pub fn row_bytes(&self) -> u64 {
        match self.locator {
            RowLocator::Strided { row_bytes, .. } => row_bytes,
            RowLocator::Spans => 0,
        }
    }

    /// Returns the bytes of one [`shape`](Self::shape): of a row, or of one element of a ragged
    /// row.
    pub fn element_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size_bytes()
    }

    /// Returns whether rows differ in length: each is some elements of [`shape`](Self::shape).
    pub fn is_ragged(&self) -> bool {
        self.locator == RowLocator::Spans
    }

    /// Returns the shape of a row of this many bytes. Of a ragged row, it begins with the number of
    /// elements.
    pub fn row_shape(&self, bytes: u64) -> Vec<u64> {
        let elements = self.is_ragged().then(|| bytes / self.element_bytes());
        elements.into_iter().chain(self.shape.iter().copied()).collect()
    }

    /// Returns how a row is found.
    pub fn locator(&self) -> RowLocator {
        self.locator
    }
}

/// How the rows of a tensor lie in its region of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLocator {
    /// Row `r` is `row_bytes` long and begins at `r * stride_bytes`. A smaller stride makes rows
    /// overlap (windows over tokens); a larger one leaves gaps.
    Strided {
        /// Bytes of a row.
        row_bytes: u64,
        /// Bytes from the beginning of one row to that of the next.
        stride_bytes: u64,
    },
    /// Each row has its own span of bytes, listed in the manifest; rows lie back to back.
    Spans,
}

/// A contiguous range of samples: the unit of placement, fill and eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Identifies the bytes.
    pub id: ShardId,
    /// The number of its first sample in the dataset.
    pub first_sample: u64,
    /// Number of samples.
    pub rows: u32,
    /// Bytes of all its regions together.
    pub bytes: u64,
    /// The xxh3-64 over the CRC32C values of its checksum units, if it was pinned while indexing.
    pub checksum: Option<u64>,
}

/// An object of the origin that holds samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its key, relative to the address of the dataset.
    pub key: &'a str,
    /// The etag it had when it was indexed.
    pub etag: Option<&'a str>,
    /// Its version, if the store keeps versions and lets them be read.
    pub version: Option<&'a str>,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("snapshot", &self.inner.snapshot)
            .field("uri", &self.inner.uri)
            .field("samples", &self.samples())
            .field("shards", &self.shard_count())
            .finish_non_exhaustive()
    }
}

impl Manifest {
    /// Returns the hash that names this snapshot.
    pub fn snapshot(&self) -> SnapshotId {
        self.inner.snapshot
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.inner.header.samples
    }

    /// Returns the address that the keys of the objects are relative to.
    pub fn uri(&self) -> &OriginUri {
        &self.inner.uri
    }

    /// Returns the tensors, in the order in which regions, plans and gathers number them.
    pub fn tensors(&self) -> &[Tensor] {
        &self.inner.tensors
    }

    /// Returns the number of the tensor with this name.
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        self.inner.tensors.iter().position(|t| t.name == name)
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> u32 {
        self.inner.header.shard_count
    }

    /// Returns the number of objects.
    pub fn object_count(&self) -> u32 {
        self.inner.header.object_count
    }

    /// Returns the bytes of all shards together.
    pub fn total_bytes(&self) -> u64 {
        (0..self.shard_count()).map(|s| self.shard(s).bytes).sum()
    }

    /// Returns the manifest as it is stored on the origin.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.inner.bytes).as_ref()
    }
}

#[cfg(test)]
mod tests;
