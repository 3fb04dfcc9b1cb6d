//! The scan of Parquet files and the making of their rows: fixtures of pyarrow, and bad input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad;

use std::{alloc::System, collections::BTreeMap};

use cap::Cap;
use larder_formats::{
    Blocks, Column, Dtype, Fault, Form, Forms, Logical, ParquetScan, Rows, RowsWanted, Scan, Table,
    TimeUnit,
};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn fixture(name: &str) -> Vec<u8> {
    read("parquet", name)
}

fn read(folder: &str, name: &str) -> Vec<u8> {
    std::fs::read(format!("tests/files/{folder}/{name}")).unwrap()
}

/// Scans a file, with its bytes in pieces of random size.
fn scan(file: &[u8], columns: Option<&[String]>, seed: u64) -> Result<Table, Fault> {
    run(ParquetScan::new(file.len() as u64, columns), file, seed)
}

fn run(mut scan: ParquetScan, file: &[u8], seed: u64) -> Result<Table, Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    while let Some(range) = scan.wants() {
        assert!(range.start < range.end && range.end <= file.len() as u64, "{range:?}");
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let mut rest = &file[at(range.start)..at(range.end)];
        let largest = if random.bool() { 9 } else { rest.len() };
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.usize(1..=largest.min(rest.len())));
            scan.take(piece)?;
            rest = after;
        }
    }
    Box::new(scan).finish()
}

/// The rows of a column: all bytes, and the bytes of each row.
#[derive(Debug, Default, PartialEq, Eq)]
struct Made {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

/// Makes the rows of a column, block after block.
fn make(column: &Column, file: &[u8]) -> Result<Made, Fault> {
    let Rows::Blocks(blocks) = &column.rows else { panic!("no blocks") };
    let scalar_bytes = column.dtype.size_bytes();
    let row_bytes = column.shape.iter().product::<u64>() * scalar_bytes;
    let row_bytes = (!column.ragged).then_some(row_bytes);
    let mut made = Made::default();
    for placed in &blocks.blocks {
        let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes };
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let stored = &file[at(placed.range.start)..at(placed.range.end)];
        placed.block.make(wanted, stored, blocks.recipes.as_bytes(), &mut |bytes, lengths| {
            made.bytes.extend_from_slice(bytes);
            made.lengths.extend_from_slice(lengths);
            Ok(())
        })?;
    }
    Ok(made)
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

const FILES: [&str; 13] = [
    "snappy",
    "zstd",
    "gzip",
    "lz4",
    "deltas",
    "groups",
    "datasets",
    "brotli",
    "int96",
    "decimals",
    "decimal_integers",
    "boxes",
    "boxes_v2",
];

#[test]
fn rows_are_those_of_pyarrow_and_datasets() {
    assert_eq!(compare_with_pyarrow("parquet"), FILES.len());
}

#[test]
fn files_of_other_writers_are_read_as_pyarrow_reads_them() {
    assert_eq!(compare_with_pyarrow("parquet_writers"), 12);
}

/// Compares the rows of the files in a folder with those in its `expected.json`. Returns the number
/// of files.
fn compare_with_pyarrow(folder: &str) -> usize {
    let expected: BTreeMap<String, BTreeMap<String, Value>> =
        serde_json::from_slice(&read(folder, "expected.json")).unwrap();
    let files = expected.len();
    for (name, columns) in expected {
        let file = read(folder, &format!("{name}.parquet"));
        let table = scan(&file, None, file.len() as u64).unwrap();
        assert_eq!(table.columns.len(), 2 * columns.len(), "{name}");
        for pair in table.columns.chunks(2) {
            let [column, valid] = pair else { panic!("a column without its mask") };
            let place = format!("{name} {}", column.name);
            let wanted = &columns[&column.name];
            assert_eq!(valid.name, format!("{}.valid", column.name));
            let made = make(column, &file).unwrap();
            assert_eq!(sha256(&made.bytes), wanted["sha256"], "{place}");
            let lengths: Vec<u32> = serde_json::from_value(wanted["bytes"].clone()).unwrap();
            assert_eq!(table.rows, lengths.len() as u64, "{place}");
            let Rows::Blocks(Blocks { lengths: scanned, .. }) = &column.rows else { panic!() };
            if column.ragged {
                assert_eq!(made.lengths, lengths, "{place}");
                assert_eq!(scanned.as_ref(), Some(&lengths), "{place}");
            } else {
                assert_eq!((&made.lengths, scanned), (&Vec::new(), &None), "{place}");
            }
            let is_valid: Vec<bool> = serde_json::from_value(wanted["valid"].clone()).unwrap();
            let Rows::Blocks(Blocks { is_redundant, .. }) = valid.rows else { panic!() };
            let no_nulls = is_valid.iter().all(|&valid| valid);
            assert!(no_nulls || !is_redundant, "{place}");
            let made: Vec<bool> =
                make(valid, &file).unwrap().bytes.iter().map(|&byte| byte == 1).collect();
            assert_eq!(made, is_valid, "{place}");
        }
    }
    files
}

#[test]
fn pages_that_old_writers_call_uncompressed_are_decompressed() {
    let file = read("parquet_writers", "parquetjs_gzip.parquet");
    let table = scan(&file, None, 6).unwrap();
    // The end of a page's header: no repetition levels, and whether the page is compressed.
    let (is, is_not) = ([0x15, 0, 0x11, 0], [0x15, 0, 0x12, 0]);
    let mut old = file.clone();
    let places: Vec<usize> = (0..file.len()).filter(|&at| file[at..].starts_with(&is)).collect();
    places.iter().for_each(|&at| old[at..at + 4].copy_from_slice(&is_not));
    assert_eq!(places.len(), 8, "four columns in two row groups");
    let of_old = scan(&old, None, 7).unwrap();
    for (column, old_column) in table.columns.iter().zip(&of_old.columns) {
        assert_eq!(make(column, &file).unwrap(), make(old_column, &old).unwrap());
    }
}

#[test]
fn lists_of_one_length_have_a_shape() {
    let table = scan(&fixture("snappy.parquet"), None, 1).unwrap();
    let column = |name: &str| table.columns.iter().find(|column| column.name == name).unwrap();
    let lists = column("fixed_list");
    assert_eq!((&*lists.shape, lists.dtype, lists.ragged), (&[4][..], Dtype::F32, false));
    assert_eq!((&*column("fixed").shape, column("fixed").dtype), (&[12][..], Dtype::U8));
    assert_eq!((column("half").dtype, column("uint16").dtype), (Dtype::F16, Dtype::U16));
    assert!(column("list").ragged && column("list").dtype == Dtype::I16);
}

#[test]
fn lists_of_lists_of_one_length_are_ragged_with_a_shape() {
    for name in ["boxes.parquet", "boxes_v2.parquet"] {
        let table = scan(&fixture(name), None, 1).unwrap();
        assert_eq!((&table.left_out, &table.forms), (&Vec::new(), &Forms::new()));
        let found: Vec<_> = table.columns.iter().step_by(2).collect();
        let types = found.iter().map(|column| (&*column.name, column.dtype, &*column.shape));
        let wanted: [(_, _, &[u64]); 6] = [
            ("boxes", Dtype::F32, &[4]),
            ("points", Dtype::I64, &[2]),
            ("fixed", Dtype::F64, &[3]),
            ("flags", Dtype::Bool, &[1]),
            ("times", Dtype::I64, &[2]),
            ("object.box", Dtype::F32, &[4]),
        ];
        assert_eq!(types.collect::<Vec<_>>(), wanted);
        assert!(found.iter().all(|column| column.ragged));
        assert_eq!(found[4].logical, Logical::Timestamp(TimeUnit::Microsecond));
    }
}

#[test]
fn lists_of_lists_of_several_lengths_or_with_nulls_need_json() {
    for name in ["nested.parquet", "nested_v2.parquet"] {
        let table = scan(&fixture(name), None, 1).unwrap();
        assert_eq!(table.forms, [("grid".to_owned(), Form::Json)].into());
        let file = fixture(name);
        let again = ParquetScan::new(file.len() as u64, None).with_forms(&table.forms);
        let again = run(again, &file, 2).unwrap();
        let grid = again.columns.iter().find(|column| column.name == "grid").unwrap();
        assert_eq!((grid.logical, &again.forms), (Logical::Json, &Forms::new()));
        let made = make(grid, &file).unwrap();
        assert!(made.bytes.starts_with(b"[][[1,null]][[2,null],null][[3,null],null,[]][]"));
    }
}

#[test]
fn columns_that_share_a_name_or_have_none_are_left_out() {
    let table = scan(&fixture("names.parquet"), None, 8).unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["b", "b.valid"]);
    let left_out =
        [("a", "is the name of several columns: give each its own"), ("", "has no name")];
    assert_eq!(table.left_out, left_out.map(|(name, why)| (name.to_owned(), why.to_owned())));
}

