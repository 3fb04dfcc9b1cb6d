//! The manifest: the index of one snapshot, used in place.
//!
//! A [`Manifest`] is the *root*: tensors, shards and the list of leaves. [`Manifest::parse`] checks
//! every number in it, once, and keeps shards and names in the bytes. Lookups of samples allocate
//! nothing. A [`Leaf`] has the details of some consecutive shards: objects, and the places of rows.
//! Only fills and rows of different lengths need it.
//!
//! Thread rule: immutable after parsing, `Send + Sync`, a clone is one reference count. Non-goals:
//! reading data (see [`crate::Origin`]); changing a manifest (build another one).

mod blocks;
mod build;
mod format;
mod id;
mod keys;
mod leaf;
mod locate;
mod parse;
mod places;
mod reads;
mod scatter;
mod summary;

use std::sync::Arc;

use larder_base::{ShardId, SnapshotId};

use crate::{Dtype, Logical, OriginUri};
use format::{RootHeader, RootTables};

pub use blocks::{BlockRead, BlocksRead, Damaged, MakeError};
pub use build::{
    BuildError, ColumnSpec, GroupSpec, ManifestBuilder, ObjectSpec, Snapshot, TensorSpec,
};
pub(crate) use format::sha256;
pub use keys::{Key, KeyTable};
pub(crate) use keys::{KeyKind, keys_max, parts, record};
pub use leaf::{Leaf, Object};
pub use parse::ManifestError;
pub use places::RowPlaces;
pub use reads::{FillPlan, Get, RegionPart, RegionPlan, RowOrigin, RowRead, RowsRead};
pub use scatter::Scatter;

/// The index of one snapshot, without the details in its leaves. Cheap to clone.
#[derive(Clone)]
pub struct Manifest {
    inner: Arc<ManifestParts>,
}

struct ManifestParts {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    header: RootHeader,
    tables: RootTables,
    snapshot: SnapshotId,
    uri: OriginUri,
    tensors: Box<[Tensor]>,
}

/// One named column of the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    dtype: Dtype,
    logical: Logical,
    shape: Vec<u64>,
    locator: RowLocator,
    layout: Layout,
    /// Its number among the tensors with ragged rows.
    ragged: Option<u32>,
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

    /// Returns the meaning of a value.
    pub fn logical(&self) -> Logical {
        self.logical
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
            RowLocator::Ragged => 0,
        }
    }

    /// Returns the bytes of one [`shape`](Self::shape): of a row, or of one element of a ragged
    /// row.
    pub fn element_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size_bytes()
    }

    /// Returns whether rows differ in length: each is some elements of [`shape`](Self::shape).
    pub fn is_ragged(&self) -> bool {
        self.locator == RowLocator::Ragged
    }

    /// Returns the shape of a row of this many bytes. Of a ragged row, it begins with the number of
    /// elements.
    pub fn row_shape(&self, bytes: u64) -> Vec<u64> {
        let elements = self.is_ragged().then(|| bytes / self.element_bytes());
        elements.into_iter().chain(self.shape.iter().copied()).collect()
    }

    /// Returns how a row is found in its region.
    pub fn locator(&self) -> RowLocator {
        self.locator
    }

    /// Returns where the bytes of its rows come from.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns whether rows lie back to back in the region, so that a shard may join the rows of
    /// several objects.
    fn rows_touch(&self) -> bool {
        match self.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => row_bytes == stride_bytes,
            RowLocator::Ragged => true,
        }
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
    /// Rows differ in length and lie back to back. The leaf lists where each ends.
    Ragged,
}

/// Where the bytes of a tensor's rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Rows lie in objects at a fixed distance.
    Column,
    /// Each row is one range of an object.
    Spans,
    /// The values stand in the leaf.
    Inline,
    /// Rows are made from ranges of objects, each of which holds many of them.
    Blocks,
}

impl Layout {
    const ALL: [Self; 4] = [Self::Column, Self::Spans, Self::Inline, Self::Blocks];

    /// Returns the number that stands for it in a manifest.
    fn code(self) -> u16 {
        match self {
            Self::Column => 0,
            Self::Spans => 1,
            Self::Inline => 2,
            Self::Blocks => 3,
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.code() == code)
    }
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
    /// Returns the SHA-256 of the root, which names this snapshot.
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

    /// Returns the number of leaves.
    pub fn leaf_count(&self) -> u32 {
        self.inner.header.leaf_count
    }

    /// Returns the number of objects that hold samples.
    pub fn object_count(&self) -> u64 {
        self.inner.header.object_count
    }

    /// Returns the bytes of all shards together.
    pub fn total_bytes(&self) -> u64 {
        (0..self.shard_count()).map(|s| self.shard(s).bytes).sum()
    }

    /// Returns the SHA-256 over tensors and data, equal for equal samples wherever they lie. `None`
    /// if the index did not read the data.
    pub fn contents(&self) -> Option<[u8; 32]> {
        let contents = self.inner.header.contents;
        (contents != [0; 32]).then_some(contents)
    }

    /// Returns the JSON document that the index added, such as names of classes. Empty if there is
    /// none.
    pub fn metadata(&self) -> &str {
        let tables = self.inner.tables;
        let bytes = &self.as_bytes()[tables.metadata..tables.end];
        std::str::from_utf8(bytes).expect("checked when the manifest was parsed")
    }

    /// Returns the root as it is stored on the origin.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.inner.bytes).as_ref()
    }
}

#[cfg(test)]
mod tests;
