//! Hostile and odd files: each gets one clear error that names the object and the field, and nothing
//! is published.

use std::{path::Path, sync::Arc};

use object_store::memory::InMemory;
use proptest::prelude::*;

use super::{
    headers::{Fault, Format},
    npy::Npy,
    safetensors::SafeTensors,
    *,
};

fn folder_uri(folder: &Path) -> OriginUri {
    OriginUri::parse(&format!("file://{}", folder.display())).unwrap()
}

/// A safetensors file with this header and so many bytes of data.
fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + data, 7);
    file
}

/// An npy file with this dictionary and so many bytes of data.
fn npy(dictionary: &str, data: usize) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let mut text = dictionary.as_bytes().to_vec();
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(b' ');
    }
    text.push(b'\n');
    file.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
    file.extend_from_slice(&text);
    file.resize(file.len() + data, 7);
    file
}

const GOOD: &str = r#"{"x":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]}}"#;

struct Hostile {
    name: &'static str,
    file: &'static str,
    bytes: Vec<u8>,
    /// What the message must hold, besides the name of the file.
    says: &'static [&'static str],
}

fn hostile(name: &'static str, bytes: Vec<u8>, says: &'static [&'static str]) -> Hostile {
    Hostile {
        name,
        file: "bad.safetensors",
        bytes,
        says,
    }
}

fn hostile_npy(name: &'static str, bytes: Vec<u8>, says: &'static [&'static str]) -> Hostile {
    Hostile {
        name,
        file: "bad.npy",
        bytes,
        says,
    }
}

fn entry(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

fn hostile_safetensors() -> Vec<Hostile> {
    let many = |count: usize| {
        let one = |i| format!(r#""t{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
        format!("{{{}}}", (0..count).map(one).collect::<Vec<_>>().join(","))
    };
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
        )
    };
    let mut past_end = safetensors(GOOD, 32);
    past_end[0..8].copy_from_slice(&5000u64.to_le_bytes());
    let mut enormous = safetensors(GOOD, 32);
    enormous[0..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut truncated = safetensors(GOOD, 32);
    truncated.truncate(truncated.len() - 1);
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    vec![
        hostile("fewer than eight bytes", vec![1, 0, 0], &["header length"]),
        hostile(
            "header past the end",
            past_end,
            &["header length", "past the end"],
        ),
        hostile(
            "header length of all ones",
            enormous,
            &["header length", "100000000"],
        ),
        hostile("header not JSON", safetensors("{]", 0), &["header"]),
        hostile("header not an object", safetensors("[1]", 0), &["header"]),
        hostile(
            "header not UTF-8",
            {
                let mut f = safetensors(GOOD, 32);
                f[12] = 0xff;
                f
            },
            &["header", "UTF-8"],
        ),
        hostile(
            "deeply nested",
            safetensors(&format!(r#"{{"x":{deep}}}"#), 0),
            &["header"],
        ),
        hostile(
            "NaN as a shape",
            safetensors(&entry("F32", "[NaN]", "[0,32]"), 32),
            &["tensor 'x'"],
        ),
        hostile(
            "a fraction as a shape",
            safetensors(&entry("F32", "[1.5]", "[0,32]"), 32),
            &["tensor 'x'"],
        ),
        hostile(
            "a negative shape",
            safetensors(&entry("F32", "[-4,2]", "[0,32]"), 32),
            &["tensor 'x'"],
        ),
        hostile(
            "unknown dtype",
            safetensors(&entry("F128", "[4,2]", "[0,32]"), 32),
            &["tensor 'x' dtype", "F128"],
        ),
        hostile(
            "overflowing shape",
            safetensors(&entry("F32", "[9223372036854775807,4]", "[0,32]"), 32),
            &["tensor 'x' shape", "overflow"],
        ),
        hostile(
            "shape that wraps to the right size",
            safetensors(&entry("U8", "[4294967296,4294967296,32]", "[0,32]"), 32),
            &["tensor 'x' shape", "overflow"],
        ),
        hostile(
            "shape and offsets disagree",
            safetensors(&entry("F32", "[4,3]", "[0,32]"), 32),
            &["tensor 'x' data_offsets", "48"],
        ),
        hostile(
            "offsets backwards",
            safetensors(&entry("F32", "[4,2]", "[32,0]"), 32),
            &["tensor 'x' data_offsets"],
        ),
        hostile(
            "offsets at the end of the world",
            safetensors(
                &entry("U8", "[1]", "[18446744073709551614,18446744073709551615]"),
                32,
            ),
            &["tensor 'x' data_offsets", "overflow"],
        ),
        hostile(
            "too many dimensions",
            safetensors(
                &entry("U8", &format!("[{}1]", "1,".repeat(2000)), "[0,1]"),
                1,
            ),
            &["tensor 'x'", "dimensions"],
        ),
        hostile(
            "missing dtype",
            safetensors(r#"{"x":{"shape":[1],"data_offsets":[0,1]}}"#, 1),
            &["tensor 'x'", "dtype"],
        ),
        hostile(
            "three offsets",
            safetensors(&entry("U8", "[1]", "[0,1,2]"), 1),
            &["tensor 'x'"],
        ),
        hostile(
            "a name twice",
            safetensors(
                r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
                1,
            ),
            &["tensor 'x'", "twice"],
        ),
        hostile(
            "metadata with a number",
            safetensors(r#"{"__metadata__":{"a":1}}"#, 0),
            &["__metadata__"],
        ),
        hostile(
            "overlap",
            safetensors(&two("[0,4]", "[2,6]"), 6),
            &["tensor 'b' data_offsets", "overlap"],
        ),
        hostile(
            "the same bytes twice",
            safetensors(&two("[0,4]", "[0,4]"), 4),
            &["tensor 'b' data_offsets", "overlap"],
        ),
        hostile(
            "a hole",
            safetensors(&two("[0,4]", "[6,10]"), 10),
            &["tensor 'b' data_offsets", "hole"],
        ),
        hostile(
            "a hole at the begin",
            safetensors(&two("[4,8]", "[8,12]"), 12),
            &["tensor 'a' data_offsets", "hole"],
        ),
        hostile("cut off by a byte", truncated, &["data_offsets", "cut off"]),
        hostile(
            "a byte too many",
            safetensors(GOOD, 33),
            &["data_offsets", "more after"],
        ),
        hostile(
            "a hundred thousand entries",
            safetensors(&many(100_000), 0),
            &["header", "10000 tensors"],
        ),
    ]
}

fn hostile_arrays() -> Vec<Hostile> {
    let with = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let good = with("'<f4'", "False", "(4, 2)");
    let mut past_end = npy(&good, 32);
    past_end[8..10].copy_from_slice(&60_000u16.to_le_bytes());
    let mut huge = npy(&good, 32);
    huge[6] = 2;
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut version = npy(&good, 32);
    version[6] = 9;
    vec![
        hostile_npy("not npy", vec![0; 200], &["magic"]),
        hostile_npy("shorter than its magic", b"\x93NUM".to_vec(), &["magic"]),
        hostile_npy("unknown version", version, &["version"]),
        hostile_npy(
            "header past the end",
            past_end,
            &["header length", "past the end"],
        ),
        hostile_npy("header of four gigabytes", huge, &["header length"]),
        hostile_npy(
            "big-endian",
            npy(&with("'>f4'", "False", "(4, 2)"), 32),
            &["descr", "big-endian"],
        ),
        hostile_npy(
            "fortran order",
            npy(&with("'<f4'", "True", "(4, 2)"), 32),
            &["fortran_order"],
        ),
        hostile_npy(
            "pickled objects",
            npy(&with("'|O'", "False", "(4,)"), 32),
            &["descr"],
        ),
        hostile_npy(
            "strings",
            npy(&with("'<U8'", "False", "(1,)"), 32),
            &["descr"],
        ),
        hostile_npy(
            "a record",
            npy(&with("[('a', '<f4')]", "False", "(4, 2)"), 32),
            &["descr", "record"],
        ),
        hostile_npy(
            "overflowing shape",
            npy(&with("'<f4'", "False", "(9223372036854775807, 9)"), 32),
            &["shape", "overflow"],
        ),
        hostile_npy(
            "a dimension past 64 bits",
            npy(&with("'<f4'", "False", "(99999999999999999999999,)"), 32),
            &["shape"],
        ),
        hostile_npy(
            "a negative dimension",
            npy(&with("'<f4'", "False", "(-4, 2)"), 32),
            &["shape"],
        ),
        hostile_npy(
            "too many dimensions",
            npy(
                &with("'|u1'", "False", &format!("({})", "1,".repeat(70))),
                1,
            ),
            &["shape", "dimensions"],
        ),
        hostile_npy(
            "nested",
            npy(&with("'<f4'", "False", &"(".repeat(9000)), 32),
            &["shape"],
        ),
        hostile_npy("cut off", npy(&good, 31), &["shape", "cut off"]),
        hostile_npy("a byte too many", npy(&good, 33), &["shape", "more after"]),
        hostile_npy(
            "no shape",
            npy("{'descr': '<f4', 'fortran_order': False}", 32),
            &["shape", "missing"],
        ),
        hostile_npy(
            "a key twice",
            npy("{'descr': '<f4', 'descr': '<f4'}", 32),
            &["header", "twice"],
        ),
        hostile_npy(
            "an unknown key",
            npy("{'__reduce__': 'x'}", 32),
            &["header", "unknown key"],
        ),
        hostile_npy("no dictionary", npy("[1, 2]", 32), &["header"]),
        hostile_npy("a string without end", npy("{'descr", 32), &["header"]),
        hostile_npy(
            "more after the dictionary",
            npy(&(good + " + 1"), 32),
            &["header"],
        ),
    ]
}

#[tokio::test]
async fn each_hostile_file_gets_one_error_that_names_it_and_nothing_is_published() {
    let mut cases = hostile_safetensors();
    cases.extend(hostile_arrays());
    for case in cases {
        let folder = tempfile::tempdir().unwrap();
        // A good file beside it does not help.
        let good = if case.file == "bad.npy" {
            (
                "good.npy",
                npy(
                    "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }",
                    32,
                ),
            )
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
            assert!(
                error.contains(part),
                "{}: '{error}' does not say '{part}'",
                case.name
            );
        }
        assert!(
            error.len() < 1000 && !error.contains('\n'),
            "{}: {error}",
            case.name
        );
        assert!(!folder.path().join(".larder").exists(), "{}", case.name);
    }
}

/// An origin in memory with these objects under `s3://bucket/data`.
async fn in_memory(files: &[(&str, Vec<u8>)]) -> (Origin, OriginUri) {
    let uri = OriginUri::parse("s3://bucket/data").unwrap();
    let origin = Origin::over(&uri, Arc::new(InMemory::new()));
    for (key, bytes) in files {
        assert!(
            origin
                .put_if_absent(&uri.join(key).unwrap(), bytes.clone().into())
                .await
                .unwrap()
        );
    }
    (origin, uri)
}

async fn index_memory(files: &[(&str, Vec<u8>)]) -> Result<Indexed, DatasetError> {
    let (origin, uri) = in_memory(files).await;
    index(&origin, &uri, &IndexOptions::default(), &|_| {}).await
}

fn array(rows: usize, columns: usize) -> Vec<u8> {
    let shape = format!("({rows}, {columns})");
    npy(
        &format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"),
        rows * columns,
    )
}

#[tokio::test]
async fn nothing_to_index_is_said_with_what_would_help() {
    let error = index_memory(&[]).await.unwrap_err().to_string();
    assert!(error.contains("there is nothing"), "{error}");
    let error = index_memory(&[("a.bin", vec![1; 100])])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("--window"), "{error}");
    let error = index_memory(&[("a.txt", vec![1]), ("b.npy", Vec::new())])
        .await
        .unwrap_err();
    assert!(
        matches!(error, DatasetError::NothingToIndex { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_left_out_is_listed_with_the_reason() {
    let indexed = index_memory(&[
        ("a.safetensors", safetensors(GOOD, 32)),
        ("b/c.safetensors", safetensors(GOOD, 32)),
        ("empty.safetensors", Vec::new()),
        ("notes.txt", vec![1]),
        ("beside.npy", array(2, 2)),
        (".larder/old.safetensors", vec![1]),
        (
            "z-mean.safetensors",
            safetensors(
                &entry("F32", "[1,2]", "[0,8]").replace("\"x\"", "\"mean\""),
                8,
            ),
        ),
    ])
    .await
    .unwrap();
    assert_eq!(indexed.manifest.samples(), 8);
    let left: Vec<&str> = indexed.left_out.iter().map(|l| l.object.as_str()).collect();
    assert_eq!(
        left,
        [
            "beside.npy",
            "empty.safetensors",
            "notes.txt",
            "z-mean.safetensors"
        ]
    );
}

#[tokio::test]
async fn files_that_disagree_are_named_both() {
    let error = index_memory(&[
        ("a.safetensors", safetensors(GOOD, 32)),
        (
            "b.safetensors",
            safetensors(&entry("F32", "[2,3]", "[0,24]"), 24),
        ),
    ])
    .await
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("a.safetensors") && error.contains("b.safetensors"),
        "{error}"
    );
    let error = index_memory(&[
        ("image-0.npy", array(4, 9)),
        ("label-0.npy", array(4, 1)),
        ("image-1.npy", array(4, 9)),
    ])
    .await
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("image-1.npy") && error.contains("label"),
        "{error}"
    );
}

#[tokio::test]
async fn numbered_arrays_are_concatenated_by_number_and_others_are_tensors() {
    let files: Vec<(String, Vec<u8>)> = (0..12)
        .map(|i| (format!("x{i}.npy"), array(i + 1, 3)))
        .collect();
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(k, b)| (k.as_str(), b.clone())).collect();
    let manifest = index_memory(&files).await.unwrap().manifest;
    assert_eq!(manifest.samples(), 78);
    assert_eq!(manifest.object(10).key, "x10.npy", "ten comes after nine");
    let manifest = index_memory(&[("f1.npy", array(5, 3)), ("f2.npy", array(5, 4))])
        .await
        .unwrap()
        .manifest;
    let tensors: Vec<_> = manifest
        .tensors()
        .iter()
        .map(|t| (t.name(), t.row_bytes()))
        .collect();
    assert_eq!(
        (manifest.samples(), tensors),
        (5, vec![("f1", 3), ("f2", 4)])
    );
}

#[tokio::test]
async fn a_tag_moves_and_a_damaged_manifest_is_written_again() {
    let (origin, uri) = in_memory(&[("x.npy", array(4, 3))]).await;
    let options = IndexOptions {
        tag: Some("v1".into()),
        ..IndexOptions::default()
    };
    let first = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    let manifest_at = first.location.uri().clone();
    origin
        .put(&manifest_at, vec![1].into(), crate::origin::Put::Always)
        .await
        .unwrap();
    let again = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    assert_eq!(again.manifest.snapshot(), first.manifest.snapshot());
    let (bytes, _) = origin.get(&manifest_at, 1 << 20).await.unwrap();
    assert_eq!(bytes, first.manifest.as_bytes());

    origin
        .put_if_absent(&uri.join("x2.npy").unwrap(), array(2, 3).into())
        .await
        .unwrap();
    let moved = index(&origin, &uri, &options, &|_| {}).await.unwrap();
    assert_ne!(moved.manifest.snapshot(), first.manifest.snapshot());
    let dataset = crate::DatasetRef::parse("s3://bucket/data@v1").unwrap();
    let opened = crate::open_with(&origin, &dataset, None).await.unwrap();
    assert_eq!(opened.manifest.snapshot(), moved.manifest.snapshot());
}

#[tokio::test]
async fn a_prefix_that_cannot_be_written_is_indexed_into_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.npy"), array(4, 3)).unwrap();
    // A file in the place of the folder refuses everybody, root too.
    std::fs::write(folder.path().join(".larder"), "").unwrap();
    let cache = tempfile::tempdir().unwrap();
    let uri = folder_uri(folder.path());
    let origin = Origin::connect(&uri).await.unwrap();
    let (memory, memory_uri) = in_memory(&[("x.npy", array(4, 3))]).await;
    let manifest = index(&memory, &memory_uri, &IndexOptions::default(), &|_| {})
        .await
        .unwrap()
        .manifest;
    let mut builder = ManifestBuilder::new(uri.clone(), Vec::new(), 4096);
    builder.push(crate::GroupSpec {
        rows: 1,
        objects: Vec::new(),
        spans: Vec::new(),
    });
    assert!(builder.build().is_err());
    // The publisher writes under the address of the manifest, here that of the folder.
    let tensors = vec![crate::TensorSpec {
        name: "x".into(),
        dtype: Dtype::U8,
        shape: vec![3],
        slot: 0,
        locator: manifest.tensors()[0].locator(),
    }];
    let mut builder = ManifestBuilder::new(uri.clone(), tensors, 4096);
    let object = crate::ObjectSpec {
        key: "x.npy".into(),
        etag: None,
        version: None,
        size_bytes: 76,
        columns: vec![64],
    };
    builder.push(crate::GroupSpec {
        rows: 4,
        objects: vec![object],
        spans: Vec::new(),
    });
    let manifest = builder.build().unwrap();
    let home = Some(folder_uri(cache.path()));
    let location = publish::publish(&origin, &manifest, None, home, "latest")
        .await
        .unwrap();
    assert!(
        matches!(&location, ManifestLocation::LocalCache { why, .. } if why.contains("denied"))
    );
    assert!(location.uri().starts_with(&folder_uri(cache.path())));
    let error = publish::publish(&origin, &manifest, None, None, "latest")
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            DatasetError::Origin(crate::OriginError::Denied { .. })
        ),
        "{error}"
    );
}

fn parse<F: Format>(format: &F, file: &[u8]) -> Result<F::Header, Fault> {
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
    fn a_mutated_safetensors_file_is_accepted_only_if_the_library_of_the_format_accepts_it(
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
