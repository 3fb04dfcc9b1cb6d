//! Parses a manifest that may be damaged or hostile. Every number is checked here, once, so that
//! later code can rely on it. Takes one pass over shards and objects, and copies only tensors.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::{SnapshotId, limits};

use super::{
    Inner, Manifest, RowLocator, Tensor,
    format::{
        self, Header, LOCATOR_SPANS, LOCATOR_STRIDED, MAGIC, SHARD_HAS_CHECKSUM, ShardRecord,
        SpanRecord, TensorRecord, VERSION,
    },
};
use crate::{Dtype, OriginUri, uri::check_path};

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
    /// The checksum does not match.
    #[error("the manifest's checksum does not hold: it was damaged, index the dataset again")]
    Checksum,
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

type Result<T> = std::result::Result<T, ManifestError>;

fn malformed<T>(field: &'static str, index: impl Into<u64>, why: &'static str) -> Result<T> {
    Err(ManifestError::Malformed { field, index: index.into(), why })
}

fn check(holds: bool, field: &'static str, index: impl Into<u64>, why: &'static str) -> Result<()> {
    if holds { Ok(()) } else { malformed(field, index, why) }
}

impl Manifest {
    /// Parses a manifest in memory.
    ///
    /// # Errors
    /// If the bytes break any rule of the format that [`ManifestBuilder`](crate::ManifestBuilder)
    /// keeps.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        Self::over(Arc::new(bytes))
    }

    /// Parses a manifest in place: in a mapped extent, for example.
    ///
    /// # Errors
    /// As [`Manifest::parse`].
    pub fn over(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Result<Self> {
        let header = check_frame((*bytes).as_ref())?;
        if header.hash != format::hash((*bytes).as_ref()) {
            return Err(ManifestError::Checksum);
        }
        Self::unhashed(bytes, header).and_then(|manifest| {
            manifest.check_shards()?;
            Ok(manifest)
        })
    }

    /// Parses a manifest without checking its hash and shards, for the builder, which computes them
    /// next.
    pub(super) fn unsealed(bytes: Vec<u8>) -> Result<Self> {
        let header = check_frame(&bytes)?;
        Self::unhashed(Arc::new(bytes), header)
    }

    fn unhashed(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>, header: Header) -> Result<Self> {
        let tables = header.tables().expect("checked with the frame");
        let view = (*bytes).as_ref();
        let names = &view[tables.names..tables.end];
        let uri = text(names, 0, header.uri_bytes.into(), "address", 0u64)?;
        let Ok(uri) = OriginUri::parse(uri) else {
            return malformed("address", 0u64, "can't be read");
        };
        let tensors = (0..header.tensor_count)
            .map(|index| {
                let record = TensorRecord::at(&view[tables.tensors..tables.shards], index as usize);
                read_tensor(index, &record, &header, names)
            })
            .collect::<Result<Box<[_]>>>()?;
        let snapshot = SnapshotId::from_bytes(header.hash);
        let manifest =
            Self { inner: Arc::new(Inner { bytes, header, tables, snapshot, uri, tensors }) };
        manifest.check_tensors()?;
        manifest.check_objects()?;
        Ok(manifest)
    }

    fn check_tensors(&self) -> Result<()> {
        let mut names: Vec<&str> = self.tensors().iter().map(Tensor::name).collect();
        names.sort_unstable();
        check(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "tensor",
            0u64,
            "has the name of another",
        )?;
        let mut tables: Vec<u32> = self
            .tensors()
            .iter()
            .filter(|t| t.locator == RowLocator::Spans)
            .map(|t| t.column)
            .collect();
        tables.sort_unstable();
        let expected = 0..self.inner.header.span_tables;
        check(
            tables.into_iter().eq(expected),
            "span table",
            0u64,
            "does not belong to one tensor",
        )?;
        // Otherwise the work of checking them would not be bounded by the bytes of the manifest.
        let mut columns: Vec<(u32, u32)> = self
            .tensors()
            .iter()
            .filter(|t| t.locator != RowLocator::Spans)
            .map(|t| (t.slot, t.column))
            .collect();
        columns.sort_unstable();
        check(
            columns.windows(2).all(|pair| pair[0] != pair[1]),
            "tensor",
            0u64,
            "has the column of another",
        )?;
        let (row, stride) = self.sample_sums();
        let limit = limits::SAMPLE_BYTES_MAX;
        check(row <= limit && stride <= limit, "sample", 0u64, "is larger than the limit")
    }

    fn check_objects(&self) -> Result<()> {
        let header = &self.inner.header;
        let mut first = 0;
        for group in 0..self.group_count() {
            let head = self.object_record(self.group_object(group, 0));
            check(
                head.first_sample == first,
                "group",
                group,
                "does not begin where the last one ended",
            )?;
            first = self.group_end(group);
            check(first > head.first_sample, "group", group, "has no samples")?;
            for slot in 0..header.objects_per_group {
                self.check_object(self.group_object(group, slot), head.first_sample)?;
            }
            self.check_columns(group, first - head.first_sample)?;
        }
        check(first == header.samples, "group", 0u64, "tables do not cover the samples")
    }

    fn check_object(&self, index: u32, first_sample: u64) -> Result<()> {
        let record = self.object_record(index);
        check(
            record.first_sample == first_sample,
            "object",
            index,
            "has other samples than its group",
        )?;
        let bytes = u64::from(record.key_bytes)
            + u64::from(record.etag_bytes)
            + u64::from(record.version_bytes);
        let names = self.names();
        // Each part must end where a character ends, so each is checked as text of its own.
        let mut at = record.names_at;
        check(
            at.checked_add(bytes).is_some_and(|end| end <= names.len() as u64),
            "object",
            index,
            "has names out of bounds",
        )?;
        let key = text(names, at, record.key_bytes.into(), "object", index)?;
        check(check_path(key).is_ok(), "object", index, "has a key that is not a plain path")?;
        at += u64::from(record.key_bytes);
        text(names, at, record.etag_bytes.into(), "object", index)?;
        at += u64::from(record.etag_bytes);
        text(names, at, record.version_bytes.into(), "object", index)?;
        Ok(())
    }

    /// Checks that every row of every tensor of a group lies inside its object.
    fn check_columns(&self, group: u32, rows: u64) -> Result<()> {
        for tensor in self.tensors() {
            let RowLocator::Strided { row_bytes, stride_bytes } = tensor.locator else {
                continue;
            };
            let object = self.group_object(group, tensor.slot);
            let end = (rows - 1)
                .checked_mul(stride_bytes)
                .and_then(|bytes| bytes.checked_add(row_bytes))
                .and_then(|bytes| bytes.checked_add(self.column(object, tensor.column)));
            let size = self.object_record(object).size_bytes;
            check(end.is_some_and(|end| end <= size), "object", object, "ends before its rows do")?;
        }
        Ok(())
    }

    fn check_shards(&self) -> Result<()> {
        let mut first = 0u64;
        let (row_sum, stride_sum) = self.sample_sums();
        let joinable = self.rows_touch();
        for index in 0..self.shard_count() {
            let field = |holds, why| check(holds, "shard", index, why);
            let record = self.shard_record(index);
            field(record.first_sample == first, "does not begin where the last one ended")?;
            field(record.rows > 0, "has no rows")?;
            field(record.flags & !SHARD_HAS_CHECKSUM == 0, "has unknown flags")?;
            first = first.saturating_add(record.rows.into());
            field(first <= self.samples(), "ends after the last sample")?;
            self.check_shard_place(index, &record, joinable)?;
            let ragged = self.check_spans(index, record.first_sample)?;
            let bytes = u64::from(record.rows - 1)
                .checked_mul(stride_sum)
                .and_then(|bytes| bytes.checked_add(row_sum))
                .and_then(|bytes| bytes.checked_add(ragged));
            field(bytes == Some(record.bytes), "has another size than its rows")?;
            field(record.bytes <= limits::SHARD_BYTES_MAX, "is larger than a shard may be")?;
        }
        check(first == self.samples(), "shard", 0u64, "tables do not cover the samples")
    }

    /// Checks that a shard begins in the group it names, and joins only groups that can be joined.
    fn check_shard_place(&self, index: u32, record: &ShardRecord, joinable: bool) -> Result<()> {
        let field = |holds, why| check(holds, "shard", index, why);
        field(record.first_group < self.group_count(), "begins in no group")?;
        let begin = self.group_begin(record.first_group);
        let end = self.group_end(record.first_group);
        let inside = record.row_in_group.checked_add(begin) == Some(record.first_sample)
            && record.first_sample < end;
        field(inside, "begins in another group than it says")?;
        let last = record.first_sample + u64::from(record.rows - 1);
        if last >= end {
            field(joinable, "joins rows that do not lie side by side")?;
            let joined = self.group_of(last) - record.first_group + 1;
            field(joined <= self.groups_per_shard_max(), "joins too many objects")?;
        }
        Ok(())
    }

    /// Checks the spans of a shard: they grow, lie inside their objects, are whole elements, fit
    /// the sample limit and need few reads. Returns the sum of their bytes.
    fn check_spans(&self, shard: u32, first_sample: u64) -> Result<u64> {
        let field = |holds, why| check(holds, "shard", shard, why);
        let strided = self.sample_sums().0;
        let mut columns: Vec<SpanColumn> =
            self.tensors().iter().filter_map(SpanColumn::of).collect();
        if columns.is_empty() {
            return Ok(0);
        }
        for segment in self.segments(shard) {
            for column in &mut columns {
                let object = self.group_object(segment.group, column.tensor.slot);
                column.enter(self.object_record(object).size_bytes);
            }
            for row in segment.row_in_shard..segment.row_in_shard + segment.rows {
                let mut sample_bytes = strided;
                for column in &mut columns {
                    let sample = first_sample + u64::from(row);
                    let bytes = column.take(&self.span_record(column.tensor.column, sample));
                    field(bytes.is_some(), "has a span that can't be")?;
                    sample_bytes = sample_bytes.saturating_add(bytes.unwrap_or(0));
                }
                let fits = sample_bytes <= limits::SAMPLE_BYTES_MAX;
                field(fits, "has a sample that is larger than the limit")?;
            }
        }
        let reads: u64 = columns.iter().map(|column| column.reads).sum();
        let few = reads <= limits::SHARD_READS_MAX.into();
        field(few, "has rows in more places than are read for one shard: put them side by side")?;
        Ok(columns.iter().fold(0, |sum: u64, column| sum.saturating_add(column.region_end)))
    }
}

