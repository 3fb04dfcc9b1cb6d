//! Pins checksums of shards: reads all data once and hashes it as an extent does. A fill can then
//! be checked against the snapshot without another pass over its bytes.

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::limits;

use super::{IndexProgress, Progress};
use crate::{
    DatasetError, Manifest, Origin,
    checksums::{TableWriter, sum_up, unit_crcs},
};

/// Returns the checksum of every shard, in order, and writes those of their units to `tables`.
/// Holds one region in memory at a time.
pub(super) async fn all(
    origin: &Origin,
    manifest: &Manifest,
    tables: &mut TableWriter<'_>,
    progress: Progress<'_>,
) -> Result<Vec<u64>, DatasetError> {
    let total = manifest.total_bytes();
    let mut done = 0;
    let mut checksums = Vec::with_capacity(manifest.shard_count() as usize);
    for shard in 0..manifest.shard_count() {
        let read = |bytes| {
            done += bytes;
            progress(IndexProgress::Checksums { done, total });
        };
        let units = shard_units(origin, manifest, shard, read).await?;
        checksums.push(sum_up(&units));
        tables.push(shard, &units).await?;
    }
    Ok(checksums)
}

/// Reads one shard from the origin, from exactly the objects that were indexed, and computes its
/// checksum. A pinned [`Shard::checksum`](crate::Shard::checksum) must equal it. Calls `read` with
/// the bytes of each region after reading it. Holds one region in memory at a time.
///
/// # Errors
/// If an object changed, is gone, or cannot be read after a few tries.
///
/// # Panics
/// If there is no such shard.
pub async fn shard_checksum(
    origin: &Origin,
    manifest: &Manifest,
    shard: u32,
    read: impl FnMut(u64),
) -> Result<u64, DatasetError> {
    Ok(sum_up(&shard_units(origin, manifest, shard, read).await?))
}

async fn shard_units(
    origin: &Origin,
    manifest: &Manifest,
    shard: u32,
    mut read: impl FnMut(u64),
) -> Result<Vec<u32>, DatasetError> {
    let mut units = Vec::new();
    for (index, tensor) in manifest.tensors().iter().enumerate() {
        let region = manifest.region(shard, tensor);
        let bytes = read_region(origin, manifest, shard, index).await?;
        units.extend(unit_crcs(&region, &bytes));
        read(region.bytes);
    }
    Ok(units)
}

/// Reads the rows of one tensor in a shard.
pub(super) async fn read_region(
    origin: &Origin,
    manifest: &Manifest,
    shard: u32,
    tensor: usize,
) -> Result<Vec<u8>, DatasetError> {
    let all = 0..manifest.region(shard, &manifest.tensors()[tensor]).bytes;
    // A region is at most a shard, and shards have a size limit.
    let mut bytes = Vec::with_capacity(usize::try_from(all.end).unwrap_or(0));
    let parts = manifest.region_reads(shard, tensor, &all, limits::CHECKSUM_PART_BYTES);
    let mut reads = stream::iter(parts)
        .map(|part| async move { origin.read_part(manifest, &part).await })
        .buffered(limits::CHECKSUM_PARTS_IN_FLIGHT);
    while let Some(part) = reads.try_next().await? {
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
