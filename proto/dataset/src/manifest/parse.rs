//! Parses a root that may be damaged or hostile. Every number is checked here, once, so that later
//! code can rely on it. Takes one pass over shards and leaf records, and copies only tensors.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::{SnapshotId, limits};

use super::{
    Layout, Manifest, ManifestParts, RowLocator, Tensor,
    format::{self, ROOT_MAGIC, RootHeader, SHARD_HAS_CHECKSUM, TensorRecord, VERSION},
};
use crate::{Dtype, Logical, OriginUri};

/// Why bytes are not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Too few bytes, or another magic.
    #[error("this is not a larder manifest")]
    NotAManifest,
    /// Written by a version that this program does not know.
    #[error(
        "the manifest has version {found}, this program reads version {VERSION}: index the dataset again"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// The manifest was cut off or extended.
    #[error("the manifest says it has {said} bytes and has {found}")]
    Length {
        /// Bytes in the header's own count.
        said: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The bytes do not have the SHA-256 in the file's name.
    #[error("the bytes are not those of the file's name: it was damaged, index the dataset again")]
    Damaged,
    /// A number or name in it is impossible.
    #[error("the manifest is malformed: {field} {index} {why}")]
    Malformed {
        /// The kind of entry.
        field: &'static str,
        /// The index of the entry.
        index: u64,
        /// The mistake.
        why: &'static str,
    },
}

pub(super) type Result<T> = std::result::Result<T, ManifestError>;

pub(super) fn malformed<T>(
    field: &'static str,
    index: impl Into<u64>,
    why: &'static str,
) -> Result<T> {
    Err(ManifestError::Malformed { field, index: index.into(), why })
}

pub(super) fn check(
    holds: bool,
    field: &'static str,
    index: impl Into<u64>,
    why: &'static str,
) -> Result<()> {
    if holds { Ok(()) } else { malformed(field, index, why) }
}