/// The spans of one ragged tensor, during the pass over a shard.
struct SpanColumn<'a> {
    tensor: &'a Tensor,
    element_bytes: u64,
    /// Bytes of the object that holds the rows.
    object_bytes: u64,
    /// The end of the last row in it; `None` before its first row.
    object_end: Option<u64>,
    /// The end of the last row in the region.
    region_end: u64,
    /// Number of rows that do not begin where the row before ended.
    reads: u64,
}

impl<'a> SpanColumn<'a> {
    fn of(tensor: &'a Tensor) -> Option<Self> {
        tensor.is_ragged().then(|| Self {
            tensor,
            element_bytes: tensor.element_bytes(),
            object_bytes: 0,
            object_end: None,
            region_end: 0,
            reads: 0,
        })
    }

    /// Goes on in another object.
    fn enter(&mut self, object_bytes: u64) {
        (self.object_bytes, self.object_end) = (object_bytes, None);
    }

    /// Takes the next row. Returns its bytes, or `None` if the span is impossible.
    fn take(&mut self, span: &SpanRecord) -> Option<u64> {
        let bytes = span.region_end.checked_sub(self.region_end)?;
        let end = bytes.checked_add(span.object_offset)?;
        self.reads += u64::from(self.object_end != Some(span.object_offset));
        (self.region_end, self.object_end) = (span.region_end, Some(end));
        (bytes % self.element_bytes == 0 && end <= self.object_bytes).then_some(bytes)
    }
}

