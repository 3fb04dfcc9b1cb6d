//! Files written by the Python packages safetensors and numpy, indexed in place. Every row read
//! through the manifest must equal the row that Python wrote.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path};

use larder_base::{RegionRef, RowRef};
use larder_dataset::{
    DatasetError, DatasetRef, Dtype, FetchError, IndexOptions, Indexed, Leaf, Manifest,
    ManifestLocation, Origin, OriginError, OriginUri, Snapshot, TokenSpec, index, open,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    dtype: String,
    shape: Vec<u64>,
    rows: Vec<u32>,
}

fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures"))
}

fn expected(dataset: &str) -> BTreeMap<String, Expected> {
    let json = std::fs::read(fixtures().join("expected.json")).unwrap();
    let mut all: BTreeMap<String, BTreeMap<String, Expected>> =
        serde_json::from_slice(&json).unwrap();
    all.remove(dataset).unwrap()
}

/// Returns a writable copy of a fixture, and its address.
fn copy(dataset: &str) -> (tempfile::TempDir, OriginUri) {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixtures().join(dataset)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let uri = OriginUri::parse(&format!("file://{}", folder.path().display())).unwrap();
    (folder, uri)
}

async fn indexed(uri: &OriginUri, options: &IndexOptions) -> (Origin, Indexed) {
    let origin = Origin::connect(uri).await.unwrap();
    let indexed = index(&origin, uri, options, &|_| {}).await.unwrap();
    (origin, indexed)
}

fn crc32(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes)).unwrap()
}

/// Reads every row twice: alone, and out of the regions of its filled shard.
async fn check_rows(origin: &Origin, snapshot: &Snapshot, dataset: &str) {
    let manifest = &snapshot.manifest;
    let expected = expected(dataset);
    assert_eq!(manifest.tensors().len(), expected.len());
    let rows: Vec<&Expected> = manifest.tensors().iter().map(|t| &expected[t.name()]).collect();
    for (tensor, expected) in manifest.tensors().iter().zip(&rows) {
        assert_eq!(tensor.dtype().safetensors_name(), expected.dtype);
        assert_eq!(tensor.shape(), expected.shape);
        assert_eq!(manifest.samples(), expected.rows.len() as u64);
    }
    for shard in 0..manifest.shard_count() {
        let leaf = snapshot.leaf_of(shard);
        let regions = fill(origin, manifest, leaf, shard).await;
        for row in 0..manifest.shard(shard).rows {
            let sample = manifest.shard(shard).first_sample + u64::from(row);
            let row = RowRef { shard, row };
            assert_eq!(manifest.locate(sample), Some(row));
            for (tensor, expected) in rows.iter().enumerate() {
                let expected = expected.rows[usize::try_from(sample).unwrap()];
                let alone = origin.read_row(manifest, leaf, row, tensor).await.unwrap();
                assert_eq!(crc32(&alone), expected, "sample {sample} of tensor {tensor}");
                let (offset, bytes) = manifest.row_in_region(leaf, row, tensor);
                let offset = usize::try_from(offset).unwrap();
                let bytes = usize::try_from(bytes).unwrap();
                assert_eq!(regions[tensor][offset..offset + bytes], alone);
            }
        }
    }
}

async fn fill(origin: &Origin, manifest: &Manifest, leaf: &Leaf, shard: u32) -> Vec<Vec<u8>> {
    let mut regions = Vec::new();
    for (tensor, region) in manifest.regions(shard).iter().enumerate() {
        let all = 0..region.bytes;
        let place = RegionRef { shard, tensor };
        regions.push(origin.read_region(manifest, leaf, place, &all).await.unwrap());
    }
    regions
}

#[tokio::test]
async fn concatenates_safetensors_files_and_lists_unused_tensors() {
    let (folder, uri) = copy("safetensors");
    std::fs::write(folder.path().join("README.md"), "about").unwrap();
    let options = IndexOptions { shard_bytes: 4096, ..IndexOptions::default() };
    let (origin, indexed) = indexed(&uri, &options).await;
    check_rows(&origin, &indexed.snapshot, "safetensors").await;
    assert!(indexed.snapshot.manifest.shard_count() > 3);
    let left: Vec<String> = indexed
        .left_out
        .iter()
        .map(|l| format!("{}:{}", l.object, l.tensor.as_deref().unwrap_or("")))
        .collect();
    assert_eq!(left.len(), 7, "{left:?}");
    assert!(left.contains(&"README.md:".into()));
    assert!(left.contains(&"digits-00001.safetensors:class_weight".into()));
    assert!(left.contains(&"digits-00002.safetensors:scale".into()));
}

