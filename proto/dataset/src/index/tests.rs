//! Hostile files: each gets one clear error, and nothing is published. Odd files are left out or
//! understood. Mutated files never panic a parser.

mod hostile;
mod ragged;
mod selection;

use std::{path::Path, sync::Arc};

use larder_base::RowRef;
use object_store::memory::InMemory;
use proptest::prelude::*;

use super::{
    headers::{FileFault, Format},
    npy::Npy,
    safetensors::SafeTensors,
    *,
};
use crate::RowChecksums;

fn folder_uri(folder: &Path) -> OriginUri {
    OriginUri::parse(&format!("file://{}", folder.display())).unwrap()
}

/// Makes a safetensors file with this header and this many bytes of data.
fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + data, 7);
    file
}

/// Makes an npy file with this dictionary and this many bytes of data.
fn npy(dictionary: &str, data: usize) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let mut text = dictionary.as_bytes().to_vec();
    while !(10 + text.len() + 1).is_multiple_of(64) {
        text.push(b' ');
    }
    text.push(b'\n');
    file.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
    file.extend_from_slice(&text);
    file.resize(file.len() + data, 7);
    file
}

const GOOD: &str = r#"{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]}}"#;

fn entry(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

#[tokio::test]
async fn added_objects_are_those_that_an_index_would_take() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let array = |shape: &str, bytes| {
        npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"), bytes)
    };
    write("x-0.npy", &array("(4, 2)", 32));
    write("x-1.npy", &array("(4, 2)", 32));
    write("left-out.npy", &array("()", 4));
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let indexed = index(&origin, &uri, &IndexOptions::default(), &|_| {}).await.unwrap();
    assert_eq!(count_added(&origin, &indexed.snapshot.manifest, None).await.unwrap(), 0);
    write("x-2.npy", &array("(4, 2)", 32));
    write("x-3.npy", &array("(2, 2)", 16));
    write("y-2.npy", &array("(4, 2)", 32));
    write("notes.txt", b"no samples");
    write("x-4.npy", b"");
    assert_eq!(count_added(&origin, &indexed.snapshot.manifest, None).await.unwrap(), 2);
    assert_eq!(
        added_warning(&uri, 2),
        format!(
            "2 objects were added under {uri} after it was indexed; to include new objects: \
             larder dataset index {uri}"
        )
    );
}

#[tokio::test]
async fn arrays_in_fortran_order_are_left_out_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, order: &str, shape: &str, bytes| {
        let header = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}, }}");
        std::fs::write(folder.path().join(name), npy(&header, bytes)).unwrap();
    };
    write("table.npy", "True", "(4, 2)", 32);
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let indexed = async || index(&origin, &uri, &IndexOptions::default(), &|_| {}).await;
    let why = indexed().await.unwrap_err().to_string();
    let remedy = "table.npy is in Fortran order, so its rows do not lie together: save \
                  np.ascontiguousarray(array)";
    assert!(why.ends_with(remedy), "{why}");
    // The order of one line of values is no matter.
    write("column.npy", "True", "(4, 1)", 16);
    write("label.npy", "False", "(4,)", 16);
    let indexed = indexed().await.unwrap();
    let names: Vec<&str> =
        indexed.snapshot.manifest.tensors().iter().map(crate::Tensor::name).collect();
    assert_eq!(names, ["column", "label"]);
    assert_eq!(indexed.left_out.len(), 1);
    assert_eq!(indexed.left_out[0].to_string(), remedy);
    assert_eq!(count_added(&origin, &indexed.snapshot.manifest, None).await.unwrap(), 0);
}