/// Checks the header, which must hold before any other part of the file is looked at.
fn check_frame(bytes: &[u8]) -> Result<Header> {
    if bytes.len() < Header::BYTES {
        return Err(ManifestError::NotAManifest);
    }
    let header = Header::at(bytes, 0);
    if header.magic != MAGIC {
        return Err(ManifestError::NotAManifest);
    }
    if header.version != VERSION {
        return Err(ManifestError::Version { found: header.version });
    }
    let found = bytes.len() as u64;
    if header.file_bytes != found {
        return Err(ManifestError::Length { said: header.file_bytes, found });
    }
    let field = |holds, why| check(holds, "header", 0u64, why);
    field(usize::try_from(header.header_bytes) == Ok(Header::BYTES), "has another size")?;
    field(
        (1..=limits::TENSORS_MAX).contains(&header.tensor_count),
        "counts no or too many tensors",
    )?;
    field(
        (1..=limits::OBJECTS_MAX).contains(&header.object_count),
        "counts no or too many objects",
    )?;
    field((1..=limits::SHARDS_MAX).contains(&header.shard_count), "counts no or too many shards")?;
    field(header.objects_per_group > 0, "has groups without objects")?;
    let objects = header.groups.checked_mul(header.objects_per_group.into());
    field(
        objects == Some(header.object_count.into()),
        "counts groups and objects that do not match",
    )?;
    field(header.samples > 0, "counts no samples")?;
    field(
        header.keys == 0
            || header.keys == header.samples && header.key_tensor < header.tensor_count,
        "has keys that are not one for each sample",
    )?;
    let end = header.tables().map(|tables| tables.end);
    field(end == Some(bytes.len()), "has tables that do not fill the file")?;
    Ok(header)
}

