//! A small dataset in a folder, and its shards as extents.

use std::{ops::Range, sync::Arc};

use larder_base::RowRef;
use larder_dataset::{
    ColumnSpec, Dtype, GroupSpec, Layout, Leaf, Manifest, ManifestBuilder, ObjectSpec, OriginUri,
    RegionPart, RegionPlan, RowLocator, RowOrigin, Rows, Scatter, Snapshot, Spans, TensorSpec,
};
use larder_extent::{ExtentId, Filling, PagePreference, PartSpec, Region, Sealed};

pub(super) const IMAGE_BYTES: usize = 6000;
pub(super) const LABEL_BYTES: usize = 8;
pub(super) const SAMPLES: u64 = 96;

/// A small dataset in a folder: 96 images and labels in twelve shards, or [`Fixture::ragged`].
pub(super) struct Fixture {
    pub(super) folder: tempfile::TempDir,
    pub(super) manifest: Manifest,
    pub(super) leaf: Leaf,
    bytes: Vec<u8>,
}

/// A tensor in the only object.
fn tensor(name: &str, dtype: Dtype, shape: Vec<u64>, locator: RowLocator) -> TensorSpec {
    let layout = match locator {
        RowLocator::Strided { .. } => Layout::Column,
        RowLocator::Ragged => Layout::Spans,
    };
    let logical = larder_dataset::Logical::of(dtype);
    TensorSpec { name: name.to_owned(), dtype, logical, shape, locator, layout }
}

fn strided(bytes: usize) -> RowLocator {
    RowLocator::Strided { row_bytes: bytes as u64, stride_bytes: bytes as u64 }
}

/// Rows of one length from `begin` of the object on.
fn even(begin: u64, row_bytes: usize) -> Rows {
    Rows::Strided { begin, stride: row_bytes as u64 }
}

impl Fixture {
    pub(super) fn new() -> Arc<Self> {
        let bytes = SAMPLES * 6008;
        let tensors = vec![
            tensor("image", Dtype::U8, vec![IMAGE_BYTES as u64], strided(IMAGE_BYTES)),
            tensor("label", Dtype::I64, vec![], strided(LABEL_BYTES)),
        ];
        let labels = SAMPLES * IMAGE_BYTES as u64;
        let columns = vec![even(0, IMAGE_BYTES), even(labels, LABEL_BYTES)];
        let fixture = Self::with(bytes, tensors, 8 * 6008, columns);
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
        let (mut end, mut spans) = (0, Spans::default());
        for sample in 0..SAMPLES {
            spans.push(end, u32::try_from(length(sample)).unwrap());
            end += length(sample);
        }
        let tensors = vec![
            tensor("text", Dtype::U16, vec![2], RowLocator::Ragged),
            tensor("label", Dtype::I64, vec![], strided(LABEL_BYTES)),
        ];
        let bytes = end + SAMPLES * LABEL_BYTES as u64;
        let columns = vec![Rows::Spans(spans), even(end, LABEL_BYTES)];
        let fixture = Self::with(bytes, tensors, 16 << 10, columns);
        assert!(fixture.manifest.shard_count() > 8);
        fixture
    }

    fn with(
        bytes: u64,
        tensors: Vec<TensorSpec>,
        shard_bytes: u64,
        columns: Vec<Rows>,
    ) -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..bytes)
            .map(|at| u8::try_from((at * 31 % 251) ^ (at / 6000 % 64)).unwrap())
            .collect();
        std::fs::write(folder.path().join("data.bin"), &bytes).unwrap();
        let uri = OriginUri::parse(&format!("file://{}", folder.path().display())).unwrap();
        let mut builder = ManifestBuilder::new(uri, tensors, shard_bytes);
        let (key, size_bytes) = ("data.bin".to_owned(), bytes.len() as u64);
        let objects = vec![ObjectSpec { key, etag: None, version: None, size_bytes }];
        let columns = columns.into_iter().map(|rows| ColumnSpec { object: 0, rows }).collect();
        builder.push(GroupSpec { rows: SAMPLES, objects, columns });
        let Snapshot { manifest, leaves } = builder.build().unwrap();
        let [leaf] = &leaves[..] else { panic!("a small dataset has one leaf") };
        let leaf = leaf.clone();
        let home = folder.path().join(".larder/leaves");
        std::fs::create_dir_all(&home).unwrap();
        let name: String =
            manifest.leaf_sha256(0).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(home.join(name), leaf.as_bytes()).unwrap();
        Arc::new(Self { folder, manifest, leaf, bytes })
    }

    pub(super) fn row(&self, row: RowRef, tensor: usize) -> &[u8] {
        match self.manifest.row_source(&self.leaf, row, tensor) {
            RowOrigin::Object(read) => self.read(&read.range()),
            RowOrigin::Value(_) | RowOrigin::Block(..) => panic!("the rows lie in a file"),
        }
    }

    pub(super) fn refs(&self, samples: impl Iterator<Item = u64>) -> Vec<RowRef> {
        let locate = |sample| self.manifest.locate(sample).unwrap();
        samples.map(locate).collect()
    }

    /// The shard as a node would hand it out.
    pub(super) fn seal(&self, shard: u32) -> Sealed {
        let plan = self.manifest.fill_plan(&self.leaf, shard, 1 << 20);
        let region = |region: &RegionPlan| match region.stride_bytes {
            0 => Region::Blocks { bytes: region.bytes },
            stride_bytes => {
                Region::Rows { rows: region.rows, row_bytes: region.row_bytes, stride_bytes }
            }
        };
        let regions: Vec<Region> = plan.regions.iter().map(region).collect();
        let spec = |part: &RegionPart| PartSpec { region: part.tensor, range: part.region.clone() };
        let parts = plan.gets.iter().flat_map(|get| &get.parts).map(spec).collect();
        let id = ExtentId::from_bytes(*self.manifest.shard(shard).id.as_bytes());
        let layout = larder_extent::ExtentLayout::new(&regions).unwrap();
        let filling = Filling::create(id, layout, parts, PagePreference::Small).unwrap();
        let mut first = 0;
        for get in &plan.gets {
            let parts = first..first + get.parts.len();
            first = parts.end;
            let mut parts: Vec<_> = parts.map(|part| filling.take_part(part).unwrap()).collect();
            let mut scatter = Scatter::new(&self.manifest, &self.leaf, shard, get);
            let put = |part: usize, _, bytes: &[u8]| parts[part].write(bytes);
            scatter.take(self.read(&get.range), put).unwrap();
            parts.into_iter().for_each(|part| part.finish().unwrap());
        }
        filling.seal().unwrap()
    }

    fn read(&self, range: &Range<u64>) -> &[u8] {
        let [start, end] = [range.start, range.end].map(|number| usize::try_from(number).unwrap());
        &self.bytes[start..end]
    }
}