#[tokio::test]
async fn pattern_chooses_files_to_index_and_to_count() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, safetensors(GOOD, 32)).unwrap();
    };
    write("train/a.safetensors");
    write("train/more/b.safetensors");
    write("test/c.safetensors");
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let samples = async |include: &str| {
        let include = vec![include.to_owned()];
        let options = IndexOptions { include, ..IndexOptions::default() };
        let indexed = index(&origin, &uri, &options, &|_| {}).await?;
        Ok::<_, DatasetError>((indexed.snapshot.manifest.samples(), indexed.snapshot.manifest))
    };
    assert_eq!(samples("**/*.safetensors").await.unwrap().0, 12);
    assert_eq!(samples("train/**/*.safetensors").await.unwrap().0, 8);
    let (count, train) = samples("train/*.safetensors").await.unwrap();
    assert_eq!((count, train.metadata()), (4, r#"{"include":"train/*.safetensors"}"#));
    assert_eq!(count_added(&origin, &train, None).await.unwrap(), 0);
    write("train/d.safetensors");
    write("test/e.safetensors");
    assert_eq!(count_added(&origin, &train, None).await.unwrap(), 1);
    let none = samples("*.safetensors").await.unwrap_err().to_string();
    assert!(none.ends_with("none of 5 objects matches '*.safetensors'"), "{none}");
    let wrong = samples("train/[a").await.unwrap_err().to_string();
    assert!(wrong.contains("include"), "{wrong}");
}

#[tokio::test]
async fn windows_over_added_token_files_count() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: usize| {
        std::fs::write(folder.path().join(name), vec![0; bytes]).unwrap();
    };
    write("a.bin", 64);
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let tokens = Some(TokenSpec { dtype: Dtype::U16, window: 8, stride: 8, offset: None });
    let options = IndexOptions { tokens, ..IndexOptions::default() };
    let indexed = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    write("b.bin", 16);
    write("shorter-than-a-window.bin", 14);
    assert_eq!(count_added(&origin, &indexed.snapshot.manifest, None).await.unwrap(), 1);
}

#[tokio::test]
async fn damaged_files_are_left_out_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let good = safetensors(GOOD, 32);
    write("a.safetensors", &good);
    write("b.safetensors", &good[..good.len() - 1]);
    write("c.safetensors", &good);
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let indexed = async |bad| {
        let options = IndexOptions { bad, ..IndexOptions::default() };
        index(&origin, &uri, &options, &|_| {}).await
    };
    assert!(matches!(indexed(Bad::Error).await, Err(DatasetError::File { .. })));
    let Indexed { snapshot, left_out, .. } = indexed(Bad::Skip).await.unwrap();
    assert_eq!(snapshot.manifest.samples(), 8);
    assert_eq!(left_out.len(), 1);
    let told = left_out[0].to_string();
    assert!(told.starts_with("b.safetensors is damaged: data_offsets: "), "{told}");
    assert_eq!(snapshot.manifest.metadata(), r#"{"damaged":["b.safetensors"]}"#);
    assert_eq!(count_added(&origin, &snapshot.manifest, None).await.unwrap(), 0);
    for name in ["a.safetensors", "c.safetensors"] {
        write(name, &good[..20]);
    }
    let why = indexed(Bad::Skip).await.unwrap_err().to_string();
    assert!(why.contains("3 objects, none that can be indexed"), "{why}");
}

#[tokio::test]
async fn tokens_begin_behind_a_header() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let write = |words: &[u32], tokens: usize| {
        let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.resize(1024 + tokens, 7);
        std::fs::write(folder.path().join("train.bin"), file).unwrap();
    };
    // The offset of the first token, and the number of windows.
    let begins = async |dtype, offset| {
        let tokens = Some(TokenSpec { dtype, window: 100, stride: 100, offset });
        let options = IndexOptions { tokens, ..IndexOptions::default() };
        let Snapshot { manifest, leaves } = index(&origin, &uri, &options, &|_| {})
            .await
            .map_err(|error| error.to_string())?
            .snapshot;
        let crate::RowOrigin::Object(first) =
            manifest.row_source(&leaves[0], RowRef { shard: 0, row: 0 }, 0)
        else {
            panic!()
        };
        Ok::<_, String>((first.offset, manifest.samples()))
    };
    write(&[20_240_520, 1, 1000], 2000);
    assert_eq!(begins(Dtype::U16, None).await, Ok((1024, 10)));
    assert_eq!(begins(Dtype::U16, Some(0)).await, Ok((0, 15)));
    let why = begins(Dtype::U32, None).await.unwrap_err();
    assert!(why.contains("header 20240520: says that tokens are uint16 and not uint32"), "{why}");
    write(&[20_240_520, 1, 1001], 2000);
    let why = begins(Dtype::U16, None).await.unwrap_err();
    assert!(why.contains("counts 1001 tokens where 2000 bytes follow it"), "{why}");
    write(&[20_240_801, 7, 1000], 4000);
    assert_eq!(begins(Dtype::U32, None).await, Ok((1024, 10)));
    write(&[20_240_520, 2, 1000], 2000);
    let why = begins(Dtype::U16, None).await.unwrap_err();
    assert!(why.contains("has version 2, and only version 1 is known"), "{why}");
    assert_eq!(begins(Dtype::U16, Some(24)).await, Ok((24, 15)));
    let why = begins(Dtype::U16, Some(23)).await.unwrap_err();
    assert!(why.contains("3001 bytes are not a whole number of U16 tokens"), "{why}");
    let why = begins(Dtype::U16, Some(4096)).await.unwrap_err();
    assert!(why.contains("3024 bytes are fewer than the offset of 4096"), "{why}");
}