#[tokio::test]
async fn reads_ragged_rows_as_python_wrote_them() {
    for dataset in ["ragged-safetensors", "ragged-npy"] {
        for shard_bytes in [4096, 64 << 20] {
            let (_folder, uri) = copy(dataset);
            let options = IndexOptions { shard_bytes, checksum: true, ..IndexOptions::default() };
            let (origin, Indexed { snapshot, left_out, .. }) = indexed(&uri, &options).await;
            check_rows(&origin, &snapshot, dataset).await;
            let manifest = &snapshot.manifest;
            assert_eq!(left_out, [], "offsets are no tensors, and used");
            let ragged =
                |name: &str| manifest.tensors()[manifest.tensor_index(name).unwrap()].is_ragged();
            assert!(ragged("text") && !ragged("number"));
            let largest =
                (0..manifest.shard_count()).map(|shard| manifest.shard(shard).bytes).max();
            assert!(largest <= Some(shard_bytes), "{largest:?}: no row is as large as a shard");
            assert_eq!(manifest.shard_count() == 1, shard_bytes > 4096);
        }
    }
}

#[tokio::test]
async fn reads_types_that_numpy_lacks() {
    let (_folder, uri) = copy("bf16");
    let (origin, indexed) = indexed(&uri, &IndexOptions::default()).await;
    check_rows(&origin, &indexed.snapshot, "bf16").await;
}

#[tokio::test]
async fn npy_files_side_by_side_are_tensors_of_the_same_samples() {
    let (_folder, uri) = copy("npy");
    let options = IndexOptions { shard_bytes: 4096, ..IndexOptions::default() };
    let (origin, indexed) = indexed(&uri, &options).await;
    check_rows(&origin, &indexed.snapshot, "npy").await;
}

#[tokio::test]
async fn windows_over_token_files_are_samples() {
    let (_folder, uri) = copy("tokens");
    let tokens = Some(TokenSpec { dtype: Dtype::U16, window: 64, stride: 48, offset: None });
    let options = IndexOptions { shard_bytes: 4096, tokens, ..IndexOptions::default() };
    let (origin, indexed) = indexed(&uri, &options).await;
    check_rows(&origin, &indexed.snapshot, "tokens").await;
}

#[tokio::test]
async fn indexes_a_dataset_once_and_finds_it_by_tag_and_snapshot() {
    let (_folder, uri) = copy("safetensors");
    let dataset = DatasetRef::parse(&uri.to_string()).unwrap();
    let first = open(&dataset, None).await.unwrap();
    assert!(first.indexed_now);
    assert!(matches!(first.location, ManifestLocation::Beside(_)));
    let second = open(&dataset, None).await.unwrap();
    assert!(!second.indexed_now);
    assert_eq!(second.manifest.snapshot(), first.manifest.snapshot());
    let by_hash = DatasetRef::parse(&format!("{uri}@{}", first.manifest.snapshot())).unwrap();
    assert_eq!(open(&by_hash, None).await.unwrap().manifest.snapshot(), first.manifest.snapshot());
    let absent = DatasetRef::parse(&format!("{uri}@v9")).unwrap();
    let error = open(&absent, None).await.unwrap_err().to_string();
    assert!(error.contains("v9"), "{error}");
}

#[tokio::test]
async fn opens_manifest_at_another_address_by_folder_or_file() {
    let (_folder, uri) = copy("npy");
    let elsewhere = tempfile::tempdir().unwrap();
    let home = OriginUri::parse(&format!("file://{}", elsewhere.path().display())).unwrap();
    let options = IndexOptions {
        manifest: Some(home.clone()),
        tag: Some("v1".into()),
        ..IndexOptions::default()
    };
    let (_, indexed) = indexed(&uri, &options).await;
    let location = indexed.location.uri().clone();
    assert!(location.starts_with(&home));
    let tagged = DatasetRef::parse(&format!("{uri}@v1")).unwrap();
    assert!(open(&tagged, None).await.is_err());
    for manifest in [&home, &location] {
        let opened = open(&tagged, Some(manifest)).await.unwrap();
        assert!(!opened.indexed_now);
        assert_eq!(opened.manifest.snapshot(), indexed.snapshot.manifest.snapshot());
    }
}

