//! Pins checksums of shards: reads all data once and hashes it as an extent does. A fill can then
//! be checked against the snapshot without another pass over its bytes.

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_base::limits;

use super::{IndexProgress, Progress};
use crate::{
    DatasetError, FillPlan, Manifest, Origin, RegionPlan,
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
    let plan = manifest.fill_plan(shard, limits::CHECKSUM_PART_BYTES);
    let mut units = Vec::new();
    for (tensor, region) in plan.regions.iter().enumerate() {
        let bytes = read_region(origin, manifest, &plan, tensor, region).await?;
        units.extend(unit_crcs(region, &bytes));
        read(region.bytes);
    }
    Ok(units)
}

async fn read_region(
    origin: &Origin,
    manifest: &Manifest,
    plan: &FillPlan,
    tensor: usize,
    region: &RegionPlan,
) -> Result<Vec<u8>, DatasetError> {
    // A region is at most a shard, and shards have a size limit.
    let mut bytes = Vec::with_capacity(usize::try_from(region.bytes).unwrap_or(0));
    let parts: Vec<_> = plan.reads.iter().filter(|part| part.tensor == tensor).copied().collect();
    let mut reads = stream::iter(parts)
        .map(|part| async move { origin.read_part(manifest, &part).await })
        .buffered(limits::CHECKSUM_PARTS_IN_FLIGHT);
    while let Some(part) = reads.try_next().await? {
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
