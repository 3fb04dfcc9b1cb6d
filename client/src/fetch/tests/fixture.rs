//! A small dataset in a folder, and its shards as extents.

use std::sync::Arc;

use larder_dataset::{
    Dtype, GroupSpec, Manifest, ManifestBuilder, ObjectSpec, OriginUri, RowLocator, TensorSpec,
};
use larder_extent::{ExtentId, Filling, Layout, PagePreference, PartSpec, Region, Sealed};
use larder_wire::data::RowRef;

pub(super) const IMAGE_BYTES: usize = 6000;
pub(super) const LABEL_BYTES: usize = 8;
pub(super) const SAMPLES: u64 = 96;

/// A small dataset in a folder: 96 images and labels in twelve shards.
pub(super) struct Fixture {
    pub(super) folder: tempfile::TempDir,
    pub(super) manifest: Manifest,
    bytes: Vec<u8>,
}

impl Fixture {
    pub(super) fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..SAMPLES * 6008)
            .map(|at| u8::try_from((at * 31 % 251) ^ (at / 6000 % 64)).unwrap())
            .collect();
        std::fs::write(folder.path().join("data.bin"), &bytes).unwrap();
        let uri = OriginUri::parse(&format!("file://{}", folder.path().display())).unwrap();
        let tensor = |name: &str, dtype, shape: Vec<u64>, bytes: usize| TensorSpec {
            name: name.to_owned(),
            dtype,
            shape,
            slot: 0,
            locator: RowLocator::Strided { row_bytes: bytes as u64, stride_bytes: bytes as u64 },
        };
        let tensors = vec![
            tensor("image", Dtype::U8, vec![IMAGE_BYTES as u64], IMAGE_BYTES),
            tensor("label", Dtype::I64, vec![], LABEL_BYTES),
        ];
        let mut builder = ManifestBuilder::new(uri, tensors, 8 * 6008);
        let object = ObjectSpec {
            key: "data.bin".to_owned(),
            etag: None,
            version: None,
            size_bytes: bytes.len() as u64,
            columns: vec![0, SAMPLES * IMAGE_BYTES as u64],
        };
        builder.push(GroupSpec { rows: SAMPLES, objects: vec![object], spans: vec![] });
        let manifest = builder.build().unwrap();
        assert_eq!(manifest.shard_count(), 12);
        Arc::new(Self { folder, manifest, bytes })
    }

    pub(super) fn row(&self, row: RowRef, tensor: usize) -> &[u8] {
        let read = self.manifest.row_read(row.shard, row.row, tensor);
        let [at, bytes] =
            [read.object_offset, read.bytes].map(|number| usize::try_from(number).unwrap());
        &self.bytes[at..][..bytes]
    }

    pub(super) fn refs(&self, samples: impl Iterator<Item = u64>) -> Vec<RowRef> {
        let locate = |sample| self.manifest.locate(sample).unwrap();
        samples.map(locate).map(|(shard, row)| RowRef { shard, row }).collect()
    }

    /// The shard as a node would hand it out.
    pub(super) fn seal(&self, shard: u32) -> Sealed {
        let rows = u64::from(self.manifest.shard(shard).rows);
        let widths = [IMAGE_BYTES, LABEL_BYTES].map(|bytes| bytes as u64);
        let regions =
            widths.map(|bytes| Region::Rows { rows, row_bytes: bytes, stride_bytes: bytes });
        let parts = widths.iter().enumerate();
        let parts =
            parts.map(|(region, bytes)| PartSpec { region, range: 0..rows * bytes }).collect();
        let id = ExtentId::from_bytes(*self.manifest.shard(shard).id.as_bytes());
        let layout = Layout::new(&regions).unwrap();
        let filling = Filling::create(id, layout, parts, PagePreference::Small).unwrap();
        for index in 0..widths.len() {
            let mut part = filling.take_part(index).unwrap();
            for row in 0..u32::try_from(rows).unwrap() {
                part.write(self.row(RowRef { shard, row }, index)).unwrap();
            }
            part.finish().unwrap();
        }
        filling.seal().unwrap()
    }
}
