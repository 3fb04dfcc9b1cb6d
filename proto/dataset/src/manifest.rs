//! The manifest: the index of one snapshot, flat enough to be used where it is mapped.
//!
//! A manifest is parsed once: [`Manifest::parse`] checks its hash and every number in it, keeps the
//! few tensors as parsed values and leaves shards, objects and names where they lie. Looking a sample
//! up afterwards allocates nothing.
//!
//! Thread rule: immutable after parsing, `Send + Sync`, a clone is one reference count.
//! Non-goals: reading data (see [`crate::Origin`]); changing a manifest (build another one).

mod build;
mod format;
mod locate;
mod parse;
mod plan;

use std::sync::Arc;

use larder_base::{ShardId, SnapshotId};

use crate::{Dtype, OriginUri};
use format::{Header, Tables};

pub use build::{BuildError, GroupSpec, ManifestBuilder, ObjectSpec, TensorSpec};
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
    /// `Strided`: which of that object's columns says where it begins. `Spans`: which span table.
    column: u32,
}

impl Tensor {
    /// The name, unique in the dataset.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of an element.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape of one sample; `[]` is a scalar. Of ragged tensors: the shape of one element.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The shape of one sample, in which the first dimension of ragged rows is not given.
    pub fn sample_shape(&self) -> Vec<Option<u64>> {
        let any = self.is_ragged().then_some(None);
        any.into_iter().chain(self.shape.iter().copied().map(Some)).collect()
    }

    /// Bytes of one row, 0 when rows differ in length.
    pub fn row_bytes(&self) -> u64 {
        match self.locator {
            RowLocator::Strided { row_bytes, .. } => row_bytes,
            RowLocator::Spans => 0,
        }
    }

    /// Bytes of what [`shape`](Self::shape) says: of a row, or of one element of a ragged row.
    pub fn element_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size_bytes()
    }

    /// Whether rows differ in length: each is some elements of [`shape`](Self::shape).
    pub fn is_ragged(&self) -> bool {
        self.locator == RowLocator::Spans
    }

    /// The shape of a row of so many bytes: of a ragged one, first how many elements it has.
    pub fn row_shape(&self, bytes: u64) -> Vec<u64> {
        let elements = self.is_ragged().then(|| bytes / self.element_bytes());
        elements.into_iter().chain(self.shape.iter().copied()).collect()
    }

    /// How a row is found.
    pub fn locator(&self) -> RowLocator {
        self.locator
    }
}

/// How the rows of a tensor lie in its region of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLocator {
    /// Row `r` is `row_bytes` long and begins at `r * stride_bytes`. Rows overlap where the stride is
    /// the smaller of the two (windows over tokens), and leave gaps where it is the larger.
    Strided {
        /// Bytes of a row.
        row_bytes: u64,
        /// Bytes from the begin of one row to that of the next.
        stride_bytes: u64,
    },
    /// Each row has its own span of bytes, listed in the manifest; rows lie back to back.
    Spans,
}

/// A contiguous range of samples: the unit of placement, fill and eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Names the bytes.
    pub id: ShardId,
    /// The number of its first sample in the dataset.
    pub first_sample: u64,
    /// How many samples it holds.
    pub rows: u32,
    /// Bytes of all its regions together.
    pub bytes: u64,
    /// The xxh3-64 over the CRC32C values of its checksum units, where it was pinned while indexing.
    pub checksum: Option<u64>,
}

/// An object of the origin that holds samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its key, relative to the address of the dataset.
    pub key: &'a str,
    /// The etag it had when it was indexed.
    pub etag: Option<&'a str>,
    /// Its version, where the store keeps versions and lets them be read.
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
    /// The hash that names this snapshot.
    pub fn snapshot(&self) -> SnapshotId {
        self.inner.snapshot
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.inner.header.samples
    }

    /// The address that the keys of the objects are relative to.
    pub fn uri(&self) -> &OriginUri {
        &self.inner.uri
    }

    /// The tensors, in the order in which regions, plans and gathers number them.
    pub fn tensors(&self) -> &[Tensor] {
        &self.inner.tensors
    }

    /// The number of the tensor with this name.
    pub fn tensor_index(&self, name: &str) -> Option<usize> {
        self.inner.tensors.iter().position(|t| t.name == name)
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> u32 {
        self.inner.header.shard_count
    }

    /// How many objects there are.
    pub fn object_count(&self) -> u32 {
        self.inner.header.object_count
    }

    /// Bytes of all shards together.
    pub fn total_bytes(&self) -> u64 {
        (0..self.shard_count()).map(|s| self.shard(s).bytes).sum()
    }

    /// The manifest as it lies on the origin.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.inner.bytes).as_ref()
    }
}

#[cfg(test)]
mod tests;
