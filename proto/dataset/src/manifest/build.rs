//! Builds a manifest: takes tensors and groups of objects, cuts shards and encodes the bytes.
//!
//! The result is parsed with the same checks that readers make. So a builder cannot write a
//! manifest that readers refuse.

mod cut;

use std::ops::Range;

use bytes::Bytes;
use larder_base::limits;

use super::{
    Manifest, ManifestError, RowLocator,
    format::{
        self, COLUMNS_INLINE, HASH_AT, Header, LOCATOR_SPANS, LOCATOR_STRIDED, MAGIC, ObjectRecord,
        SHARD_HAS_CHECKSUM, ShardRecord, SpanRecord, TensorRecord, VERSION,
    },
};
use crate::{Dtype, OriginUri, uri::UriError};
use cut::Cut;

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
    /// The shape of one sample; of rows with spans, that of one element of a row.
    pub shape: Vec<u64>,
    /// The slot of its object in each group.
    pub slot: u32,
    /// The layout of its rows in that object.
    pub locator: RowLocator,
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
    /// The offset of each strided tensor of its slot, in the order of the tensors.
    pub columns: Vec<u64>,
}

/// Objects side by side that hold the same samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// Number of samples.
    pub rows: u64,
    /// One object for each slot.
    pub objects: Vec<ObjectSpec>,
    /// For each tensor with spans, in order of the tensors: the bytes of each row in its object.
    pub spans: Vec<Vec<Range<u64>>>,
}

impl GroupSpec {
    /// Returns the bytes of the ragged rows of one sample.
    fn ragged_bytes(&self, row: usize) -> u64 {
        let bytes = self.spans.iter().map(|rows| rows[row].end.saturating_sub(rows[row].start));
        bytes.fold(0, u64::saturating_add)
    }
}

/// Builds a manifest.
#[derive(Debug)]
pub struct ManifestBuilder {
    uri: OriginUri,
    shard_bytes: u64,
    tensors: Vec<TensorSpec>,
    groups: Vec<GroupSpec>,
}

impl ManifestBuilder {
    /// Starts a dataset at `uri` with these tensors, to be cut into shards of about `shard_bytes`.
    pub fn new(uri: OriginUri, tensors: Vec<TensorSpec>, shard_bytes: u64) -> Self {
        Self { uri, shard_bytes, tensors, groups: Vec::new() }
    }

    /// Appends the samples of a group.
    pub fn push(&mut self, group: GroupSpec) {
        self.groups.push(group);
    }

    /// Builds the manifest of all groups pushed.
    ///
    /// # Errors
    /// If there are no samples, a limit is exceeded, or groups and tensors do not fit together.
    pub fn build(&self) -> Result<Manifest, BuildError> {
        self.check()?;
        let cuts = self.cut_shards()?;
        let mut bytes = self.encode(&cuts)?;
        // Sizes and ids of shards are computed by the code that readers check them with.
        let draft = Manifest::unsealed(bytes.clone())?;
        let at = draft.tables().shards;
        for (index, _) in (0u32..).zip(&cuts) {
            let mut record = draft.shard_record(index);
            record.bytes = draft.fill_bytes(index);
            record.id = *draft.compute_shard_id(index, None).as_bytes();
            replace(&mut bytes, at + index as usize * ShardRecord::BYTES, |out| record.encode(out));
        }
        drop(draft);
        Ok(seal(bytes)?)
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.groups.is_empty() || self.tensors.is_empty() {
            return Err(BuildError::Empty);
        }
        at_most("tensors:", self.tensors.len(), limits::TENSORS_MAX.into())?;
        let objects = self.groups.len() * self.slots() as usize;
        at_most("objects:", objects, limits::OBJECTS_MAX.into())?;
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
        let objects = group.objects.len() == self.slots() as usize;
        field(objects, "has another number of objects than the tensors name")?;
        let ragged = self.tensors.iter().filter(|t| t.locator == RowLocator::Spans).count();
        let spans = group.spans.len() == ragged
            && group.spans.iter().all(|rows| rows.len() as u64 == group.rows);
        field(spans, "does not have one span for each ragged row")?;
        self.check_rows(group)?;
        for (slot, object) in (0u32..).zip(&group.objects) {
            self.uri.join(&object.key)?;
            for (what, text) in
                [("bytes in an etag:", &object.etag), ("bytes in a version:", &object.version)]
            {
                let limit = limits::ETAG_BYTES_MAX as u64;
                at_most(what, text.as_ref().map_or(0, String::len), limit)?;
            }
            let columns = object.columns.len() == self.columns_of(slot);
            field(columns, "does not say where each of its tensors begins")?;
        }
        Ok(())
    }

