//! Tars of the real writers, and the members and reads that count.

mod mistakes;
mod random;

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Map, Value, json};

use super::*;
use crate::{Dtype, Rows};

/// A header with a right checksum.
fn header(path: &str, size: u64, kind: u8) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..path.len()].copy_from_slice(path.as_bytes());
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    sealed(block)
}

/// Puts the right checksum into a header.
fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn padded(body: &[u8]) -> Vec<u8> {
    let mut padded = body.to_vec();
    padded.resize(body.len().next_multiple_of(512), 0);
    padded
}

/// A header and its body, of any kind.
fn entry(path: &str, body: &[u8], kind: u8) -> Vec<u8> {
    [header(path, body.len() as u64, kind), padded(body)].concat()
}

fn file(path: &str, body: &[u8]) -> Vec<u8> {
    entry(path, body, b'0')
}

/// A PAX record with its length in front.
fn record(keyword: &str, value: &str) -> String {
    let rest = format!(" {keyword}={value}\n");
    let with = |digits: usize| format!("{}{rest}", rest.len() + digits);
    let fits = (1..).find(|digits| with(*digits).len() == rest.len() + digits);
    with(fits.expect("some count of digits fits"))
}

fn pax(keyword: &str, value: &str) -> Vec<u8> {
    entry("pax", record(keyword, value).as_bytes(), b'x')
}

fn at(offset: u64) -> usize {
    offset.try_into().expect("a file in memory")
}

fn part<'a>(file: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &file[at(range.start)..at(range.end)]
}

/// The reads of a scan, and its table or the file's mistake.
struct Scanned {
    reads: usize,
    read_bytes: u64,
    result: Result<Table, Fault>,
}

/// Runs a scan with pieces of random sizes, and checks that it takes bounded memory and steps.
fn run(mut scan: TarScan, file: &[u8], seed: u64) -> Scanned {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut reads, mut read_bytes) = (0, 0);
    while let Some(range) = scan.wants() {
        assert!(!range.is_empty() && range.end <= file.len() as u64, "{range:?}");
        reads += 1;
        read_bytes += range.end - range.start;
        assert!(read_bytes <= file.len() as u64, "no byte is read twice");
        let mut bytes = part(file, &range);
        let piece_bytes_max = [3, 700, 100_000][random.usize(0..3)];
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(random.usize(0..=bytes.len().min(piece_bytes_max)));
            if let Err(fault) = scan.take(piece) {
                return Scanned { reads, read_bytes, result: Err(fault) };
            }
            assert!(scan.carry.capacity() as u64 <= 2 * RECORDS_BYTES_MAX);
            bytes = rest;
        }
    }
    Scanned { reads, read_bytes, result: Box::new(scan).finish() }
}

fn scan(file: &[u8]) -> Result<Table, Fault> {
    run(TarScan::new(file.len() as u64), file, file.len() as u64).result
}

/// A scan with small reads that hops over small gaps.
fn hopping(file_bytes: u64, hop_bytes_min: u64) -> TarScan {
    let mut scan = TarScan::new(file_bytes);
    scan.hop_bytes_min = hop_bytes_min;
    scan.read_bytes = 600;
    scan.unread = 0..600.min(file_bytes);
    scan
}

/// The samples of a table in the form of `expected.json`.
fn samples(table: &Table, file: &[u8]) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut samples = vec![json!({"key": null, "values": {}}); at(table.rows)];
    for column in &table.columns {
        assert!(column.shape.is_empty());
        for (row, sample) in samples.iter_mut().enumerate() {
            let is_absent = column.absent.contains(&(row as u64));
            let value = match (&column.rows, column.dtype, column.ragged) {
                (Rows::Inline(keys), Dtype::U8, true) => {
                    sample["key"] = str::from_utf8(keys.value(row)).unwrap().into();
                    continue;
                }
                (Rows::Inline(integers), Dtype::I64, false) => {
                    let value = i64::from_le_bytes(integers.value(row).try_into().unwrap());
                    assert!(!is_absent || value == 0);
                    json!(value)
                }
                (Rows::Spans(spans), Dtype::U8, true) => {
                    let range = spans.range(row);
                    assert!(!is_absent || range.is_empty());
                    json!(hex(part(file, &range)))
                }
                other => panic!("{other:?}"),
            };
            if !is_absent {
                sample["values"][&column.name] = value;
            }
        }
    }
    samples.into()
}