#[test]
fn times_of_96_bits_are_nanoseconds() {
    let table = scan(&fixture("int96.parquet"), None, 9).unwrap();
    let time = &table.columns[0];
    let logical = Logical::Timestamp(TimeUnit::Nanosecond);
    assert_eq!((&*time.name, time.dtype, time.logical), ("time", Dtype::I64, logical));
}

#[test]
fn only_wanted_columns_are_read() {
    let file = fixture("snappy.parquet");
    let wanted = ["image.bytes".to_owned(), "int8.valid".to_owned()];
    let table = scan(&file, Some(&wanted), 2).unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["image.bytes", "image.bytes.valid", "int8", "int8.valid"]);
}

#[test]
fn columns_that_cannot_be_rows_are_listed() {
    let table = scan(&fixture("left_out.parquet"), None, 3).unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    let columns = ["number", "decimal", "map", "lists", "texts", "structs", "time", "date"];
    let with_masks = columns.map(|name| [name.to_owned(), format!("{name}.valid")]);
    assert_eq!(names, with_masks.concat());
    assert_eq!(table.columns[2].logical, Logical::Decimal);
    let is_json: Vec<bool> =
        table.columns.iter().step_by(2).map(|column| column.logical == Logical::Json).collect();
    assert_eq!(is_json, [false, false, true, false, true, true, false, false]);
    assert_eq!((table.columns[6].dtype, &*table.columns[6].shape), (Dtype::I64, &[1][..]));
    assert_eq!(table.metadata, [("note".into(), "kept".into())]);
    let left_out: Vec<(&str, &str)> =
        table.left_out.iter().map(|(name, why)| (&**name, &**why)).collect();
    assert_eq!(left_out, []);
    assert_eq!(table.forms, [("holes".to_owned(), Form::Json)].into());
}