    /// Checks that no sample exceeds the limit.
    fn check_rows(&self, group: &GroupSpec) -> Result<(), BuildError> {
        if group.spans.is_empty() {
            return Ok(());
        }
        let (strided, _) = self.sums();
        let rows = 0..group.spans[0].len();
        let largest = rows.map(|row| strided.saturating_add(group.ragged_bytes(row))).max();
        let largest = usize::try_from(largest.unwrap_or(0)).unwrap_or(usize::MAX);
        at_most("bytes of one sample:", largest, limits::SAMPLE_BYTES_MAX)
    }

    /// Returns the objects per group.
    fn slots(&self) -> u32 {
        self.tensors.iter().map(|t| t.slot + 1).max().unwrap_or(0)
    }

    fn columns_of(&self, slot: u32) -> usize {
        self.tensors.iter().filter(|t| t.slot == slot && t.locator != RowLocator::Spans).count()
    }

    /// Returns the bytes of a row and of a stride, summed over the strided tensors.
    fn sums(&self) -> (u64, u64) {
        self.tensors.iter().fold((0u64, 0u64), |(rows, strides), tensor| match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                (rows.saturating_add(row_bytes), strides.saturating_add(stride_bytes))
            }
            RowLocator::Spans => (rows, strides),
        })
    }

    fn encode(&self, cuts: &[Cut]) -> Result<Vec<u8>, BuildError> {
        let slots = self.slots();
        let columns = (0..slots).map(|slot| self.columns_of(slot)).max().unwrap_or(0);
        let extra_columns = columns.saturating_sub(COLUMNS_INLINE as usize);
        let span_tables = self.tensors.iter().filter(|t| t.locator == RowLocator::Spans).count();
        let mut names = self.uri.to_string().into_bytes();
        let uri_bytes = small(names.len())?;

        let mut body = Vec::new();
        self.encode_tensors(&mut body, &mut names)?;
        for cut in cuts {
            let record = ShardRecord {
                id: [0; 16],
                first_sample: cut.first_sample,
                bytes: 0,
                checksum: 0,
                row_in_group: cut.row_in_group,
                rows: cut.rows,
                first_group: cut.group,
                flags: 0,
            };
            record.encode(&mut body);
        }
        let mut extra = Vec::new();
        self.encode_objects(&mut body, &mut extra, &mut names, extra_columns)?;
        body.append(&mut extra);
        self.encode_spans(&mut body, cuts, span_tables);

        let file_bytes = (Header::BYTES + body.len() + names.len()) as u64;
        if file_bytes > limits::MANIFEST_BYTES_MAX {
            let limit = limits::MANIFEST_BYTES_MAX;
            return Err(BuildError::TooMuch {
                what: "bytes of manifest:",
                found: file_bytes,
                limit,
            });
        }
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            header_bytes: small(Header::BYTES)?,
            hash: [0; 32],
            file_bytes,
            samples: self.groups.iter().map(|g| g.rows).sum(),
            groups: self.groups.len() as u64,
            shard_count: small(cuts.len())?,
            object_count: small(self.groups.len() * slots as usize)?,
            tensor_count: small(self.tensors.len())?,
            objects_per_group: slots,
            extra_columns: small(extra_columns)?,
            span_tables: small(span_tables)?,
            names_bytes: names.len() as u64,
            uri_bytes,
            key_tensor: 0,
            keys: 0,
            key_of: [0; 32],
        };
        let mut bytes = Vec::with_capacity(Header::BYTES + body.len() + names.len());
        header.encode(&mut bytes);
        bytes.append(&mut body);
        bytes.append(&mut names);
        Ok(bytes)
    }

    fn encode_tensors(&self, body: &mut Vec<u8>, names: &mut Vec<u8>) -> Result<(), BuildError> {
        let mut columns = vec![0u32; self.slots() as usize];
        let mut span_tables = 0;
        for tensor in &self.tensors {
            let name_at = names.len() as u64;
            names.extend_from_slice(tensor.name.as_bytes());
            let shape_at = names.len() as u64;
            tensor.shape.iter().for_each(|dim| names.extend_from_slice(&dim.to_le_bytes()));
            let (locator, row_bytes, stride_bytes, counter) = match tensor.locator {
                RowLocator::Strided { row_bytes, stride_bytes } => {
                    (LOCATOR_STRIDED, row_bytes, stride_bytes, &mut columns[tensor.slot as usize])
                }
                RowLocator::Spans => (LOCATOR_SPANS, 0, 0, &mut span_tables),
            };
            let column = *counter;
            *counter += 1;
            let record = TensorRecord {
                name_at,
                shape_at,
                row_bytes,
                stride_bytes,
                name_bytes: small(tensor.name.len())?,
                dimensions: small(tensor.shape.len())?,
                slot: tensor.slot,
                column,
                dtype: tensor.dtype.code(),
                locator,
            };
            record.encode(body);
        }
        Ok(())
    }

    fn encode_objects(
        &self,
        body: &mut Vec<u8>,
        extra: &mut Vec<u8>,
        names: &mut Vec<u8>,
        extra_columns: usize,
    ) -> Result<(), BuildError> {
        let mut first_sample = 0;
        for group in &self.groups {
            for object in &group.objects {
                let etag = object.etag.as_deref().unwrap_or("");
                let version = object.version.as_deref().unwrap_or("");
                let names_at = names.len() as u64;
                for part in [&object.key, etag, version] {
                    names.extend_from_slice(part.as_bytes());
                }
                let column = |at: usize| object.columns.get(at).copied().unwrap_or(0);
                let record = ObjectRecord {
                    first_sample,
                    size_bytes: object.size_bytes,
                    names_at,
                    key_bytes: small(object.key.len())?,
                    etag_bytes: small(etag.len())?,
                    version_bytes: small(version.len())?,
                    columns: std::array::from_fn(column),
                };
                record.encode(body);
                for at in 0..extra_columns {
                    extra.extend_from_slice(&column(COLUMNS_INLINE as usize + at).to_le_bytes());
                }
            }
            first_sample += group.rows;
        }
        Ok(())
    }

    fn encode_spans(&self, body: &mut Vec<u8>, cuts: &[Cut], span_tables: usize) {
        for table in 0..span_tables {
            let mut rows = self.groups.iter().flat_map(|group| &group.spans[table]);
            for cut in cuts {
                let mut region_end = 0u64;
                for span in rows.by_ref().take(cut.rows as usize) {
                    region_end = region_end.saturating_add(span.end.saturating_sub(span.start));
                    SpanRecord { object_offset: span.start, region_end }.encode(body);
                }
            }
        }
    }
}

