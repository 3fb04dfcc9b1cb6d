//! Builds a manifest: takes tensors and groups of objects, cuts shards and encodes root and leaves.
//!
//! The result is parsed with the same checks that readers make. So a builder cannot write a
//! manifest that readers refuse.

mod cut;
mod leaf;
mod root;

use std::{collections::BTreeSet, ops::Range};

use larder_base::limits;
use larder_formats::{Blocks, Inline, Rows};

use super::{Layout, Leaf, Manifest, ManifestError, RowLocator, RowPlaces};
use crate::{Dtype, Logical, OriginUri, uri::UriError};
use cut::Cut;

/// Longest etag or version, in bytes: those of the known stores have fewer than 100.
const ETAG_BYTES_MAX: usize = 1024;

/// Why a dataset cannot be indexed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A count or size exceeds its limit.
    #[error("{what} {found} where at most {limit} can be indexed")]
    TooMuch {
        /// The counted thing.
        what: &'static str,
        /// The count found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// There is nothing to index.
    #[error("there are no samples")]
    Empty,
    /// A group does not fit the tensors.
    #[error("group {group} {why}")]
    Group {
        /// The index of the group.
        group: usize,
        /// The mistake.
        why: &'static str,
    },
    /// An object's key cannot lie under the dataset's address.
    #[error(transparent)]
    Key(#[from] UriError),
    /// The result is not a valid manifest.
    #[error(transparent)]
    Invalid(#[from] ManifestError),
}

/// A tensor to be indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name, unique in the dataset.
    pub name: String,
    /// The type of an element.
    pub dtype: Dtype,
    /// The meaning of a value.
    pub logical: Logical,
    /// The shape of one sample; of ragged rows, that of one element of a row.
    pub shape: Vec<u64>,
    /// How rows lie in the region of a shard.
    pub locator: RowLocator,
    /// Where the bytes of rows come from.
    pub layout: Layout,
}

/// An object to be indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSpec {
    /// Its key, relative to the address of the dataset.
    pub key: String,
    /// Its etag.
    pub etag: Option<String>,
    /// Its version, if it is to be read by version.
    pub version: Option<String>,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// The rows of one tensor in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The index of the object in the group. Without a meaning for inline rows.
    pub object: u32,
    /// The places of the rows.
    pub rows: Rows,
}

/// Objects that hold the same samples: one object with several tensors, or objects side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// Number of samples.
    pub rows: u64,
    /// The objects.
    pub objects: Vec<ObjectSpec>,
    /// The rows of each tensor, in their order.
    pub columns: Vec<ColumnSpec>,
}

impl GroupSpec {
    /// Returns the number of objects that hold rows.
    fn objects_used(&self) -> usize {
        let read = self.columns.iter().filter(|column| column.inline().is_none());
        read.map(|column| column.object).collect::<BTreeSet<_>>().len()
    }

    /// The indices of rows that are listed one by one.
    fn row_indices(&self) -> Range<usize> {
        0..usize::try_from(self.rows).expect("listed rows are in memory")
    }
}

impl ColumnSpec {
    /// Returns the bytes of a row that is listed.
    fn row_bytes(&self, row: usize) -> u64 {
        match &self.rows {
            Rows::Strided { .. } => 0,
            Rows::Spans(spans) => spans.bytes(row),
            Rows::Inline(values) => values.value(row).len() as u64,
            Rows::Blocks(blocks) => {
                blocks.lengths.as_ref().map_or(0, |lengths| lengths[row].into())
            }
        }
    }

    fn blocks(&self) -> Option<&Blocks> {
        match &self.rows {
            Rows::Blocks(blocks) => Some(blocks),
            Rows::Strided { .. } | Rows::Spans(_) | Rows::Inline(_) => None,
        }
    }

    fn inline(&self) -> Option<&Inline> {
        match &self.rows {
            Rows::Inline(values) => Some(values),
            Rows::Strided { .. } | Rows::Spans(_) | Rows::Blocks(_) => None,
        }
    }
}

/// One snapshot in memory: the root, and all leaves in their order.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The root.
    pub manifest: Manifest,
    /// The leaves.
    pub leaves: Vec<Leaf>,
}