impl Manifest {
    /// Parses a root in memory. Compare its [`snapshot`](Self::snapshot) with the expected one: it
    /// is the hash of these bytes.
    ///
    /// # Errors
    /// If the bytes break any rule of the format that [`ManifestBuilder`](crate::ManifestBuilder)
    /// keeps.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        Self::over(Arc::new(bytes))
    }

    /// Parses a root in place: in a mapped extent, for example.
    ///
    /// # Errors
    /// As [`Manifest::parse`].
    pub fn over(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Result<Self> {
        let view = (*bytes).as_ref();
        let header = check_frame(view)?;
        let tables = header.tables().expect("checked with the frame");
        let names = &view[tables.names..tables.metadata];
        let uri = text(names, 0, header.uri_bytes.into(), "address", 0u64)?;
        let Ok(uri) = OriginUri::parse(uri) else {
            return malformed("address", 0u64, "can't be read");
        };
        let metadata = std::str::from_utf8(&view[tables.metadata..tables.end]);
        check(metadata.is_ok(), "metadata", 0u64, "is not UTF-8")?;
        let mut ragged = 0u32..;
        let tensors = (0..header.tensor_count)
            .map(|index| {
                let record = TensorRecord::at(&view[tables.tensors..tables.shards], index as usize);
                read_tensor(index, &record, names, &mut ragged)
            })
            .collect::<Result<Box<[_]>>>()?;
        check(ragged.start == header.ragged_count, "header", 0u64, "miscounts ragged tensors")?;
        let snapshot = SnapshotId::from_bytes(format::sha256(view));
        let manifest = Self {
            inner: Arc::new(ManifestParts { bytes, header, tables, snapshot, uri, tensors }),
        };
        manifest.check_tensors()?;
        manifest.check_shards()?;
        manifest.check_leaves()?;
        Ok(manifest)
    }

    fn check_tensors(&self) -> Result<()> {
        let mut names: Vec<&str> = self.tensors().iter().map(Tensor::name).collect();
        names.sort_unstable();
        let distinct = names.windows(2).all(|pair| pair[0] != pair[1]);
        check(distinct, "tensor", 0u64, "has the name of another")?;
        let (row, stride) = self.sample_sums();
        let limit = limits::SAMPLE_BYTES_MAX;
        check(row <= limit && stride <= limit, "sample", 0u64, "is larger than the limit")
    }

    fn check_shards(&self) -> Result<()> {
        let mut first = 0u64;
        for index in 0..self.shard_count() {
            let field = |holds, why| check(holds, "shard", index, why);
            let record = self.shard_record(index);
            field(record.first_sample == first, "does not begin where the last one ended")?;
            field(record.rows > 0, "has no rows")?;
            field(record.flags & !SHARD_HAS_CHECKSUM == 0, "has unknown flags")?;
            first = first.saturating_add(record.rows.into());
            field(first <= self.samples(), "ends after the last sample")?;
            field(self.sum_of_regions(index) == Some(record.bytes), "is not its regions long")?;
            field(record.bytes <= limits::SHARD_BYTES_MAX, "is larger than a shard may be")?;
        }
        check(first == self.samples(), "shard", 0u64, "tables do not cover the samples")
    }

    /// Returns the bytes of all regions of a shard. `None` if they overflow.
    fn sum_of_regions(&self, shard: u32) -> Option<u64> {
        let more = u64::from(self.shard_record(shard).rows - 1);
        self.tensors().iter().enumerate().try_fold(0u64, |sum, (index, tensor)| {
            sum.checked_add(match tensor.locator {
                RowLocator::Strided { row_bytes, stride_bytes } => {
                    more.checked_mul(stride_bytes)?.checked_add(row_bytes)?
                }
                RowLocator::Ragged => self.region(shard, index).bytes,
            })
        })
    }

    fn check_leaves(&self) -> Result<()> {
        let (mut shard, mut objects) = (0u32, 0u64);
        for index in 0..self.leaf_count() {
            let field = |holds, why| check(holds, "leaf", index, why);
            let record = self.leaf_record(index);
            field(record.first_shard == shard, "does not begin where the last one ended")?;
            field(record.shards > 0, "has no shards")?;
            let end = shard.checked_add(record.shards);
            let Some(end) = end.filter(|end| *end <= self.shard_count()) else {
                return malformed("leaf", index, "ends after the last shard");
            };
            let first_sample = self.shard_record(shard).first_sample;
            field(record.first_sample == first_sample, "begins at another sample")?;
            field(record.flags == 0, "has unknown flags")?;
            let size = u64::from(record.file_bytes);
            field(size <= limits::LEAF_BYTES_MAX, "is larger than a leaf may be")?;
            let data: u64 = (shard..end).map(|shard| self.shard_record(shard).bytes).sum();
            field(record.data_bytes == data, "counts other bytes than its shards have")?;
            objects = objects.saturating_add(size / format::ObjectRecord::BYTES as u64);
            shard = end;
        }
        check(shard == self.shard_count(), "leaf", 0u64, "tables do not cover the shards")?;
        let few = self.object_count() <= objects;
        check(few, "header", 0u64, "counts more objects than its leaves have room for")
    }
}

/// Checks the header, which must hold before any other part of the file is looked at.
fn check_frame(bytes: &[u8]) -> Result<RootHeader> {
    // The version lies at one place in all versions; version 1 had a shorter header.
    let version = bytes.get(8..12).and_then(<[u8]>::first_chunk).copied();
    let (Some(version), true) = (version, bytes.starts_with(&ROOT_MAGIC)) else {
        return Err(ManifestError::NotAManifest);
    };
    let version = u32::from_le_bytes(version);
    if version != VERSION {
        return Err(ManifestError::Version { found: version });
    }
    if bytes.len() < RootHeader::BYTES {
        return Err(ManifestError::NotAManifest);
    }
    let header = RootHeader::at(bytes, 0);
    let found = bytes.len() as u64;
    if header.file_bytes != found {
        return Err(ManifestError::Length { said: header.file_bytes, found });
    }
    let field = |holds, why| check(holds, "header", 0u64, why);
    field(usize::try_from(header.header_bytes) == Ok(RootHeader::BYTES), "has another size")?;
    let some = |count, max| (1..=max).contains(&count);
    field(some(header.tensor_count, limits::TENSORS_MAX), "counts no or too many tensors")?;
    field(some(header.shard_count, limits::SHARDS_MAX), "counts no or too many shards")?;
    field(some(header.leaf_count, header.shard_count), "counts no leaves or too many")?;
    field(header.samples > 0, "counts no samples")?;
    field(
        header.keys == 0
            || header.keys == header.samples && header.key_tensor < header.tensor_count,
        "has keys that are not one for each sample",
    )?;
    field(header.metadata_bytes <= limits::METADATA_BYTES_MAX, "has too much metadata")?;
    let end = header.tables().map(|tables| tables.end);
    field(end == Some(bytes.len()), "has tables that do not fill the file")?;
    Ok(header)
}