fn fixtures() -> BTreeMap<String, Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tars = paths.filter(|path| path.extension().is_some_and(|extension| extension == "tar"));
    tars.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    })
    .collect()
}

#[test]
fn tars_of_real_writers_read_as_webdataset_reads_them() {
    let expected: Map<String, Value> =
        serde_json::from_str(include_str!("../../tests/files/expected.json")).unwrap();
    let fixtures = fixtures();
    assert!(fixtures.len() > 5 && fixtures.keys().eq(expected.keys()));
    for (name, file) in &fixtures {
        for seed in 0..8 {
            let scan = if seed % 2 == 0 {
                TarScan::new(file.len() as u64)
            } else {
                hopping(file.len() as u64, 100 * seed)
            };
            let table = run(scan, file, seed).result.unwrap();
            assert_eq!(samples(&table, file), expected[name], "{name}");
        }
    }
}

#[test]
fn columns_come_in_the_order_of_their_first_member() {
    let file = [
        file("a.png", b"12"),
        file("a.cls", b"7"),
        file("b.txt", b""),
        file("b.cls", b"8\n"),
        file("c.PNG", b"3"),
    ]
    .concat();
    let table = scan(&file).unwrap();
    let told: Vec<_> =
        table.columns.iter().map(|column| (&*column.name, column.absent.clone())).collect();
    assert_eq!(
        told,
        [("png", vec![1]), ("cls", vec![2]), ("txt", vec![0, 2]), ("__key__", vec![])]
    );
    assert_eq!(table.rows, 3);
}

#[test]
fn members_that_are_no_files_are_left_out() {
    let links: Vec<u8> =
        (0..20).flat_map(|index| header(&format!("{index}.link"), 9, b'2')).collect();
    let file = [
        &entry("g", record("comment", "x").as_bytes(), b'g'),
        &header("folder.d", 0, b'5'),
        &header("old.d/", 0, 0),
        &file("a.txt", b"a"),
        &file("README", b"read me"),
        &entry("volume.x", b"some bytes", b'V'),
        &file("__meta__/x.y", b"meta"),
        &file("a.", b""),
        &file("a.bin", b"b"),
        &links[..],
    ]
    .concat();
    let table = scan(&file).unwrap();
    assert_eq!(samples(&table, &file), json!([{"key": "a", "values": {"txt": "61", "bin": "62"}}]));
    let told: Vec<String> =
        table.left_out.iter().map(|(name, why)| format!("{name} {why}")).collect();
    assert_eq!(
        told[..6],
        [
            "global PAX header is no member",
            "README has no extension",
            "volume.x is not a regular file",
            "__meta__/x.y is metadata by its name",
            "a. has no extension",
            "0.link is not a regular file",
        ]
    );
    assert_eq!(told[16..], ["9 more members are not part of a sample"]);
}

#[test]
fn keys_and_paths_may_be_any_bytes() {
    let mut block = header("../?.txt", 0, b'0');
    block[3] = 0xff;
    let table = scan(&sealed(block)).unwrap();
    let Rows::Inline(keys) = &table.columns[1].rows else { panic!("keys are inline") };
    assert_eq!(keys.value(0), b"../\xff");
}