impl Snapshot {
    /// Returns the leaf that has a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn leaf_of(&self, shard: u32) -> &Leaf {
        &self.leaves[self.manifest.leaf_of(shard) as usize]
    }

    /// Returns the keys of all objects. One that several leaves list comes several times.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let of_leaf = |leaf: &Leaf| 0..leaf.object_count();
        let objects =
            self.leaves.iter().flat_map(move |leaf| of_leaf(leaf).map(move |o| (leaf, o)));
        objects.map(|(leaf, object)| leaf.object(object).key)
    }

    /// Returns the places of all rows.
    pub fn places(&self) -> RowPlaces {
        RowPlaces::of(&self.manifest, self.leaves.clone())
    }

    /// Returns the same snapshot with these checksums pinned, one for each shard, and the SHA-256
    /// of each shard's bytes: another snapshot.
    ///
    /// # Errors
    /// If there is not one of them for each shard.
    pub fn with_checksums(&self, shards: &[(u64, [u8; 32])]) -> Result<Self, BuildError> {
        let expected = u64::from(self.manifest.shard_count());
        if shards.len() as u64 != expected {
            let found = shards.len() as u64;
            return Err(BuildError::TooMuch { what: "checksums:", found, limit: expected });
        }
        root::pinned(self, shards)
    }
}

/// Builds a manifest.
#[derive(Debug)]
pub struct ManifestBuilder {
    uri: OriginUri,
    shard_bytes: u64,
    tensors: Vec<TensorSpec>,
    groups: Vec<GroupSpec>,
    metadata: String,
}

impl ManifestBuilder {
    /// Starts a dataset at `uri` with these tensors, to be cut into shards of about `shard_bytes`.
    pub fn new(uri: OriginUri, tensors: Vec<TensorSpec>, shard_bytes: u64) -> Self {
        Self { uri, shard_bytes, tensors, groups: Vec::new(), metadata: String::new() }
    }

    /// Appends the samples of a group.
    pub fn push(&mut self, group: GroupSpec) {
        self.groups.push(group);
    }

    /// Adds a JSON document, such as names of classes.
    #[must_use]
    pub fn with_metadata(self, metadata: String) -> Self {
        Self { metadata, ..self }
    }

    /// Builds the manifest of all groups pushed.
    ///
    /// # Errors
    /// If there are no samples, a limit is exceeded, or groups and tensors do not fit together.
    pub fn build(&self) -> Result<Snapshot, BuildError> {
        self.check()?;
        let cuts = self.cut_shards()?;
        let leaves = leaf::encode(self, &cuts)?;
        root::build(self, &cuts, leaves)
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.groups.is_empty() || self.tensors.is_empty() {
            return Err(BuildError::Empty);
        }
        at_most("tensors:", self.tensors.len(), limits::TENSORS_MAX.into())?;
        let objects: usize = self.groups.iter().map(GroupSpec::objects_used).sum();
        at_most("objects:", objects, limits::OBJECTS_MAX.into())?;
        at_most("bytes of metadata:", self.metadata.len(), limits::METADATA_BYTES_MAX)?;
        for tensor in &self.tensors {
            let name_max = limits::TENSOR_NAME_BYTES_MAX.into();
            at_most("bytes in a tensor's name:", tensor.name.len(), name_max)?;
            let dimensions_max = limits::DIMENSIONS_MAX.into();
            at_most("dimensions of a tensor:", tensor.shape.len(), dimensions_max)?;
        }
        let row_bytes = usize::try_from(self.sums().0).unwrap_or(usize::MAX);
        at_most("bytes of one sample:", row_bytes, limits::SAMPLE_BYTES_MAX)?;
        (0..self.groups.len()).try_for_each(|group| self.check_group(group))
    }

    fn check_group(&self, index: usize) -> Result<(), BuildError> {
        let group = &self.groups[index];
        let field = |holds, why| {
            if holds { Ok(()) } else { Err(BuildError::Group { group: index, why }) }
        };
        field(group.rows > 0, "has no samples")?;
        let columns = group.columns.len() == self.tensors.len();
        field(columns, "does not have the rows of each tensor")?;
        for (tensor, column) in self.tensors.iter().zip(&group.columns) {
            let (listed, layout) = match &column.rows {
                Rows::Strided { stride, .. } => {
                    let same = matches!(tensor.locator,
                        RowLocator::Strided { stride_bytes, .. } if stride_bytes == *stride);
                    field(same, "has rows at another distance than its tensor says")?;
                    (group.rows, Layout::Column)
                }
                Rows::Spans(spans) => (spans.len() as u64, Layout::Spans),
                Rows::Inline(values) => (values.len() as u64, Layout::Inline),
                Rows::Blocks(Blocks { blocks, lengths, .. }) => {
                    let ragged = tensor.locator == RowLocator::Ragged;
                    let rows = blocks.iter().map(|block| u64::from(block.rows)).sum();
                    let known = lengths.as_ref().map(|lengths| lengths.len() as u64);
                    let same = known == ragged.then_some(rows);
                    field(same, "does not have the length of each row of any length")?;
                    (rows, Layout::Blocks)
                }
            };
            field(layout == tensor.layout, "has another layout than its tensor says")?;
            field(listed == group.rows, "does not have one place for each row")?;
            let there = (column.object as usize) < group.objects.len();
            field(there || layout == Layout::Inline, "has rows in an object that it lacks")?;
        }
        let mut blocks = group.columns.iter().filter_map(ColumnSpec::blocks);
        if let Some(first) = blocks.next() {
            let rows = |of: &Blocks| of.blocks.iter().map(|block| block.rows).collect::<Vec<_>>();
            let first = rows(first);
            let same = blocks.all(|other| rows(other) == first);
            field(same, "has columns in blocks of different rows")?;
        }
        self.check_rows(group)?;
        for object in &group.objects {
            self.uri.join(&object.key)?;
            for (what, text) in
                [("bytes in an etag:", &object.etag), ("bytes in a version:", &object.version)]
            {
                let limit = ETAG_BYTES_MAX as u64;
                at_most(what, text.as_ref().map_or(0, String::len), limit)?;
            }
        }
        Ok(())
    }

