//! A small dataset in a folder, and its shards as extents.

use std::{ops::Range, sync::Arc};

use larder_dataset::{
    Dtype, GroupSpec, Manifest, ManifestBuilder, ObjectSpec, OriginUri, PartRead, RegionPlan,
    RowLocator, TensorSpec,
};
use larder_extent::{ExtentId, Filling, Layout, PagePreference, PartSpec, Region, Sealed};
use larder_wire::data::RowRef;

pub(super) const IMAGE_BYTES: usize = 6000;
pub(super) const LABEL_BYTES: usize = 8;
pub(super) const SAMPLES: u64 = 96;

/// A small dataset in a folder: 96 images and labels in twelve shards, or [`Fixture::ragged`].
pub(super) struct Fixture {
    pub(super) folder: tempfile::TempDir,
    pub(super) manifest: Manifest,
    bytes: Vec<u8>,
}

/// A tensor in the only object.
fn tensor(name: &str, dtype: Dtype, shape: Vec<u64>, locator: RowLocator) -> TensorSpec {
    TensorSpec { name: name.to_owned(), dtype, shape, slot: 0, locator }
}

fn strided(bytes: usize) -> RowLocator {
    RowLocator::Strided { row_bytes: bytes as u64, stride_bytes: bytes as u64 }
}

impl Fixture {
    pub(super) fn new() -> Arc<Self> {
        let bytes = SAMPLES * 6008;
        let tensors = vec![
            tensor("image", Dtype::U8, vec![IMAGE_BYTES as u64], strided(IMAGE_BYTES)),
            tensor("label", Dtype::I64, vec![], strided(LABEL_BYTES)),
        ];
        let columns = vec![0, SAMPLES * IMAGE_BYTES as u64];
        let fixture = Self::with(bytes, tensors, 8 * 6008, columns, vec![]);
        assert_eq!(fixture.manifest.shard_count(), 12);
        fixture
    }

    /// Texts of 0 to 12,000 bytes, in elements of four bytes, beside the labels.
    pub(super) fn ragged() -> Arc<Self> {
        let length = |sample: u64| match sample % 4 {
            0 => 0,
            1 => sample * 4,
            2 => 4 * (sample * 37 % 1024),
            _ => 4 * (sample * 37 % 3000),
        };
        let mut end = 0;
        let spans: Vec<Range<u64>> = (0..SAMPLES)
            .map(|sample| {
                let begin = end;
                end += length(sample);
                begin..end
            })
            .collect();
        let tensors = vec![
            tensor("text", Dtype::U16, vec![2], RowLocator::Spans),
            tensor("label", Dtype::I64, vec![], strided(LABEL_BYTES)),
        ];
        let bytes = end + SAMPLES * LABEL_BYTES as u64;
        let fixture = Self::with(bytes, tensors, 16 << 10, vec![end], vec![spans]);
        assert!(fixture.manifest.shard_count() > 8);
        fixture
    }

    fn with(
        bytes: u64,
        tensors: Vec<TensorSpec>,
        shard_bytes: u64,
        columns: Vec<u64>,
        spans: Vec<Vec<Range<u64>>>,
    ) -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..bytes)
            .map(|at| u8::try_from((at * 31 % 251) ^ (at / 6000 % 64)).unwrap())
            .collect();
        std::fs::write(folder.path().join("data.bin"), &bytes).unwrap();
        let uri = OriginUri::parse(&format!("file://{}", folder.path().display())).unwrap();
        let mut builder = ManifestBuilder::new(uri, tensors, shard_bytes);
        let (key, size_bytes) = ("data.bin".to_owned(), bytes.len() as u64);
        let object = ObjectSpec { key, etag: None, version: None, size_bytes, columns };
        builder.push(GroupSpec { rows: SAMPLES, objects: vec![object], spans });
        let manifest = builder.build().unwrap();
        Arc::new(Self { folder, manifest, bytes })
    }

    pub(super) fn row(&self, row: RowRef, tensor: usize) -> &[u8] {
        self.read(&self.manifest.row_read(row.shard, row.row, tensor))
    }

    pub(super) fn refs(&self, samples: impl Iterator<Item = u64>) -> Vec<RowRef> {
        let locate = |sample| self.manifest.locate(sample).unwrap();
        samples.map(locate).map(|(shard, row)| RowRef { shard, row }).collect()
    }

    /// The shard as a node would hand it out.
    pub(super) fn seal(&self, shard: u32) -> Sealed {
        let plan = self.manifest.fill_plan(shard, 1 << 20);
        let region = |region: &RegionPlan| match region.stride_bytes {
            0 => Region::Blocks { bytes: region.bytes },
            stride_bytes => {
                Region::Rows { rows: region.rows, row_bytes: region.row_bytes, stride_bytes }
            }
        };
        let regions: Vec<Region> = plan.regions.iter().map(region).collect();
        let spec = |read: &PartRead| PartSpec {
            region: read.tensor,
            range: read.region_offset..read.region_offset + read.bytes,
        };
        let parts = plan.reads.iter().map(spec).collect();
        let id = ExtentId::from_bytes(*self.manifest.shard(shard).id.as_bytes());
        let layout = Layout::new(&regions).unwrap();
        let filling = Filling::create(id, layout, parts, PagePreference::Small).unwrap();
        for (index, read) in plan.reads.iter().enumerate() {
            let mut part = filling.take_part(index).unwrap();
            part.write(self.read(read)).unwrap();
            part.finish().unwrap();
        }
        filling.seal().unwrap()
    }

    fn read(&self, read: &PartRead) -> &[u8] {
        let [at, bytes] =
            [read.object_offset, read.bytes].map(|number| usize::try_from(number).unwrap());
        &self.bytes[at..][..bytes]
    }
}