/// Parses a tensor. One with ragged rows takes the next number of `ragged`.
fn read_tensor(
    index: u32,
    record: &TensorRecord,
    names: &[u8],
    ragged: &mut impl Iterator<Item = u32>,
) -> Result<Tensor> {
    let field = |holds, why| check(holds, "tensor", index, why);
    let named = (1..=limits::TENSOR_NAME_BYTES_MAX).contains(&record.name_bytes);
    field(named, "has no name or a very long one")?;
    let name = text(names, record.name_at, record.name_bytes.into(), "tensor", index)?;
    let Some(dtype) = Dtype::from_code(record.dtype) else {
        return malformed("tensor", index, "has an unknown dtype");
    };
    // Boolean columns of manifests from before there were logical types have the number of numbers.
    let logical = match Logical::from_code(record.logical) {
        Some(Logical::Number) => Some(Logical::of(dtype)),
        other => other.filter(|logical| logical.fits(dtype)),
    };
    let Some(logical) = logical else {
        return malformed("tensor", index, "has an unknown logical type, or one of other bytes");
    };
    let Some(layout) = Layout::from_code(record.layout) else {
        return malformed("tensor", index, "has an unknown layout");
    };
    field(record.dimensions <= limits::DIMENSIONS_MAX, "has too many dimensions")?;
    let shape = range(names, record.shape_at, u64::from(record.dimensions) * 8);
    let Some(shape) = shape else {
        return malformed("tensor", index, "has a shape out of bounds");
    };
    let (dimensions, _) = shape.as_chunks();
    let shape: Vec<u64> = dimensions.iter().map(|dim| u64::from_le_bytes(*dim)).collect();
    let element = shape.iter().try_fold(dtype.size_bytes(), |bytes, dim| bytes.checked_mul(*dim));
    field(element.is_some_and(|bytes| bytes > 0), "has elements of no bytes or too many")?;
    let (row_bytes, stride_bytes) = (record.row_bytes, record.stride_bytes);
    let locator = match (row_bytes, stride_bytes) {
        (0, 0) => RowLocator::Ragged,
        _ => RowLocator::Strided { row_bytes, stride_bytes },
    };
    let ragged = match locator {
        RowLocator::Ragged => {
            field(layout != Layout::Column, "is a column of rows of different lengths")?;
            ragged.next()
        }
        RowLocator::Strided { .. } => {
            field(element == Some(row_bytes), "has rows of another size than its shape")?;
            field(stride_bytes > 0, "has rows that do not advance")?;
            let short = layout != Layout::Inline || row_bytes <= limits::INLINE_ROW_BYTES_MAX;
            field(short, "has inline rows that are too long")?;
            let close = layout == Layout::Column || row_bytes == stride_bytes;
            field(close, "has rows that do not lie side by side")?;
            None
        }
    };
    Ok(Tensor { name: name.to_owned(), dtype, logical, shape, locator, layout, ragged })
}

pub(super) fn range(names: &[u8], at: u64, bytes: u64) -> Option<&[u8]> {
    let begin = usize::try_from(at).ok()?;
    let end = begin.checked_add(usize::try_from(bytes).ok()?)?;
    names.get(begin..end)
}

pub(super) fn text<'a>(
    names: &'a [u8],
    at: u64,
    bytes: u64,
    field: &'static str,
    index: impl Into<u64>,
) -> Result<&'a str> {
    let text = range(names, at, bytes).map(std::str::from_utf8);
    match text {
        Some(Ok(text)) => Ok(text),
        _ => malformed(field, index, "has a name out of bounds or not in UTF-8"),
    }
}