#[test]
fn integers_are_bytes_if_one_is_something_else() {
    for (value, hex, shown) in [
        ("1.5", "312e35".to_owned(), "the value '1.5'"),
        ("", String::new(), "the value ''"),
        (&"1".repeat(65), "31".repeat(65), "a value of 65 bytes"),
    ] {
        let members = [("a.id", "7"), ("b.x.cls", "-3"), ("c.id", value), ("d.id", "8")];
        let tar = members.map(|(path, body)| file(path, body.as_bytes())).concat();
        let table = scan(&tar).unwrap();
        let expected = json!([
            {"key": "a", "values": {"id": "37"}},
            {"key": "b", "values": {"x.cls": -3}},
            {"key": "c", "values": {"id": hex}},
            {"key": "d", "values": {"id": "38"}},
        ]);
        assert_eq!(samples(&table, &tar), expected);
        let why = format!("is no column of integers but of bytes: sample 'c' has {shown}");
        assert_eq!(table.left_out, [("id".into(), why)]);
    }
}

#[test]
fn checksums_of_signed_bytes_are_accepted() {
    let mut block = sealed(header("\u{e9}.txt", 0, b'0'));
    let sum: i32 = block.iter().map(|byte| i32::from(byte.cast_signed())).sum();
    let field: i32 = block[148..156].iter().map(|byte| i32::from(*byte)).sum();
    let sum = format!("{:06o}\0 ", sum - field + 8 * 32);
    block[148..156].copy_from_slice(sum.as_bytes());
    assert_eq!(scan(&block).unwrap().rows, 1);
}

#[test]
fn tar_ends_at_a_block_of_zeros_or_at_the_end_of_the_file() {
    let member = file("a.txt", b"a");
    let (zeros, garbage) = ([0; 1024], [7; 700]);
    let whole = scan(&member).unwrap();
    assert_eq!(whole.rows, 1);
    assert_eq!(scan(&[&member[..], &zeros].concat()).unwrap(), whole);
    assert_eq!(scan(&[&member[..], &zeros, &garbage].concat()).unwrap(), whole);
    assert_eq!(scan(&zeros).unwrap().rows, 0);
}

#[test]
fn pax_size_and_binary_size_count_like_octal_ones() {
    let mut binary = header("b.txt", 0, b'0');
    binary[124..136].fill(0);
    binary[124] = 0x80;
    binary[135] = 5;
    let file = [
        pax("size", "5"),
        header("a.txt", 1, b'0'),
        padded(b"12345"),
        sealed(binary),
        padded(b"67890"),
    ]
    .concat();
    let expected = json!([
        {"key": "a", "values": {"txt": "3132333435"}},
        {"key": "b", "values": {"txt": "3637383930"}},
    ]);
    assert_eq!(samples(&scan(&file).unwrap(), &file), expected);
}

#[test]
fn earlier_path_counts_if_a_member_has_two() {
    let long = entry("././@LongLink", b"long.txt\0", b'L');
    let file = [&pax("path", "pax.txt"), &long, &header("own.txt", 0, b'0')[..]].concat();
    assert_eq!(samples(&scan(&file).unwrap(), &file)[0]["key"], "pax");
}

#[test]
fn large_members_are_hopped_over() {
    let body = vec![7; 1 << 20];
    let long = "k/".repeat(100);
    let members = (0..40).flat_map(|row| {
        [
            pax("path", &format!("{long}{row}.jpg")),
            file("short.jpg", &body),
            pax("path", &format!("{long}{row}.cls")),
            file("short.cls", row.to_string().as_bytes()),
        ]
        .concat()
    });
    let file: Vec<u8> = members.collect();
    let scanned = run(TarScan::new(file.len() as u64), &file, 0);
    assert_eq!(scanned.result.unwrap().rows, 40);
    assert_eq!(scanned.reads, 41);
    assert!(scanned.read_bytes < 64 * 1024 + 40 * 4096, "{}", scanned.read_bytes);
}

#[test]
fn small_members_are_read_in_a_growing_stream() {
    let body = vec![7; 100 << 10];
    let file: Vec<u8> = (0..200).flat_map(|row| file(&format!("{row}.jpg"), &body)).collect();
    let scanned = run(TarScan::new(file.len() as u64), &file, 0);
    assert_eq!(scanned.result.unwrap().rows, 200);
    assert_eq!(scanned.read_bytes, file.len() as u64);
    assert_eq!(scanned.reads, 5, "64 KiB, 1 MiB, 8 MiB, 8 MiB and the rest");
}