#[tokio::test]
async fn makes_no_manifest_at_a_given_address() {
    let (_folder, uri) = copy("npy");
    let elsewhere = tempfile::tempdir().unwrap();
    let home = OriginUri::parse(&format!("file://{}", elsewhere.path().display())).unwrap();
    let dataset = DatasetRef::parse(&format!("{uri}@v1")).unwrap();
    for dataset in [&dataset, &DatasetRef::latest(uri.clone())] {
        let error = open(dataset, Some(&home)).await.unwrap_err();
        assert!(matches!(error, DatasetError::NoManifest { .. }), "{error}");
        let command = format!("larder dataset index {uri} --manifest {home}");
        assert!(error.hint().is_some_and(|hint| hint.contains(&command)), "{error}");
    }
    let made = std::fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(made, 0);
}

#[tokio::test]
async fn refuses_data_that_was_moved_since_indexing() {
    let (folder, uri) = copy("npy");
    open(&DatasetRef::latest(uri.clone()), None).await.unwrap();
    let new = tempfile::tempdir().unwrap();
    let path = new.path().join("moved");
    std::fs::rename(folder.path(), &path).unwrap();
    let moved = OriginUri::parse(&format!("file://{}", path.display())).unwrap();
    let moved = DatasetRef::latest(moved);
    let error = open(&moved, None).await.unwrap_err();
    assert!(matches!(error, DatasetError::Moved { .. }), "{error}");
    let (said, hint) = (error.to_string(), error.hint().unwrap_or_default());
    assert!(hint.contains(&format!("larder dataset index {}", moved.uri())), "{hint}");
    assert!(said.contains(&format!("data at {uri}")), "{said}");
    indexed(moved.uri(), &IndexOptions::default()).await;
    open(&moved, None).await.unwrap();
}

#[tokio::test]
async fn pins_checksums_on_request_and_they_change_with_the_bytes() {
    let (folder, uri) = copy("safetensors");
    let options = IndexOptions { shard_bytes: 4096, checksum: true, ..IndexOptions::default() };
    let (_, first) = indexed(&uri, &options).await;
    let sums = |manifest: &Manifest| -> Vec<u64> {
        (0..manifest.shard_count()).map(|s| manifest.shard(s).checksum.unwrap()).collect()
    };
    let (_, again) = indexed(&uri, &options).await;
    assert_eq!(first.snapshot.manifest.snapshot(), again.snapshot.manifest.snapshot());
    let path = folder.path().join("digits-00002.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (_, changed) = indexed(&uri, &options).await;
    let differ = sums(&first.snapshot.manifest)
        .iter()
        .zip(sums(&changed.snapshot.manifest))
        .filter(|(a, b)| *a != b)
        .count();
    assert_eq!(differ, 1);
}

#[tokio::test]
async fn refuses_to_read_a_file_changed_after_indexing() {
    let (folder, uri) = copy("npy");
    let (origin, indexed) = indexed(&uri, &IndexOptions::default()).await;
    let path = folder.path().join("image-0.npy");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(folder.path().join("new"), bytes).unwrap();
    std::fs::rename(folder.path().join("new"), &path).unwrap();
    let Snapshot { manifest, leaves } = &indexed.snapshot;
    let error =
        origin.read_row(manifest, &leaves[0], RowRef { shard: 0, row: 0 }, 0).await.unwrap_err();
    assert!(error.is_changed() && !error.is_retryable(), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error =
        origin.read_row(manifest, &leaves[0], RowRef { shard: 0, row: 0 }, 0).await.unwrap_err();
    let gone = matches!(error, FetchError::Origin(OriginError::NotFound { .. }));
    assert!(gone, "{error}");
}

#[test]
fn indexing_and_opening_can_be_spawned() {
    fn is_send<T: Send>(_: &T) {}
    let uri = OriginUri::parse("file:///nowhere").unwrap();
    let dataset = DatasetRef::latest(uri);
    is_send(&open(&dataset, None));
}