fn read_tensor(index: u32, record: &TensorRecord, header: &Header, names: &[u8]) -> Result<Tensor> {
    let field = |holds, why| check(holds, "tensor", index, why);
    let named = (1..=limits::TENSOR_NAME_BYTES_MAX).contains(&record.name_bytes);
    field(named, "has no name or a very long one")?;
    let name = text(names, record.name_at, record.name_bytes.into(), "tensor", index)?;
    let Some(dtype) = Dtype::from_code(record.dtype) else {
        return malformed("tensor", index, "has an unknown dtype");
    };
    field(record.dimensions <= limits::DIMENSIONS_MAX, "has too many dimensions")?;
    let shape = range(names, record.shape_at, u64::from(record.dimensions) * 8);
    let Some(shape) = shape else {
        return malformed("tensor", index, "has a shape out of bounds");
    };
    let shape: Vec<u64> = shape
        .chunks_exact(8)
        .map(|dim| u64::from_le_bytes(dim.try_into().expect("chunks of eight")))
        .collect();
    let element = shape.iter().try_fold(dtype.size_bytes(), |bytes, dim| bytes.checked_mul(*dim));
    field(record.slot < header.objects_per_group, "lies in no object of its group")?;
    let locator = match record.locator {
        LOCATOR_STRIDED => {
            let sizes = element == Some(record.row_bytes) && record.row_bytes > 0;
            field(sizes, "has rows of another size than its shape")?;
            field(record.stride_bytes > 0, "has rows that do not advance")?;
            let room = u64::from(format::COLUMNS_INLINE) + u64::from(header.extra_columns);
            field(u64::from(record.column) < room, "has no column")?;
            RowLocator::Strided { row_bytes: record.row_bytes, stride_bytes: record.stride_bytes }
        }
        LOCATOR_SPANS => {
            field(record.row_bytes == 0 && record.stride_bytes == 0, "has spans and a row size")?;
            field(record.column < header.span_tables, "has no span table")?;
            field(element.is_some_and(|bytes| bytes > 0), "has elements of no bytes or too many")?;
            RowLocator::Spans
        }
        _ => return malformed("tensor", index, "has an unknown locator"),
    };
    let name = name.to_owned();
    Ok(Tensor { name, dtype, shape, locator, slot: record.slot, column: record.column })
}

fn range(names: &[u8], at: u64, bytes: u64) -> Option<&[u8]> {
    let begin = usize::try_from(at).ok()?;
    let end = begin.checked_add(usize::try_from(bytes).ok()?)?;
    names.get(begin..end)
}

fn text<'a>(
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
