//! The memory layout of a shard, and the reads that fill it.

use larder_base::limits;
use larder_dataset::{Manifest, PartRead, RegionPlan};
use larder_extent::{ExtentError, Layout, PartSpec, Region};

/// The layout and the reads of one shard. Read `i` fills part `i` of the extent.
#[derive(Debug)]
pub(crate) struct ShardPlan {
    pub(crate) layout: Layout,
    pub(crate) reads: Vec<PartRead>,
}

impl ShardPlan {
    /// Plans the fill of one shard.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) fn new(manifest: &Manifest, shard: u32) -> Result<Self, ExtentError> {
        let plan = manifest.fill_plan(shard, limits::FILL_PART_BYTES);
        let regions: Vec<_> = plan.regions.iter().map(region).collect();
        Ok(Self { layout: Layout::new(&regions)?, reads: plan.reads })
    }

    pub(crate) fn parts(&self) -> Vec<PartSpec> {
        let spec = |read: &PartRead| PartSpec {
            region: read.tensor,
            range: read.region_offset..read.region_offset + read.bytes,
        };
        self.reads.iter().map(spec).collect()
    }
}

/// Rows of different lengths have no stride. Their region is one run of bytes.
fn region(plan: &RegionPlan) -> Region {
    match plan.stride_bytes {
        0 => Region::Blocks { bytes: plan.bytes },
        stride_bytes => Region::Rows { rows: plan.rows, row_bytes: plan.row_bytes, stride_bytes },
    }
}
