//! Pins checksums of shards: reads all data once and hashes it as an extent does. A fill can then
//! be checked against the snapshot without another pass over its bytes.

use std::convert::Infallible;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::{RegionRef, RowRef};
use ring::digest::{Context, SHA256};

use super::{IndexProgress, Progress};
use crate::{
    DatasetError, FetchError, Layout, Leaf, Manifest, Origin, Scatter, Snapshot,
    checksums::{TableWriter, sum_up, unit_crcs},
};

/// Bytes of one ranged read while checksums are computed.
const CHECKSUM_PART_BYTES: u64 = 8 << 20;

/// Ranged reads in flight while checksums are computed; memory held is this times the part.
const CHECKSUM_PARTS_IN_FLIGHT: usize = 8;

/// Blocks that are read at once. Each may be as large as a row group's column.
const BLOCKS_IN_FLIGHT: usize = 2;

/// Returns the checksum and the SHA-256 of every shard, in order, and writes the checksums of their
/// units to `tables`. Holds one region in memory at a time.
pub(super) async fn all(
    origin: &Origin,
    snapshot: &Snapshot,
    tables: &mut TableWriter<'_>,
    progress: Progress<'_>,
) -> Result<Vec<(u64, [u8; 32])>, DatasetError> {
    let manifest = &snapshot.manifest;
    let total = manifest.total_bytes();
    let mut done = 0;
    let mut checksums = Vec::with_capacity(manifest.shard_count() as usize);
    for shard in 0..manifest.shard_count() {
        let mut digest = Context::new(&SHA256);
        let mut units = Vec::new();
        for tensor in 0..manifest.tensors().len() {
            let (leaf, region) = (snapshot.leaf_of(shard), RegionRef { shard, tensor });
            let bytes = read_region(origin, manifest, leaf, region).await?;
            units.extend(unit_crcs(&manifest.region(shard, tensor), &bytes));
            put_lengths(&mut digest, manifest, leaf, region);
            digest.update(&bytes);
            done += bytes.len() as u64;
            progress(IndexProgress::Checksums { done, total });
        }
        let digest = digest.finish();
        let digest = digest.as_ref().first_chunk().expect("a SHA-256 has 32 bytes");
        checksums.push((sum_up(&units), *digest));
        tables.push(shard, &units).await?;
    }
    Ok(checksums)
}

/// Hashes the lengths of ragged rows. Their bytes alone do not tell where a row ends.
fn put_lengths(
    digest: &mut Context,
    manifest: &Manifest,
    leaf: &Leaf,
    RegionRef { shard, tensor }: RegionRef,
) {
    if manifest.tensors()[tensor].is_ragged() {
        for row in 0..manifest.shard(shard).rows {
            let (_, bytes) = manifest.row_in_region(leaf, RowRef { shard, row }, tensor);
            digest.update(&bytes.to_le_bytes());
        }
    }
}

/// Reads one shard from the origin, from exactly the objects that were indexed, and computes its
/// checksum. A pinned [`Shard::checksum`](crate::Shard::checksum) must equal it. Calls `read` with
/// the bytes of each region after reading it. Holds one region in memory at a time.
///
/// # Errors
/// If an object changed, is gone, or cannot be read after a few tries.
///
/// # Panics
/// If there is no such shard, or the leaf does not have it.
pub async fn shard_checksum(
    origin: &Origin,
    manifest: &Manifest,
    leaf: &Leaf,
    shard: u32,
    mut read: impl FnMut(u64),
) -> Result<u64, DatasetError> {
    let mut units = Vec::new();
    for tensor in 0..manifest.tensors().len() {
        let bytes = read_region(origin, manifest, leaf, RegionRef { shard, tensor }).await?;
        units.extend(unit_crcs(&manifest.region(shard, tensor), &bytes));
        read(bytes.len() as u64);
    }
    Ok(sum_up(&units))
}

/// Reads the rows of one tensor in a shard.
pub(super) async fn read_region(
    origin: &Origin,
    manifest: &Manifest,
    leaf: &Leaf,
    region: RegionRef,
) -> Result<Vec<u8>, DatasetError> {
    let RegionRef { shard, tensor } = region;
    if manifest.tensors()[tensor].layout() == Layout::Inline {
        return Ok(manifest.inline_region(leaf, shard, tensor).to_vec());
    }
    let wanted = 0..manifest.region(shard, tensor).bytes;
    // A region is at most a shard, and shards have a size limit.
    let mut bytes = vec![0; usize::try_from(wanted.end).unwrap_or(0)];
    let blocks = manifest.blocks(leaf, region, &wanted);
    let mut reads = stream::iter(blocks)
        .map(|block| async move {
            let stored = match block.range.is_empty() {
                true => Vec::new(),
                false => origin.read_range(leaf, block.object, &block.range).await?,
            };
            Ok::<_, DatasetError>((block, stored))
        })
        .buffered(BLOCKS_IN_FLIGHT);
    while let Some((block, stored)) = reads.try_next().await? {
        let mut target = [(wanted.clone(), &mut *bytes)];
        let made = manifest.make_into(leaf, shard, &block, &stored, &mut target);
        made.map_err(FetchError::from)?;
    }
    let gets = manifest.region_gets(leaf, region, &wanted, CHECKSUM_PART_BYTES);
    let mut reads = stream::iter(gets)
        .map(|get| async move {
            let body = origin.read_range(leaf, get.object, &get.range).await?;
            Ok::<_, DatasetError>((get, body))
        })
        .buffered(CHECKSUM_PARTS_IN_FLIGHT);
    while let Some((get, body)) = reads.try_next().await? {
        let put = |_, at: u64, row: &[u8]| {
            let at = usize::try_from(at).expect("inside the region");
            bytes[at..at + row.len()].copy_from_slice(row);
            Ok::<_, Infallible>(())
        };
        let Ok(()) = Scatter::new(manifest, leaf, shard, &get).take(&body, put);
    }
    Ok(bytes)
}