#[tokio::test]
async fn each_hostile_file_gets_one_error_and_publishes_nothing() {
    for case in hostile::safetensors_files().into_iter().chain(hostile::arrays()) {
        let folder = tempfile::tempdir().unwrap();
        // A good file beside it changes nothing.
        let good = if case.file == "bad.npy" {
            ("good.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", 32))
        } else {
            ("good.safetensors", safetensors(GOOD, 32))
        };
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join(good.0), good.1).unwrap();
        std::fs::write(folder.path().join("deep").join(case.file), &case.bytes).unwrap();
        let uri = folder_uri(folder.path());
        let origin = Origin::connect(&uri).await.unwrap();
        let error = index(&origin, &uri, &IndexOptions::default(), &|_| {}).await;
        let error = error.map(|_| ()).expect_err(case.name).to_string();
        let named = format!("deep/{}", case.file);
        for part in case.says.iter().chain([&named.as_str()]) {
            assert!(error.contains(part), "{}: '{error}' does not say '{part}'", case.name);
        }
        assert!(error.len() < 1000 && !error.contains('\n'), "{}: {error}", case.name);
        assert!(!folder.path().join(".larder").exists(), "{}", case.name);
    }
}

/// Makes an origin in memory with these objects under `s3://bucket/data`.
async fn in_memory(files: &[(&str, Vec<u8>)]) -> (Origin, OriginUri) {
    let uri = OriginUri::parse("s3://bucket/data").unwrap();
    let origin = Origin::over(&uri, Arc::new(InMemory::new()));
    for (key, bytes) in files {
        assert!(origin.put_if_absent(&uri.join(key).unwrap(), bytes.clone().into()).await.unwrap());
    }
    (origin, uri)
}

async fn index_memory(files: &[(&str, Vec<u8>)]) -> Result<Indexed, DatasetError> {
    let (origin, uri) = in_memory(files).await;
    index(&origin, &uri, &IndexOptions::default(), &|_| {}).await
}

fn array(rows: usize, columns: usize) -> Vec<u8> {
    let shape = format!("({rows}, {columns})");
    npy(&format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"), rows * columns)
}

#[tokio::test]
async fn names_a_remedy_when_nothing_can_be_indexed() {
    let error = index_memory(&[]).await.unwrap_err().to_string();
    assert!(error.contains("there is nothing"), "{error}");
    let error = index_memory(&[("a.bin", vec![1; 100])]).await.unwrap_err().to_string();
    assert!(error.contains("only if dtype, window and stride are given"), "{error}");
}

#[tokio::test]
async fn counts_the_kinds_when_nothing_can_be_indexed() {
    let said = async |files: &[(&str, Vec<u8>)]| {
        let error = index_memory(files).await.unwrap_err();
        assert!(matches!(error, DatasetError::NothingToIndex { .. }), "{error}");
        error.to_string()
    };
    assert_eq!(
        said(&[("a.doc", vec![1]), ("b/c.h5", vec![1])]).await,
        "s3://bucket/data can't be indexed: 2 objects, none that can be indexed: 1 .doc, 1 .h5; \
         b/c.h5 is a .h5 file, which Larder does not read yet"
    );
    let files = [("README", vec![1]), ("a.txt", vec![1]), ("b.txt", vec![1]), ("c.npy", vec![])];
    assert_eq!(
        said(&files).await,
        "s3://bucket/data can't be indexed: 4 objects, none that can be indexed: 2 .txt, \
         1 without an extension, 1 .npy; c.npy is empty"
    );
    let keys: Vec<String> = (0..9).map(|kind| format!("x.k{kind}")).collect();
    let files: Vec<_> = keys.iter().map(|key| (key.as_str(), vec![1])).collect();
    assert!(said(&files).await.ends_with("1 .k5 and 3 more kinds"));
}

#[tokio::test]
async fn lists_left_out_objects_with_the_reason() {
    let indexed = index_memory(&[
        ("a.safetensors", safetensors(GOOD, 32)),
        ("b/c.safetensors", safetensors(GOOD, 32)),
        ("empty.safetensors", Vec::new()),
        ("notes.txt", vec![1]),
        ("beside.npy", array(2, 2)),
        (".larder/old.safetensors", vec![1]),
        (
            "z-mean.safetensors",
            safetensors(&entry("F32", "[1,2]", "[0,8]").replace("\"x\"", "\"mean\""), 8),
        ),
    ])
    .await
    .unwrap();
    assert_eq!(indexed.snapshot.manifest.samples(), 8);
    let left: Vec<&str> = indexed.left_out.iter().map(|l| l.object.as_str()).collect();
    assert_eq!(left, ["beside.npy", "empty.safetensors", "notes.txt", "z-mean.safetensors"]);
}

#[tokio::test]
async fn circular_link_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.npy"), array(4, 3)).unwrap();
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    for target in [folder.path(), Path::new("again")] {
        let link = folder.path().join("again");
        std::os::unix::fs::symlink(target, &link).unwrap();
        let error = index(&origin, &uri, &IndexOptions::default(), &|_| {}).await.unwrap_err();
        assert!(matches!(error, DatasetError::Origin(OriginError::Loop { .. })), "{error}");
        assert!(error.to_string().contains(link.to_str().unwrap()), "{error}");
        std::fs::remove_file(&link).unwrap();
    }
    index(&origin, &uri, &IndexOptions::default(), &|_| {}).await.unwrap();
}