    /// Checks that no sample exceeds the limit.
    fn check_rows(&self, group: &GroupSpec) -> Result<(), BuildError> {
        if !self.is_ragged() {
            return Ok(());
        }
        let (strided, _) = self.sums();
        let bytes = |row| strided.saturating_add(self.ragged_bytes(group, row));
        let largest = group.row_indices().map(bytes).max();
        let largest = usize::try_from(largest.unwrap_or(0)).unwrap_or(usize::MAX);
        at_most("bytes of one sample:", largest, limits::SAMPLE_BYTES_MAX)
    }

    fn is_ragged(&self) -> bool {
        self.tensors.iter().any(|tensor| tensor.locator == RowLocator::Ragged)
    }

    /// Returns the number of tensors with rows that a fill reads from objects, at least 1.
    fn tensors_read(&self) -> u32 {
        let read = self.tensors.iter().filter(|tensor| tensor.layout != Layout::Inline).count();
        u32::try_from(read.max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the bytes of the ragged rows of one sample.
    fn ragged_bytes(&self, group: &GroupSpec, row: usize) -> u64 {
        let columns = self.tensors.iter().zip(&group.columns);
        let ragged = columns.filter(|(tensor, _)| tensor.locator == RowLocator::Ragged);
        ragged.map(|(_, column)| column.row_bytes(row)).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of one sample's inline ragged values.
    fn inline_bytes(&self, group: &GroupSpec, row: usize) -> u64 {
        let columns = self.tensors.iter().zip(&group.columns);
        let ragged = columns.filter(|(tensor, _)| tensor.locator == RowLocator::Ragged);
        let values = ragged.filter_map(|(_, column)| column.inline());
        values.map(|values| values.value(row).len() as u64).sum()
    }

    /// Returns the bytes of a row and of a stride, summed over the tensors with rows of one length.
    fn sums(&self) -> (u64, u64) {
        self.tensors.iter().fold((0u64, 0u64), |(rows, strides), tensor| match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (rows.saturating_add(row_bytes), strides.saturating_add(stride_bytes))
            }
            RowLocator::Ragged => (rows, strides),
        })
    }

    /// Returns the bytes that each row takes in a leaf, without ragged values.
    fn table_bytes_a_row(&self) -> u64 {
        let of = |tensor: &TensorSpec| match (tensor.layout, tensor.locator) {
            (Layout::Column, _) | (Layout::Blocks, RowLocator::Strided { .. }) => 0,
            (Layout::Blocks, RowLocator::Ragged) => super::format::EndRecord::BYTES as u64,
            (Layout::Spans, _) => super::format::SpanRecord::BYTES as u64,
            (Layout::Inline, RowLocator::Strided { row_bytes, .. }) => row_bytes,
            (Layout::Inline, RowLocator::Ragged) => super::format::ValueRecord::BYTES as u64,
        };
        self.tensors.iter().map(of).fold(0, u64::saturating_add)
    }
}

fn at_most(what: &'static str, found: usize, limit: u64) -> Result<(), BuildError> {
    let found = found as u64;
    if found > limit { Err(BuildError::TooMuch { what, found, limit }) } else { Ok(()) }
}

/// Converts a length to the type of its field.
fn small<T: TryFrom<usize>>(length: usize) -> Result<T, BuildError> {
    T::try_from(length).map_err(|_| BuildError::TooMuch {
        what: "entries of a table:",
        found: length as u64,
        limit: u32::MAX.into(),
    })
}
