//! Encodes the root. Sizes and ids of shards are computed by the code that readers check them with.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use larder_base::limits;
use ring::digest::{Context, SHA256};

use super::{BuildError, Cut, GroupSpec, ManifestBuilder, Snapshot, leaf::LeafFile, small};
use crate::manifest::{
    Leaf, Manifest, RowLocator, Tensor,
    format::{
        self, LEAF_HAS_DIGESTS, LeafHeader, LeafRecord, ROOT_MAGIC, RootHeader, SHARD_HAS_CHECKSUM,
        ShardRecord, TensorRecord, VERSION,
    },
};

/// Builds the snapshot of these leaves.
pub(super) fn build(
    builder: &ManifestBuilder,
    cuts: &[Cut],
    files: Vec<LeafFile>,
) -> Result<Snapshot, BuildError> {
    let draft = encode(builder, cuts, &files)?;
    let files: Vec<Bytes> = files.into_iter().map(|file| Bytes::from(file.bytes)).collect();
    let snapshot = sealed(draft, &files, |_| None)?;
    for shard in 0..snapshot.manifest.shard_count() {
        let leaf = snapshot.leaf_of(shard);
        let plan = snapshot.manifest.fill_plan(leaf, shard, limits::FILL_PART_BYTES);
        let (found, limit) = (plan.gets.len() as u64, limits::SHARD_READS_MAX.into());
        if found > limit {
            let what = "rows that lie far apart take one read each; reads of one shard:";
            return Err(BuildError::TooMuch { what, found, limit });
        }
    }
    Ok(snapshot)
}

/// Builds the same snapshot with a checksum and a SHA-256 for each shard.
pub(super) fn pinned(
    snapshot: &Snapshot,
    shards: &[(u64, [u8; 32])],
) -> Result<Snapshot, BuildError> {
    let Snapshot { manifest, leaves } = snapshot;
    let with_digests = |leaf: &Leaf| {
        let old = leaf.as_bytes();
        let mut header = LeafHeader::at(old, 0);
        let rest = header.tables().expect("of a parsed leaf").objects;
        header.flags |= LEAF_HAS_DIGESTS;
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        for shard in leaf.shards() {
            bytes.extend_from_slice(&shards[shard as usize].1);
        }
        bytes.extend_from_slice(&old[rest..]);
        Bytes::from(bytes)
    };
    let files: Vec<Bytes> = leaves.iter().map(with_digests).collect();
    let mut root = manifest.as_bytes().to_vec();
    let contents = contents(manifest.tensors(), shards);
    let header = RootHeader { contents, ..RootHeader::at(&root, 0) };
    replace(&mut root, 0..RootHeader::BYTES, |out| header.encode(out));
    sealed(root, &files, |shard| Some(shards[shard as usize].0))
}

/// Hashes tensors and data, without the places where they lie.
fn contents(tensors: &[Tensor], shards: &[(u64, [u8; 32])]) -> [u8; 32] {
    let mut state = Context::new(&SHA256);
    for tensor in tensors {
        let shape = tensor.shape.iter().flat_map(|dim| dim.to_le_bytes());
        state.update(&(tensor.name.len() as u64).to_le_bytes());
        state.update(tensor.name.as_bytes());
        state.update(&tensor.dtype.code().to_le_bytes());
        state.update(&tensor.logical.code().to_le_bytes());
        state.update(&[u8::from(tensor.is_ragged())]);
        state.update(&(tensor.shape.len() as u64).to_le_bytes());
        state.update(&shape.collect::<Vec<_>>());
    }
    shards.iter().for_each(|(_, digest)| state.update(digest));
    *state.finish().as_ref().first_chunk().expect("a SHA-256 has 32 bytes")
}

/// Writes the records of leaves and the ids of shards into a root, and parses all with every check.
/// `checksum` returns the checksum to pin for a shard.
fn sealed(
    mut root: Vec<u8>,
    files: &[Bytes],
    checksum: impl Fn(u32) -> Option<u64>,
) -> Result<Snapshot, BuildError> {
    let header = RootHeader::at(&root, 0);
    let tables = header.tables().expect("the root was encoded here");
    for (index, file) in files.iter().enumerate() {
        let at = tables.leaves + index * LeafRecord::BYTES;
        let record = LeafRecord {
            file_bytes: small(file.len())?,
            sha256: format::sha256(file),
            ..LeafRecord::at(&root[tables.leaves..], index)
        };
        replace(&mut root, at..at + LeafRecord::BYTES, |out| record.encode(out));
    }
    let draft = Manifest::parse(Bytes::from(root.clone()))?;
    for (number, file) in (0u32..).zip(files) {
        let leaf = Leaf::over(&draft, number, Arc::new(file.clone()))?;
        for shard in leaf.shards() {
            let pinned = checksum(shard);
            let mut record = draft.shard_record(shard);
            record.id = *draft.compute_shard_id(&leaf, shard, pinned).as_bytes();
            if let Some(checksum) = pinned {
                record.checksum = checksum;
                record.flags |= SHARD_HAS_CHECKSUM;
            }
            let at = tables.shards + shard as usize * ShardRecord::BYTES;
            replace(&mut root, at..at + ShardRecord::BYTES, |out| record.encode(out));
        }
    }
    drop(draft);
    let manifest = Manifest::parse(Bytes::from(root))?;
    let leaves = (0u32..).zip(files);
    let leaves = leaves.map(|(number, file)| Leaf::over(&manifest, number, Arc::new(file.clone())));
    Ok(Snapshot { leaves: leaves.collect::<Result<_, _>>()?, manifest })
}

