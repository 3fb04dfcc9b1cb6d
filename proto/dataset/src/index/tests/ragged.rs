//! Ragged tensors: the accepted pairs, and the errors for all others.

use larder_base::RegionRef;

use super::*;
use crate::FetchError;

/// A tensor of a file: name, type, shape, bytes.
type Written<'a> = (&'a str, &'a str, Vec<u64>, Vec<u8>);

/// Makes a safetensors file with these tensors.
fn file(tensors: &[Written<'_>]) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (begin, end) = (data.len(), data.len() + bytes.len());
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
        ));
        data.extend_from_slice(bytes);
    }
    let mut file = safetensors(&format!("{{{}}}", entries.join(",")), 0);
    file.extend_from_slice(&data);
    file
}

fn offsets(values: &[i64]) -> Written<'static> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    ("x.offsets", "I64", vec![values.len() as u64], bytes)
}

fn elements(count: u64) -> Written<'static> {
    let bytes = (0..count * 6).map(|at| at.to_le_bytes()[0]).collect();
    ("x", "U16", vec![count, 3], bytes)
}

#[tokio::test]
async fn each_bad_pair_gets_one_error_and_publishes_nothing() {
    let narrow = |bytes: Vec<u8>| ("x.offsets", "I32", vec![bytes.len() as u64 / 4], bytes);
    let cases: Vec<(Vec<Written<'_>>, &str)> = vec![
        (vec![elements(5), offsets(&[1, 5])], "the first entry is 1 where it has to be 0"),
        (vec![elements(5), offsets(&[0, 3, 2, 5])], "entry 2 falls from 3 to 2"),
        (vec![elements(5), offsets(&[0, 3, 6])], "entry 2 is 6 where there are 5 elements"),
        (vec![elements(5), offsets(&[0, 3, 4])], "the last entry is 4 where all 5 elements"),
        (vec![elements(5), offsets(&[0, -1, 5])], "entry 1 is -1"),
        (vec![elements(5), offsets(&[0, i64::MAX, 5])], "entry 1 is 9223372036854775807 where"),
        (vec![elements(5), offsets(&[])], "has no entries"),
        (vec![elements(5), offsets(&[0])], "the last entry is 0 where all 5 elements"),
        (vec![elements(5), narrow([0i32, -2, 5].map(i32::to_le_bytes).concat())], "entry 1 is -2"),
        (
            vec![elements(5), ("x.offsets", "F32", vec![2], vec![0; 8])],
            "is F32 where U32, U64, I32 or I64 is needed: it says where the rows of 'x' begin",
        ),
        (vec![elements(5), ("x.offsets", "I64", vec![1, 2], vec![0; 16])], "has 2 dimensions"),
        (vec![elements(5), ("x.offsets", "I64", vec![], vec![0; 8])], "is a scalar"),
        (
            vec![("x", "U8", vec![5, 0], vec![]), offsets(&[0, 5])],
            "whose elements are not 1 to 1073741824 bytes long",
        ),
        (
            vec![elements(5), offsets(&[0, 5]), ("x.offsets.offsets", "I64", vec![1], vec![0; 8])],
            "is the offsets of offsets",
        ),
    ];
    for (tensors, says) in cases {
        let (origin, uri) = in_memory(&[("deep/a.safetensors", file(&tensors))]).await;
        let error = index(&origin, &uri, &IndexOptions::default(), &|_| {}).await;
        let error = error.map(|_| ()).expect_err(says).to_string();
        for part in [says, "deep/a.safetensors", "tensor 'x.offsets"] {
            assert!(error.contains(part), "'{error}' does not say '{part}'");
        }
        assert_eq!(origin.list(&uri).await.unwrap().len(), 1, "nothing is published: {says}");
    }
}

#[tokio::test]
async fn empty_rows_count_even_if_a_file_has_no_others() {
    let labels = |count: u8| ("y", "U8", vec![count.into()], (0..count).collect::<Vec<u8>>());
    let manifest = index_memory(&[
        ("a.safetensors", file(&[elements(0), offsets(&[0, 0, 0]), labels(2)])),
        ("b.safetensors", file(&[elements(5), offsets(&[0, 0, 4, 4, 5, 5]), labels(5)])),
        ("c.safetensors", file(&[elements(0), offsets(&[0]), labels(3)])),
    ])
    .await
    .map(|indexed| indexed.snapshot);
    // The last file has labels of samples that have no `x`.
    let error = manifest.unwrap_err().to_string();
    assert!(error.contains("'c.safetensors' does not"), "{error}");
    let Indexed { snapshot, left_out, .. } = index_memory(&[
        ("a.safetensors", file(&[elements(0), offsets(&[0, 0, 0]), labels(2)])),
        ("b.safetensors", file(&[elements(5), offsets(&[0, 0, 4, 4, 5, 5]), labels(5)])),
        ("c.safetensors", file(&[elements(0), offsets(&[0])])),
    ])
    .await
    .unwrap();
    let left: Vec<_> = left_out.iter().map(|left| (&*left.object, &*left.why)).collect();
    assert_eq!(left, [("c.safetensors", "holds no samples")]);
    let (manifest, places) = (&snapshot.manifest, snapshot.places());
    assert_eq!((manifest.samples(), manifest.shard_count()), (7, 1));
    let x = manifest.tensor_index("x").unwrap();
    let tensor = &manifest.tensors()[x];
    assert_eq!((tensor.shape(), tensor.element_bytes(), tensor.is_ragged()), (&[3][..], 6, true));
    let bytes: Vec<u64> = (0..7).map(|row| places.row(RowRef { shard: 0, row }, x).1).collect();
    assert_eq!(bytes, [0, 0, 0, 24, 0, 6, 0]);
}

