//! Pinning what the shards hold: read everything once and hash it the way an extent sums it up, so
//! that a fill can be checked against the snapshot without another pass over its bytes.
//!
//! A shard's checksum is the xxh3-64 over the little-endian CRC32C values of its checksum units,
//! tensor by tensor. A unit is one row, or as many rows as fit into 4 KiB where rows have fewer than
//! 64 bytes, or a block of 4 KiB where rows differ in length.

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use futures_util::{StreamExt, TryStreamExt, stream};
use xxhash_rust::xxh3::Xxh3Default;

use super::{IndexProgress, Progress};
use crate::{DatasetError, FillPlan, Manifest, Origin, RegionPlan, limits};

/// Rows shorter than this share a unit.
const ROW_BYTES_ALONE: u64 = 64;
/// Bytes of rows that share a unit.
const UNIT_BYTES: u64 = 4096;

/// The checksum of every shard, in their order. Holds one region in memory at a time.
pub(super) async fn all(
    origin: &Origin,
    manifest: &Manifest,
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
        checksums.push(shard_checksum(origin, manifest, shard, read).await?);
    }
    Ok(checksums)
}

/// Reads one shard from the origin, from exactly the objects that were indexed, and computes its
/// checksum: what [`Shard::checksum`](crate::Shard::checksum) is where it was pinned. `read` is told
/// the bytes of each region once it was read. Holds one region in memory at a time.
///
/// # Errors
/// When an object changed, is gone, or can't be read after a few tries.
///
/// # Panics
/// If there is no such shard.
pub async fn shard_checksum(
    origin: &Origin,
    manifest: &Manifest,
    shard: u32,
    mut read: impl FnMut(u64),
) -> Result<u64, DatasetError> {
    let plan = manifest.fill_plan(shard, limits::CHECKSUM_PART_BYTES);
    let mut state = Xxh3Default::new();
    for (tensor, region) in plan.regions.iter().enumerate() {
        let bytes = read_region(origin, manifest, &plan, tensor, region).await?;
        unit_crcs(region, &bytes).for_each(|crc| state.update(&crc.to_le_bytes()));
        read(region.bytes);
    }
    Ok(state.digest())
}

async fn read_region(
    origin: &Origin,
    manifest: &Manifest,
    plan: &FillPlan,
    tensor: usize,
    region: &RegionPlan,
) -> Result<Vec<u8>, DatasetError> {
    // A region is at most a shard, whose size has a limit.
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

/// The CRC32C of each checksum unit of a region.
fn unit_crcs(region: &RegionPlan, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let whole = region.bytes;
    let (rows_per_unit, stride, row) = match region.row_bytes {
        0 => (1, UNIT_BYTES, UNIT_BYTES),
        row if row < ROW_BYTES_ALONE => (UNIT_BYTES / row, region.stride_bytes, row),
        row => (1, region.stride_bytes, row),
    };
    let rows = if region.row_bytes == 0 { whole.div_ceil(UNIT_BYTES) } else { region.rows };
    (0..rows.div_ceil(rows_per_unit)).map(move |unit| {
        let first = unit * rows_per_unit;
        let last = (first + rows_per_unit).min(rows) - 1;
        let range = first * stride..(last * stride + row).min(whole);
        let at = |offset: u64| usize::try_from(offset).expect("the region is in memory");
        let crc = crc_fast::checksum(Crc32Iscsi, &bytes[at(range.start)..at(range.end)]);
        u32::try_from(crc).expect("a CRC32C has 32 bits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        u32::try_from(crc_fast::checksum(Crc32Iscsi, bytes)).unwrap()
    }

    fn region(rows: u64, row_bytes: u64, stride_bytes: u64) -> RegionPlan {
        RegionPlan { rows, row_bytes, stride_bytes, bytes: (rows - 1) * stride_bytes + row_bytes }
    }

    #[test]
    fn crc32c_is_the_one_of_the_standard() {
        assert_eq!(crc(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn long_rows_are_units_of_their_own_even_where_they_overlap() {
        let bytes: Vec<u8> = (0..=255).collect();
        let found: Vec<u32> = unit_crcs(&region(3, 100, 50), &bytes[..200]).collect();
        assert_eq!(found, [crc(&bytes[0..100]), crc(&bytes[50..150]), crc(&bytes[100..200])]);
    }

    #[test]
    fn short_rows_share_units_and_the_last_is_shorter() {
        let bytes = vec![7; 3 * 1500];
        let found: Vec<u32> = unit_crcs(&region(1500, 3, 3), &bytes).collect();
        assert_eq!(found, [crc(&bytes[..1365 * 3]), crc(&bytes[..135 * 3])]);
    }
}