#[tokio::test]
async fn error_names_both_files_that_disagree() {
    let error = index_memory(&[
        ("a.safetensors", safetensors(GOOD, 32)),
        ("b.safetensors", safetensors(&entry("F32", "[2,3]", "[0,24]"), 24)),
    ])
    .await
    .unwrap_err()
    .to_string();
    assert!(error.contains("a.safetensors") && error.contains("b.safetensors"), "{error}");
    let error = index_memory(&[
        ("image-0.npy", array(4, 9)),
        ("label-0.npy", array(4, 1)),
        ("image-1.npy", array(4, 9)),
    ])
    .await
    .unwrap_err()
    .to_string();
    assert!(error.contains("image-1.npy") && error.contains("label"), "{error}");
}

#[tokio::test]
async fn concatenates_numbered_arrays_and_keeps_others_as_tensors() {
    let files: Vec<(String, Vec<u8>)> =
        (0..12).map(|i| (format!("x{i}.npy"), array(i + 1, 3))).collect();
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(k, b)| (k.as_str(), b.clone())).collect();
    let snapshot = index_memory(&files).await.unwrap().snapshot;
    assert_eq!(snapshot.manifest.samples(), 78);
    assert_eq!(snapshot.leaves[0].object(10).key, "x10.npy", "ten comes after nine");
    let manifest = index_memory(&[("f1.npy", array(5, 3)), ("f2.npy", array(5, 4))])
        .await
        .unwrap()
        .snapshot
        .manifest;
    let tensors: Vec<_> = manifest.tensors().iter().map(|t| (t.name(), t.row_bytes())).collect();
    assert_eq!((manifest.samples(), tensors), (5, vec![("f1", 3), ("f2", 4)]));
}

#[tokio::test]
async fn local_files_with_odd_names_are_indexed_and_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a b", "c%20d", "ü#1", "e~[x]"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("x&y+z.npy"), array(4, 3)).unwrap();
    }
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let options = IndexOptions { checksum: true, ..IndexOptions::default() };
    let indexed = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    assert_eq!(indexed.snapshot.manifest.samples(), 16);
    let tables =
        RowChecksums::find(&origin, &indexed.snapshot.manifest, None).await.unwrap().unwrap();
    tables.shard(&indexed.snapshot.manifest, 0).await.unwrap();
    let keys: Vec<&str> = (0..4).map(|o| indexed.snapshot.leaves[0].object(o).key).collect();
    assert_eq!(keys[1], "c%20d/x&y+z.npy", "names are taken literally");
}