/// Encodes a root without the ids of shards and the hashes of leaves.
fn encode(
    builder: &ManifestBuilder,
    cuts: &[Cut],
    files: &[LeafFile],
) -> Result<Vec<u8>, BuildError> {
    let mut names = builder.uri.to_string().into_bytes();
    let uri_bytes = small(names.len())?;
    let mut body = Vec::new();
    encode_tensors(builder, &mut body, &mut names)?;
    let regions = ragged_regions(builder, cuts)?;
    let sizes = shard_bytes(builder, cuts, &regions);
    for (cut, &bytes) in cuts.iter().zip(&sizes) {
        let (first_sample, rows) = (cut.first_sample, cut.rows);
        let record = ShardRecord { id: [0; 16], first_sample, bytes, checksum: 0, rows, flags: 0 };
        record.encode(&mut body);
    }
    for region in regions.iter().flatten() {
        body.extend_from_slice(&region.to_le_bytes());
    }
    for file in files {
        let shards = file.first_shard as usize..(file.first_shard + file.shards) as usize;
        let record = LeafRecord {
            first_shard: file.first_shard,
            shards: file.shards,
            file_bytes: 0,
            flags: 0,
            first_sample: cuts[shards.start].first_sample,
            data_bytes: sizes[shards].iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)),
            sha256: [0; 32],
        };
        record.encode(&mut body);
    }
    let objects: usize = builder.groups.iter().map(GroupSpec::objects_used).sum();
    let (names_bytes, metadata_bytes) = (names.len() as u64, builder.metadata.len() as u64);
    let file_bytes = (RootHeader::BYTES + body.len()) as u64 + names_bytes + metadata_bytes;
    if file_bytes > limits::MANIFEST_BYTES_MAX {
        let (what, limit) = ("bytes of manifest:", limits::MANIFEST_BYTES_MAX);
        return Err(BuildError::TooMuch { what, found: file_bytes, limit });
    }
    let header = RootHeader {
        magic: ROOT_MAGIC,
        version: VERSION,
        header_bytes: small(RootHeader::BYTES)?,
        contents: [0; 32],
        key_of: [0; 32],
        file_bytes,
        samples: builder.groups.iter().map(|group| group.rows).sum(),
        tensor_count: small(builder.tensors.len())?,
        shard_count: small(cuts.len())?,
        leaf_count: small(files.len())?,
        ragged_count: small(regions.len())?,
        keys: 0,
        key_tensor: 0,
        uri_bytes,
        names_bytes,
        metadata_bytes,
        object_count: objects as u64,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes.append(&mut body);
    bytes.append(&mut names);
    bytes.extend_from_slice(builder.metadata.as_bytes());
    Ok(bytes)
}

fn encode_tensors(
    builder: &ManifestBuilder,
    body: &mut Vec<u8>,
    names: &mut Vec<u8>,
) -> Result<(), BuildError> {
    for tensor in &builder.tensors {
        let name_at = names.len() as u64;
        names.extend_from_slice(tensor.name.as_bytes());
        let shape_at = names.len() as u64;
        tensor.shape.iter().for_each(|dim| names.extend_from_slice(&dim.to_le_bytes()));
        let (row_bytes, stride_bytes) = match tensor.locator {
            RowLocator::Strided { row_bytes, stride_bytes } => (row_bytes, stride_bytes),
            RowLocator::Ragged => (0, 0),
        };
        let record = TensorRecord {
            name_at,
            shape_at,
            row_bytes,
            stride_bytes,
            name_bytes: small(tensor.name.len())?,
            dimensions: small(tensor.shape.len())?,
            dtype: tensor.dtype.code(),
            layout: tensor.layout.code(),
            logical: tensor.logical.code(),
        };
        record.encode(body);
    }
    Ok(())
}

/// Returns the bytes of each ragged tensor in each shard.
fn ragged_regions(builder: &ManifestBuilder, cuts: &[Cut]) -> Result<Vec<Vec<u32>>, BuildError> {
    let tensors = builder.tensors.iter().enumerate();
    let ragged = tensors.filter(|(_, tensor)| tensor.locator == RowLocator::Ragged);
    let regions = ragged.map(|(tensor, _)| {
        let mut rows = builder.groups.iter().flat_map(|group| {
            let column = &group.columns[tensor];
            group.row_indices().map(|row| column.row_bytes(row))
        });
        let region = |cut: &Cut| {
            let bytes: u64 = rows.by_ref().take(cut.rows as usize).fold(0, u64::saturating_add);
            let (what, limit) = ("bytes of one shard:", limits::SHARD_BYTES_MAX);
            let too_much = |_| BuildError::TooMuch { what, found: bytes, limit };
            u32::try_from(bytes).map_err(too_much)
        };
        cuts.iter().map(region).collect()
    });
    regions.collect()
}

/// Returns the bytes of all regions of each shard.
fn shard_bytes(builder: &ManifestBuilder, cuts: &[Cut], regions: &[Vec<u32>]) -> Vec<u64> {
    let (row, stride) = builder.sums();
    let bytes = |(shard, cut): (usize, &Cut)| {
        let even = u64::from(cut.rows - 1).saturating_mul(stride).saturating_add(row);
        let ragged = regions.iter().map(|region| u64::from(region[shard]));
        ragged.fold(even, u64::saturating_add)
    };
    cuts.iter().enumerate().map(bytes).collect()
}

fn replace(bytes: &mut [u8], range: Range<usize>, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut record = Vec::with_capacity(range.len());
    encode(&mut record);
    bytes[range].copy_from_slice(&record);
}