impl Manifest {
    /// Returns the same manifest with these checksums pinned, one for each shard: another snapshot.
    ///
    /// # Errors
    /// If there is not one checksum for each shard.
    pub fn with_checksums(&self, checksums: &[u64]) -> Result<Self, BuildError> {
        let expected = u64::from(self.shard_count());
        if checksums.len() as u64 != expected {
            let found = checksums.len() as u64;
            return Err(BuildError::TooMuch { what: "checksums:", found, limit: expected });
        }
        let mut bytes = self.as_bytes().to_vec();
        let at = self.tables().shards;
        for (index, checksum) in (0u32..).zip(checksums) {
            let mut record = self.shard_record(index);
            record.checksum = *checksum;
            record.id = *self.compute_shard_id(index, Some(*checksum)).as_bytes();
            record.flags |= SHARD_HAS_CHECKSUM;
            replace(&mut bytes, at + index as usize * ShardRecord::BYTES, |out| record.encode(out));
        }
        Ok(seal(bytes)?)
    }
}

/// Writes the hash and parses the whole with every check.
pub(super) fn seal(mut bytes: Vec<u8>) -> Result<Manifest, ManifestError> {
    let hash = format::hash(&bytes);
    bytes[HASH_AT].copy_from_slice(&hash);
    Manifest::parse(Bytes::from(bytes))
}

fn replace(bytes: &mut [u8], at: usize, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut record = Vec::with_capacity(ShardRecord::BYTES);
    encode(&mut record);
    bytes[at..at + record.len()].copy_from_slice(&record);
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