#[tokio::test]
async fn index_moves_the_tag_and_rewrites_a_damaged_manifest() {
    let (origin, uri) = in_memory(&[("x.npy", array(4, 3))]).await;
    let options = IndexOptions { tag: Some("v1".into()), ..IndexOptions::default() };
    let first = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    let manifest_at = first.location.uri().clone();
    origin.put(&manifest_at, vec![1].into(), crate::origin::Put::Always).await.unwrap();
    let again = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    assert_eq!(again.snapshot.manifest.snapshot(), first.snapshot.manifest.snapshot());
    let (bytes, _) = origin.get(&manifest_at, 1 << 20).await.unwrap();
    assert_eq!(bytes, first.snapshot.manifest.as_bytes());

    origin.put_if_absent(&uri.join("x2.npy").unwrap(), array(2, 3).into()).await.unwrap();
    let moved = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    assert_ne!(moved.snapshot.manifest.snapshot(), first.snapshot.manifest.snapshot());
    let dataset = crate::DatasetRef::parse("s3://bucket/data@v1").unwrap();
    let opened = crate::open_with(&origin, &dataset, None).await.unwrap();
    assert_eq!(opened.manifest.snapshot(), moved.snapshot.manifest.snapshot());
}

#[tokio::test]
async fn a_prefix_that_cannot_be_written_is_indexed_into_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.npy"), array(4, 3)).unwrap();
    // A file in place of the folder is unwritable for every user, root too.
    std::fs::write(folder.path().join(".larder"), "").unwrap();
    let cache = tempfile::tempdir().unwrap();
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let (memory, memory_uri) = in_memory(&[("x.npy", array(4, 3))]).await;
    let options = IndexOptions::default();
    let indexed = index(&memory, &memory_uri, &options, &|_| {}).await.unwrap();
    let locator = indexed.snapshot.manifest.tensors()[0].locator();
    let mut builder = ManifestBuilder::new(uri.clone(), Vec::new(), 4096);
    builder.push(crate::GroupSpec { rows: 1, objects: Vec::new(), columns: Vec::new() });
    assert!(builder.build().is_err());
    // The publisher writes under the address of the manifest, here that of the folder.
    let tensors = vec![crate::TensorSpec {
        name: "x".into(),
        dtype: Dtype::U8,
        logical: crate::Logical::Number,
        shape: vec![3],
        locator,
        layout: crate::Layout::Column,
    }];
    let mut builder = ManifestBuilder::new(uri.clone(), tensors, 4096);
    let object =
        crate::ObjectSpec { key: "x.npy".into(), etag: None, version: None, size_bytes: 76 };
    let rows = crate::Rows::Strided { begin: 64, stride: 3 };
    let columns = vec![crate::ColumnSpec { object: 0, rows }];
    builder.push(crate::GroupSpec { rows: 4, objects: vec![object], columns });
    let Snapshot { manifest, leaves } = builder.build().unwrap();
    let home = WriteHome::Beside { cache: Some(folder_uri(cache.path())) };
    let location = publish::publish(&origin, &manifest, &leaves, &home, "latest").await.unwrap();
    assert!(
        matches!(&location, ManifestLocation::LocalCache { why, .. } if why.contains("denied"))
    );
    assert!(location.uri().starts_with(&folder_uri(cache.path())));
    let home = WriteHome::Beside { cache: None };
    let error = publish::publish(&origin, &manifest, &leaves, &home, "latest").await.unwrap_err();
    assert!(matches!(error, DatasetError::Origin(OriginError::Denied { .. })), "{error}");
}

fn parse<F: Format>(format: &F, file: &[u8]) -> Result<F::Header, FileFault> {
    let size = file.len() as u64;
    let wanted = usize::try_from(format.header_bytes(file, size)?).unwrap();
    format.parse(&file[..wanted], size)
}

fn mutated(seed: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0u8..3);
    prop::collection::vec(change, 0..8).prop_map(move |changes| {
        let mut file = seed.clone();
        for (at, value, kind) in changes {
            let at = at.index(file.len());
            match kind {
                0 => file[at] = value,
                1 => file.insert(at, value),
                _ => drop(file.remove(at)),
            }
        }
        file
    })
}

