//! The rows of one shard on the origin, to compare the rows of nodes with.

use larder_client::admin::{FetchError, Manifest, Origin, PartRead};
use tokio::task::JoinSet;

use crate::commands::dataset::read;

/// Bytes of one read.
const PART_BYTES: u64 = 8 << 20;
/// Reads in flight.
const PARTS_IN_FLIGHT: usize = 8;

/// All regions of one shard.
pub(super) struct SourceShard {
    pub(super) number: u32,
    regions: Vec<Vec<u8>>,
}

impl SourceShard {
    pub(super) async fn read(
        origin: &Origin,
        manifest: &Manifest,
        number: u32,
    ) -> Result<Self, FetchError> {
        let plan = manifest.fill_plan(number, PART_BYTES);
        let size = |bytes| usize::try_from(bytes).expect("a shard is at most 1 GiB");
        let mut regions: Vec<Vec<u8>> =
            plan.regions.iter().map(|region| vec![0; size(region.bytes)]).collect();
        for parts in plan.reads.chunks(PARTS_IN_FLIGHT) {
            let mut reads = JoinSet::new();
            for &part in parts {
                let (origin, manifest) = (origin.clone(), manifest.clone());
                reads.spawn(async move { part_bytes(&origin, &manifest, part).await });
            }
            while let Some(read) = reads.join_next().await {
                let (part, bytes) = read.expect("nothing in a read panics")?;
                let at = size(part.region_offset);
                regions[part.tensor][at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(Self { number, regions })
    }

    pub(super) fn row(&self, manifest: &Manifest, row: u32, tensor: usize) -> &[u8] {
        let (at, bytes) = manifest.row_in_region(self.number, row, tensor);
        let index = |offset: u64| usize::try_from(offset).expect("the region is in memory");
        &self.regions[tensor][index(at)..index(at + bytes)]
    }
}

async fn part_bytes(
    origin: &Origin,
    manifest: &Manifest,
    part: PartRead,
) -> Result<(PartRead, Vec<u8>), FetchError> {
    Ok((part, read::exact(origin, manifest, &part).await?))
}