#[tokio::test]
async fn refuses_tensor_that_is_ragged_in_some_files_only() {
    let error = index_memory(&[
        ("a.safetensors", file(&[elements(5), offsets(&[0, 2, 5])])),
        ("b.safetensors", file(&[elements(5)])),
    ])
    .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("ragged rows, in 'a.safetensors' and none in 'b.safetensors'"),
        "{error}"
    );
}

#[tokio::test]
async fn offsets_without_a_tensor_are_indexed_as_a_tensor() {
    let tensors = [("camera.offsets", "F32", vec![4, 2], vec![1; 32])];
    let manifest =
        index_memory(&[("a.safetensors", file(&tensors))]).await.unwrap().snapshot.manifest;
    assert_eq!((manifest.samples(), manifest.tensors()[0].row_bytes()), (4, 8));
}

#[tokio::test]
async fn refuses_too_many_ragged_rows_before_reading_any() {
    let folder = tempfile::tempdir().unwrap();
    // Two files of holes only: if the offsets were read, the first would be refused.
    let rows = limits::RAGGED_ROWS_MAX / 2 + 2;
    for name in ["a", "b"] {
        let (offsets, end) = (rows * 4, rows * 4 + 1);
        let header = format!(
            r#"{{"x.offsets":{{"dtype":"U32","shape":[{rows}],"data_offsets":[0,{offsets}]}},"x":{{"dtype":"U8","shape":[1],"data_offsets":[{offsets},{end}]}}}}"#
        );
        let path = folder.path().join(format!("{name}.safetensors"));
        std::fs::write(&path, safetensors(&header, 0)).unwrap();
        let size = 8 + header.len() as u64 + end;
        std::fs::File::options().write(true).open(path).unwrap().set_len(size).unwrap();
    }
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let error = index(&origin, &uri, &IndexOptions::default(), &|_| {}).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("67108866 ragged rows where at most 67108864"), "{error}");
}

/// Returns the bytes of a row of `x`.
fn row_bytes(row: usize, length: usize) -> Vec<u8> {
    (0..length * 6).map(|at| (row * 31 + at * 7).to_le_bytes()[0]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ragged_rows_read_back_for_any_shard_and_part_size(
        files in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(0usize), 0usize..5, 0usize..900], 1..40), 1..5,
        ),
        shard_bytes in 4096u64..20_000,
        checksum in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rows: Vec<Vec<u8>> =
            files.concat().into_iter().enumerate().map(|(row, length)| row_bytes(row, length)).collect();
        let mut first = 0;
        let mut written = Vec::new();
        for (number, lengths) in files.iter().enumerate() {
            let begins = lengths.iter().scan(0i64, |sum, length| {
                *sum += i64::try_from(*length).unwrap();
                Some(*sum)
            });
            let begins: Vec<i64> = [0].into_iter().chain(begins).collect();
            let data = rows[first..first + lengths.len()].concat();
            let labels: Vec<u8> = (first..first + lengths.len()).map(|row| row.to_le_bytes()[0]).collect();
            first += lengths.len();
            written.push((format!("{number}.safetensors"), file(&[
                ("x", "U16", vec![data.len() as u64 / 6, 3], data),
                ("label", "U8", vec![labels.len() as u64], labels),
                offsets(&begins),
            ])));
        }
        let files: Vec<(&str, Vec<u8>)> = written.iter().map(|(k, b)| (k.as_str(), b.clone())).collect();
        runtime.block_on(async {
            let (origin, uri) = in_memory(&files).await;
            let options = IndexOptions { shard_bytes, checksum, ..IndexOptions::default() };
            let snapshot = index(&origin, &uri, &options, &|_| {}).await.unwrap().snapshot;
            check_rows(&origin, &snapshot, &rows).await.unwrap();
            let manifest = &snapshot.manifest;
            for shard in 0..manifest.shard_count() {
                let facts = manifest.shard(shard);
                assert!(facts.bytes <= shard_bytes || facts.rows == 1, "{facts:?}");
            }
        });
    }
}

/// Reads every row of `x` alone and out of its region, and every label.
async fn check_rows(
    origin: &Origin,
    snapshot: &Snapshot,
    rows: &[Vec<u8>],
) -> Result<(), FetchError> {
    let manifest = &snapshot.manifest;
    let [label, x] = ["label", "x"].map(|name| manifest.tensor_index(name).unwrap());
    assert_eq!(manifest.samples(), rows.len() as u64);
    for shard in 0..manifest.shard_count() {
        let (facts, leaf) = (manifest.shard(shard), snapshot.leaf_of(shard));
        let all = 0..manifest.region(shard, x).bytes;
        let region =
            origin.read_region(manifest, leaf, RegionRef { shard, tensor: x }, &all).await?;
        for row in 0..facts.rows {
            let sample = usize::try_from(facts.first_sample).unwrap() + row as usize;
            let row = RowRef { shard, row };
            let alone = origin.read_row(manifest, leaf, row, x).await?;
            assert_eq!(alone, rows[sample], "row {sample}");
            let (at, bytes) = manifest.row_in_region(leaf, row, x);
            let [at, bytes] = [at, bytes].map(|number| usize::try_from(number).unwrap());
            assert_eq!(region[at..at + bytes], rows[sample], "row {sample} in its region");
            let number = origin.read_row(manifest, leaf, row, label).await?;
            assert_eq!(number, [sample.to_le_bytes()[0]]);
        }
    }
    Ok(())
}