proptest! {
    #[test]
    fn accepts_mutated_safetensors_only_if_the_library_does(
        file in mutated(safetensors(
            r#"{"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"y":{"dtype":"U8","shape":[4],"data_offsets":[32,36]}}"#,
            36,
        )),
    ) {
        if let Ok(entries) = parse(&SafeTensors, &file) {
            let theirs = ::safetensors::SafeTensors::deserialize(&file).expect("the library accepts it");
            prop_assert_eq!(entries.len(), theirs.len());
            for entry in entries {
                let tensor = theirs.tensor(&entry.name).unwrap();
                prop_assert_eq!(tensor.data().len() as u64, entry.bytes);
                let at = usize::try_from(entry.offset).unwrap();
                prop_assert_eq!(tensor.data().as_ptr(), file[at..].as_ptr());
            }
        }
    }

    #[test]
    fn a_mutated_npy_file_is_accepted_only_as_npyz_reads_it(
        file in mutated(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", 32)),
    ) {
        if let Ok(array) = parse(&Npy, &file) {
            let theirs = npyz::NpyHeader::from_reader(&file[..]).expect("npyz accepts it");
            prop_assert_eq!(theirs.shape(), &array.shape[..]);
            prop_assert_eq!(theirs.dtype().num_bytes().unwrap() as u64, array.dtype.size_bytes());
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_but_never_panic(
        file in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = parse(&SafeTensors, &file);
        let _ = parse(&Npy, &file);
        let mut numpy = b"\x93NUMPY\x01\x00".to_vec();
        numpy.extend_from_slice(&file);
        let _ = parse(&Npy, &numpy);
    }
}

#[tokio::test]
async fn row_checksums_lie_beside_the_manifest_and_match_the_rows() {
    let (origin, uri) = in_memory(&[("x.npy", array(300, 70)), ("y.npy", array(300, 8))]).await;
    let options = IndexOptions { checksum: true, shard_bytes: 4096, ..IndexOptions::default() };
    let snapshot = index(&origin, &uri, &options, &|_| {}).await.unwrap().snapshot;
    let manifest = &snapshot.manifest;
    assert!(manifest.shard_count() > 4);
    let tables = RowChecksums::find(&origin, manifest, None).await.unwrap().unwrap();
    for shard in 0..manifest.shard_count() {
        let sums = tables.shard(manifest, shard).await.unwrap();
        for (tensor, column) in manifest.tensors().iter().enumerate() {
            let rows = manifest.shard(shard).rows;
            let per_unit = if column.row_bytes() < 64 { 512 } else { 1 };
            assert_eq!(sums.units(tensor).count(), u64::from(rows).div_ceil(per_unit));
            let mut bytes = Vec::new();
            for row in 0..rows {
                let (leaf, row) = (snapshot.leaf_of(shard), RowRef { shard, row });
                bytes.extend(origin.read_row(manifest, leaf, row, tensor).await.unwrap());
            }
            for unit in 0..sums.units(tensor).count() {
                let range = sums.units(tensor).bytes_of(unit);
                let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                assert!(sums.holds(tensor, unit, &bytes[start..end]));
                bytes[start] ^= 1;
                assert!(!sums.holds(tensor, unit, &bytes[start..end]));
            }
        }
    }
}

#[tokio::test]
async fn trusts_a_checksum_table_only_if_it_sums_to_the_pin() {
    let (origin, uri) = in_memory(&[("x.npy", array(300, 70))]).await;
    let unpinned =
        index(&origin, &uri, &IndexOptions::default(), &|_| {}).await.unwrap().snapshot.manifest;
    assert!(RowChecksums::find(&origin, &unpinned, None).await.unwrap().is_none());
    let options = IndexOptions { checksum: true, shard_bytes: 4096, ..IndexOptions::default() };
    let manifest = index(&origin, &uri, &options, &|_| {}).await.unwrap().snapshot.manifest;
    let beside = uri.join(".larder/checksums").unwrap();
    let listed = origin.list(&beside).await.unwrap();
    let object = beside.join(&listed[0].key).unwrap();
    let (bytes, _) = origin.get(&object, 1 << 20).await.unwrap();
    let mut damaged = bytes.to_vec();
    damaged[0] ^= 1;
    origin.put(&object, damaged.into(), crate::origin::Put::Always).await.unwrap();
    let tables = RowChecksums::find(&origin, &manifest, None).await.unwrap().unwrap();
    assert!(tables.shard(&manifest, 0).await.is_err());
    tables.shard(&manifest, 1).await.unwrap();
    origin.put(&object, bytes.slice(4..), crate::origin::Put::Always).await.unwrap();
    assert!(tables.shard(&manifest, 1).await.is_err(), "its length is known beforehand");
}

#[test]
fn refuses_npy_file_of_an_unknown_minor_version() {
    let mut file = array(4, 3);
    assert!(Npy.header_bytes(&file, file.len() as u64).is_ok());
    file[7] = 1;
    assert!(Npy.header_bytes(&file, file.len() as u64).is_err());
}
