//! MDS shards: those of the real writer, synthetic ones, and broken ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeMap, path::PathBuf};

use larder_formats::{
    Dtype, Fault, Rows, RowsWanted, Table,
    mds::{CompressedScan, Index, MdsScan, ShardInfo},
};
use proptest::prelude::*;

fn fixture(path: &str) -> Vec<u8> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/mds"));
    std::fs::read(root.join(path)).unwrap()
}

fn scan(shard: &ShardInfo, file: &[u8], seed: u64) -> Result<Table, Fault> {
    common::run(MdsScan::new(shard, file.len() as u64)?, file, seed).map(|(table, _)| table)
}

/// Scans a shard whose rows must be made.
fn scan_made(shard: &ShardInfo, file: &[u8], seed: u64) -> Result<Table, Fault> {
    let scan = CompressedScan::new(shard, shard.zip().is_some(), file.len() as u64)?;
    common::run(scan, file, seed).map(|(table, _)| table)
}

/// For each file: the values of each column, in hex.
type Expected = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn rows_equal_those_of_the_real_reader() {
    let folders: BTreeMap<String, Expected> =
        serde_json::from_slice(&fixture("expected.json")).unwrap();
    assert_eq!(folders.len(), 11);
    for (folder, mut expected) in folders {
        let index = Index::parse(&fixture(&format!("{folder}/index.json"))).unwrap();
        for (shard, seed) in index.shards().iter().zip(0..) {
            let stored = shard.zip().unwrap_or(shard.raw());
            let file = fixture(&format!("{folder}/{}", stored.basename));
            let mut columns = expected.remove(&shard.raw().basename).unwrap();
            let mut tables = vec![scan_made(shard, &file, seed).unwrap()];
            if shard.zip().is_none() {
                tables.push(scan(shard, &file, seed).unwrap());
            }
            let wanted: Vec<_> =
                tables[0].columns.iter().map(|c| columns.remove(&c.name)).collect();
            assert!(columns.is_empty(), "{columns:?}");
            for table in tables {
                assert_eq!((table.rows, &table.left_out), (shard.samples(), &vec![]));
                for (column, wanted) in table.columns.iter().zip(&wanted) {
                    let rows = common::rows(column, table.rows, &file);
                    let rows: Vec<String> = rows.iter().map(|row| hex(row)).collect();
                    assert_eq!(Some(&rows), wanted.as_ref(), "{folder} {}", column.name);
                }
            }
        }
        assert!(expected.is_empty(), "{:?}", expected.keys());
    }
}

#[test]
fn damaged_compressed_shards_end_without_panic() {
    let mut random = fastrand::Rng::with_seed(13);
    for codec in ["zstd", "gz", "br", "snappy"] {
        let folder = format!("compressed_{codec}");
        let index = Index::parse(&fixture(&format!("{folder}/index.json"))).unwrap();
        let shard = &index.shards()[0];
        let file = fixture(&format!("{folder}/{}", shard.zip().unwrap().basename));
        let table = scan_made(shard, &file, 1).unwrap();
        for _ in 0..1000 {
            let mut damaged = file.clone();
            let at = random.usize(..file.len());
            damaged[at] ^= random.u8(1..);
            // Not every compression has a checksum.
            let _ = scan_made(shard, &damaged, 1);
            let column = &table.columns[random.usize(..table.columns.len())];
            let Rows::Blocks(blocks) = &column.rows else { panic!("no blocks") };
            let stored = if random.bool() { &damaged } else { &file };
            let mut recipes = blocks.recipes.as_bytes().to_vec();
            let at = random.usize(..recipes.len());
            recipes[at] = random.u8(..);
            let wanted = RowsWanted {
                rows: shard.samples(),
                row_bytes: random.bool().then_some(column.dtype.size_bytes()),
                scalar_bytes: column.dtype.size_bytes(),
            };
            let _ = blocks.blocks[0].block.make(wanted, stored, &recipes, &mut |_, _| Ok(()));
        }
    }
}

#[test]
fn compressed_shards_of_other_sizes_or_kinds_are_faults() {
    let text = String::from_utf8(fixture("compressed_zstd/index.json")).unwrap();
    let index = Index::parse(text.as_bytes()).unwrap();
    let zip = index.shards()[0].zip().unwrap();
    let (file, raw) = (fixture("compressed_zstd/shard.00000.mds.zstd"), index.shards()[0].raw());
    let fault = |text: &str, file: &[u8]| {
        let index = Index::parse(text.as_bytes()).unwrap();
        scan_made(&index.shards()[0], file, 1).unwrap_err().why
    };
    let told = format!("has {} bytes, in the index it has {}", zip.bytes - 1, zip.bytes);
    assert_eq!(fault(&text, &file[1..]), told);
    let told = "has a compression that is not read: write it with zstd, gz, br or snappy";
    assert_eq!(fault(&text.replace("zstd:3", "bz2:9"), &file), told);
    let size = |bytes: u64| format!("\"bytes\": {bytes}");
    let other = |bytes: u64| text.replacen(&size(raw.bytes), &size(bytes), 1);
    let told = format!("decompresses to {} bytes where {} must be", raw.bytes, raw.bytes + 1);
    assert_eq!(fault(&other(raw.bytes + 1), &file), told);
    assert!(fault(&other(raw.bytes - 1), &file).starts_with("does not decompress: "));
    let told = "has 536870913 bytes, a compressed shard may have 536870912: write smaller shards";
    assert_eq!(fault(&other((512 << 20) + 1), &file), told);
}

#[test]
fn columns_have_the_types_of_their_encodings() {
    let types = |folder: &str| -> Vec<(String, Dtype, Vec<u64>, bool, bool)> {
        let index = Index::parse(&fixture(&format!("{folder}/index.json"))).unwrap();
        let table =
            scan(&index.shards()[0], &fixture(&format!("{folder}/shard.00000.mds")), 3).unwrap();
        let columns = table.columns.into_iter();
        let strided = |rows: &Rows| matches!(rows, Rows::Strided { .. });
        columns.map(|c| (c.name, c.dtype, c.shape, c.ragged, strided(&c.rows))).collect()
    };
    let fixed = types("fixed");
    assert_eq!(fixed.len(), 13);
    assert!(fixed.iter().all(|(.., ragged, strided)| !ragged && *strided));
    assert_eq!(fixed[0], ("array".into(), Dtype::F64, vec![3], false, true));
    assert_eq!(fixed[4], ("int".into(), Dtype::I64, vec![], false, true));
    let mixed = types("many_variable");
    let find = |name: &str| mixed.iter().find(|column| column.0 == name).unwrap().clone();
    assert_eq!(find("array"), ("array".into(), Dtype::F32, vec![2, 3], false, false));
    assert_eq!(find("u16_array"), ("u16_array".into(), Dtype::U8, vec![], true, false));
    assert_eq!(mixed.iter().filter(|column| column.3).count(), 12);
}

#[test]
fn index_of_compressed_shards_names_both_files() {
    let index = Index::parse(&fixture("compressed_zstd/index.json")).unwrap();
    let shard = &index.shards()[0];
    assert_eq!(shard.compression(), Some("zstd:3"));
    assert_eq!(shard.zip().unwrap().basename, "shard.00000.mds.zstd");
    assert!(shard.raw().bytes > shard.zip().unwrap().bytes);
    let nested = Index::parse(&fixture("nested/index.json")).unwrap();
    assert_eq!(nested.shards()[1].raw().basename, "0-1/shard.00000.mds");
    assert_eq!((nested.shards()[1].compression(), nested.shards()[1].zip()), (None, None));
}

/// Columns of a synthetic shard: name, encoding and size.
type Columns<'a> = &'a [(&'a str, &'a str, Option<u32>)];

fn config(columns: Columns<'_>) -> String {
    let list = |of: fn(&(&str, &str, Option<u32>)) -> serde_json::Value| {
        serde_json::Value::from(columns.iter().map(of).collect::<Vec<_>>()).to_string()
    };
    format!(
        "\"column_names\": {}, \"column_encodings\": {}, \"column_sizes\": {}",
        list(|column| column.0.into()),
        list(|column| column.1.into()),
        list(|column| column.2.into()),
    )
}

/// Writes a shard: the bytes of each value of each sample.
fn shard(columns: Columns<'_>, samples: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let encode = |values: &Vec<Vec<u8>>| -> Vec<u8> {
        let variable = values.iter().zip(columns).filter(|(_, column)| column.2.is_none());
        let sizes =
            variable.flat_map(|(value, _)| u32::try_from(value.len()).unwrap().to_le_bytes());
        sizes.chain(values.iter().flatten().copied()).collect()
    };
    let encoded: Vec<Vec<u8>> = samples.iter().map(encode).collect();
    let config = format!("{{{}}}", config(columns));
    let count = u32::try_from(samples.len()).unwrap();
    let mut end = 4 * (count + 2) + u32::try_from(config.len()).unwrap();
    let mut file = [count.to_le_bytes(), end.to_le_bytes()].concat();
    for sample in &encoded {
        end += u32::try_from(sample.len()).unwrap();
        file.extend(end.to_le_bytes());
    }
    [file, config.into_bytes(), encoded.concat()].concat()
}

fn index_text(columns: Columns<'_>, samples: u64, bytes: u64) -> String {
    format!(
        "{{\"version\": 2, \"shards\": [{{\"format\": \"mds\", {}, \"samples\": {samples}, \
         \"raw_data\": {{\"basename\": \"a.mds\", \"bytes\": {bytes}}}}}]}}",
        config(columns),
    )
}

fn info(columns: Columns<'_>, samples: usize, file: &[u8]) -> ShardInfo {
    let text = index_text(columns, samples as u64, file.len() as u64);
    Index::parse(text.as_bytes()).unwrap().shards()[0].clone()
}

const PAIR: Columns<'static> = &[("s", "str", None), ("t", "bytes", None)];

#[test]
fn head_is_enough_with_one_variable_column() {
    let columns: Columns<'_> = &[("n", "int", Some(8)), ("s", "str", None)];
    let samples = vec![vec![vec![7; 8], vec![1; 30_000]]; 5];
    let file = shard(columns, &samples);
    let scan = MdsScan::new(&info(columns, 5, &file), file.len() as u64).unwrap();
    let (table, ranges) = common::run(scan, &file, 4).unwrap();
    assert_eq!(common::rows(&table.columns[1], 5, &file), vec![vec![1; 30_000]; 5]);
    assert_eq!(ranges.len(), 1);
    assert!(ranges[0].end < 5_000, "{ranges:?}");
}

#[test]
fn long_head_is_read_in_several_ranges() {
    let columns: Columns<'_> = &[("n", "uint8", Some(1))];
    let samples = 2_200_000;
    let config = format!("{{{}}}", config(columns));
    let begin = 4 * (samples + 2) + u32::try_from(config.len()).unwrap();
    let mut file = samples.to_le_bytes().to_vec();
    file.extend((begin..=begin + samples).flat_map(u32::to_le_bytes));
    file.extend(config.into_bytes());
    let values: Vec<u8> = (0..=250).cycle().take(samples as usize).collect();
    file.extend(&values);
    let scan = MdsScan::new(&info(columns, values.len(), &file), file.len() as u64).unwrap();
    let (table, ranges) = common::run(scan, &file, 5).unwrap();
    assert_eq!(common::rows(&table.columns[0], table.rows, &file).concat(), values);
    assert_eq!(ranges.len(), 2);
    assert_eq!(ranges[0], 0..8 << 20);
}

#[test]
fn large_samples_are_hopped_over() {
    let samples = vec![vec![vec![1; 300_000], vec![2; 9]]; 6];
    let file = shard(PAIR, &samples);
    let scan = MdsScan::new(&info(PAIR, 6, &file), file.len() as u64).unwrap();
    let (table, ranges) = common::run(scan, &file, 6).unwrap();
    assert_eq!(common::rows(&table.columns[1], 6, &file), vec![vec![2; 9]; 6]);
    assert_eq!(ranges.len(), 6);
    assert!(ranges[1..].iter().all(|range| range.end - range.start == 8), "{ranges:?}");
}

#[test]
fn small_samples_are_streamed_in_large_ranges() {
    let samples = vec![vec![vec![1; 50_000], vec![2; 50_000]]; 200];
    let file = shard(PAIR, &samples);
    let scan = MdsScan::new(&info(PAIR, 200, &file), file.len() as u64).unwrap();
    let (table, ranges) = common::run(scan, &file, 7).unwrap();
    assert_eq!(common::rows(&table.columns[1], 200, &file), vec![vec![2; 50_000]; 200]);
    assert_eq!(ranges.len(), 4, "{ranges:?}");
}

#[test]
fn unknown_encodings_are_left_out_and_skipped() {
    let columns: Columns<'_> = &[
        ("a", "new", Some(3)),
        ("b", "newer:1", None),
        ("c", "uint16", Some(2)),
        ("d", "str", None),
    ];
    let sample = |n: u8| vec![vec![9; 3], vec![8; n.into()], vec![n, 0], vec![n; 2]];
    let file = shard(columns, &[sample(1), sample(4)]);
    let table = scan(&info(columns, 2, &file), &file, 8).unwrap();
    assert_eq!(common::rows(&table.columns[0], 2, &file), [[1, 0], [4, 0]]);
    assert_eq!(common::rows(&table.columns[1], 2, &file), [[1, 1], [4, 4]]);
    let told: Vec<String> =
        table.left_out.iter().map(|(name, why)| format!("{name} {why}")).collect();
    assert_eq!(told, ["a has the unknown encoding 'new'", "b has the unknown encoding 'newer:1'"]);
}

#[test]
fn shard_without_samples_has_an_empty_table() {
    for columns in [PAIR, &PAIR[..1], &[("n", "int", Some(8))]] {
        let file = shard(columns, &[]);
        let table = scan(&info(columns, 0, &file), &file, 9).unwrap();
        assert_eq!((table.rows, table.columns.len()), (0, columns.len()));
    }
}

#[test]
fn scan_that_ends_early_is_a_fault() {
    let file = shard(PAIR, &[vec![vec![1], vec![2]]]);
    let scan = MdsScan::new(&info(PAIR, 1, &file), file.len() as u64).unwrap();
    let fault = larder_formats::Scan::finish(Box::new(scan)).unwrap_err();
    assert_eq!(fault.why, "was not read to its end");
}

/// Returns the fault of a file with some bytes replaced.
fn fault_of(columns: Columns<'_>, samples: &[Vec<Vec<u8>>], at: usize, bytes: &[u8]) -> String {
    let mut file = shard(columns, samples);
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let fault = scan(&info(columns, samples.len(), &file), &file, 10).unwrap_err();
    format!("{}: {}", fault.field, fault.why)
}

#[test]
fn mistakes_in_a_shard_name_sample_and_column() {
    let samples = vec![vec![vec![1; 5], vec![2; 3]]; 3];
    let word = |value: u32| value.to_le_bytes();
    let data = shard(PAIR, &samples).len() - 3 * 16;
    let end = u32::try_from(data + 3 * 16).unwrap();
    for (at, bytes, told) in [
        (0, word(4), "file: has 4 samples, in the index it has 3"),
        (4, word(20), "config: ends at byte 20, not at 21 to "),
        (4, word(1 << 30), "config: ends at byte 1073741824, not at 21 to "),
        (8, word(9), "sample 0: ends at byte 9, before it begins at "),
        (12, word(1 << 31), "sample 1: ends at byte 2147483648, past the end of a file of "),
        (12, word(end - 31), "sample 1: has 1 bytes, fewer than the 8 of its sizes"),
        (16, word(end - 1), "samples: end at byte "),
        (20, *b"[1, ", "config: "),
        (data + 16, word(99), "sample 1 column 's': has 99 bytes, 8 are left of the sample"),
        (data + 36, word(4), "sample 2 column 't': has 4 bytes, 3 are left of the sample"),
        (data + 36, word(2), "sample 2: has 1 bytes after its last column"),
    ] {
        let fault = fault_of(PAIR, &samples, at, &bytes);
        assert!(fault.contains(told), "{fault}");
    }
    let fixed: Columns<'_> = &[("n", "int", Some(8)), ("m", "uint8", Some(1))];
    let file = shard(fixed, &[vec![vec![0; 8], vec![1]], vec![vec![0; 8], vec![1]]]);
    let samples = vec![vec![vec![0; 8], vec![1]]; 2];
    let end = u32::try_from(file.len()).unwrap();
    let fault = fault_of(fixed, &samples, 8, &word(end - 8));
    assert_eq!(fault, "sample 0: has 10 bytes, more than the 9 of its columns");
}

#[test]
fn file_unlike_its_index_is_a_fault() {
    let file = shard(PAIR, &[vec![vec![1], vec![2]]]);
    let shorter = scan(&info(PAIR, 1, &file), &file[1..], 11).unwrap_err();
    assert!(shorter.why.starts_with("has 114 bytes, in the index it has 115"), "{}", shorter.why);
    for (columns, told) in [
        (&PAIR[..1], "column 1 is 't' (bytes), in the index it is missing"),
        (&[PAIR[0], ("t", "str", None)], "column 1 is 't' (bytes), in the index it is 't' (str)"),
        (
            &[PAIR[0], ("u", "bytes", None)],
            "column 1 is 't' (bytes), in the index it is 'u' (bytes)",
        ),
    ] {
        let fault = scan(&info(columns, 1, &file), &file, 12).unwrap_err();
        assert_eq!((fault.field, &*fault.why), ("config".into(), told));
    }
}

#[test]
fn values_over_the_limit_are_a_fault() {
    let names: Vec<String> = (0..4096).map(|n| n.to_string()).collect();
    let columns: Vec<_> = names.iter().map(|name| (&**name, "str", None)).collect();
    let shard = Index::parse(index_text(&columns, 16_385, 1 << 30).as_bytes()).unwrap();
    let fault = MdsScan::new(&shard.shards()[0], 1 << 30).unwrap_err();
    assert_eq!(fault.why, "has 16385 samples of 4096 values, over 67108864");
}

#[test]
fn mistakes_in_an_index_are_reported() {
    let good = index_text(PAIR, 3, 100);
    Index::parse(good.as_bytes()).unwrap();
    let two = |first: &str, second: &str| {
        let shard = |text: &str| text[text.find('[').unwrap() + 1..text.len() - 2].to_string();
        format!("{{\"version\": 2, \"shards\": [{}, {}]}}", shard(first), shard(second))
    };
    let other = good.replace("a.mds", "b.mds");
    for (text, told) in [
        ("[".to_string(), "EOF while parsing"),
        ("{}".into(), "missing field `version`"),
        (good.replace("version\": 2", "version\": 1"), "has version 1, only version 2 is known"),
        (
            good.replace("\"mds\"", "\"json\""),
            "shard 0: shards of the format json are not supported yet",
        ),
        (good.replace("\"mds\"", "\"csv\""), "shards of the format csv are not supported yet"),
        (good.replace("\"mds\"", "\"x\""), "shard 0: has the unknown format 'x'"),
        (good.replace("a.mds", "../a.mds"), "shard 0: basename '../a.mds' is not a path inside"),
        (good.replace("a.mds", "/a"), "basename '/a' is not a path inside the folder"),
        (good.replace("a.mds", "a\\\\b"), "is not a path inside the folder"),
        (good.replace("a.mds", "a\\u0000"), "is not a path inside the folder"),
        (good.replace("a.mds", ""), "basename '' is not a path inside the folder"),
        (index_text(PAIR, 1 << 40, 100), "has 1099511627776 samples, a file of 100 bytes has room"),
        (index_text(PAIR, 24, 100), "has 24 samples, a file of 100 bytes has room for 23 offsets"),
        (index_text(PAIR, 0, 7), "has 0 samples, a file of 7 bytes has room"),
        (index_text(PAIR, 3, 1 << 32), "has 4294967296 bytes, 32-bit offsets end at 4294967295"),
        (good.replace("\"t\"", "\"s\""), "shard 0: column 's' is there twice"),
        (good.replace("\"t\"", "\"\""), "column '' has no name, or one of more than 1024 bytes"),
        (good.replace("\"t\"", &format!("\"{}\"", "t".repeat(1025))), "of more than 1024 bytes"),
        (
            good.replace("\"str\"", &format!("\"{}\"", "t".repeat(1025))),
            "has an encoding of more than",
        ),
        (good.replace("\"str\"", "\"int\""), "column 's' has encoding 'int' and size null"),
        (good.replace("[null,", "[4,"), "column 's' has encoding 'str' and size 4"),
        (
            good.replace(",null]", "]"),
            "lists 2 column_names, 2 column_encodings and 1 column_sizes",
        ),
        (index_text(&[], 1, 100), "lists 0 column_names"),
        (index_text(&[("a", "new", Some(0))], 1, 100), "has encoding 'new' and size 0"),
        (index_text(&[("a", "uint8", Some(2))], 1, 100), "has encoding 'uint8' and size 2"),
        (
            good.replace("\"samples\"", "\"compression\": \"gz\", \"samples\""),
            "one of zip_data and",
        ),
        (two(&good, &good), "names the file 'a.mds' twice"),
        (
            two(&good, &other.replace("bytes\"]", "pkl\"]")),
            "shard 1: ('b.mds') column 1 is 't' (pkl), in shard 0 ('a.mds') it is 't' (bytes)",
        ),
        (" ".repeat((64 << 20) + 1), "has 67108865 bytes, at most 67108864 are read"),
    ] {
        let fault = Index::parse(text.as_bytes()).unwrap_err();
        assert!(fault.why.contains(told), "{} instead of {told}", fault.why);
    }
}

#[test]
fn columns_over_the_limit_are_a_fault() {
    let names: Vec<String> = (0..4097).map(|n| n.to_string()).collect();
    let columns: Vec<_> = names.iter().map(|name| (&**name, "str", None)).collect();
    let fault = Index::parse(index_text(&columns, 1, 1 << 20).as_bytes()).unwrap_err();
    assert!(fault.why.contains("more than 4096 columns"), "{}", fault.why);
}

proptest! {
    #[test]
    fn random_shards_yield_their_values(
        sizes in proptest::collection::vec(prop::option::of(1..9_u32), 1..6),
        lengths in proptest::collection::vec(proptest::collection::vec(0..20_usize, 6), 0..12),
        seed in any::<u64>(),
    ) {
        let named = |(n, size): (usize, &Option<u32>)| match size {
            Some(bytes) => (format!("c{n}"), format!("ndarray:uint8:{bytes}"), *size),
            None => (format!("c{n}"), "bytes".into(), None),
        };
        let named: Vec<_> = sizes.iter().enumerate().map(named).collect();
        let columns: Vec<_> = named.iter().map(|(a, b, size)| (&**a, &**b, *size)).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sample = |lengths: &Vec<usize>| -> Vec<Vec<u8>> {
            let bytes = sizes.iter().zip(lengths).map(|(size, n)| size.map_or(*n, |n| n as usize));
            bytes.map(|bytes| (0..bytes).map(|_| random.u8(..)).collect()).collect()
        };
        let samples: Vec<Vec<Vec<u8>>> = lengths.iter().map(&mut sample).collect();
        let file = shard(&columns, &samples);
        let shard = info(&columns, samples.len(), &file);
        for table in [scan(&shard, &file, seed).unwrap(), scan_made(&shard, &file, seed).unwrap()] {
            prop_assert_eq!((table.rows, table.columns.len()), (samples.len() as u64, sizes.len()));
            for (at, column) in table.columns.iter().enumerate() {
                let wanted: Vec<_> = samples.iter().map(|sample| sample[at].clone()).collect();
                prop_assert_eq!(common::rows(column, table.rows, &file), wanted);
                prop_assert_eq!(column.ragged, sizes[at].is_none());
            }
        }
    }

    #[test]
    fn flipped_and_cut_shards_end_without_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        is_cut in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        folder in prop::sample::select(&["one_variable", "shards", "fixed", "pickled"][..]),
        seed in any::<u64>(),
    ) {
        let index = fixture(&format!("{folder}/index.json"));
        let mut file = fixture(&format!("{folder}/shard.00000.mds"));
        for (at, byte) in flips {
            // Most bytes are values, so half of the flips go to the head.
            let head = if byte % 2 == 0 { 100 } else { file.len() };
            file[at.index(head)] ^= byte;
        }
        if is_cut {
            file.truncate(cut.index(file.len()));
        }
        // The index tells the size of the file that there is, so that the scan begins.
        let size = format!("\"bytes\": {}", file.len());
        let text = String::from_utf8(index).unwrap();
        let at = text.find("\"bytes\": ").unwrap();
        let end = at + text[at..].find(',').unwrap();
        let Ok(index) = Index::parse([&text[..at], &*size, &text[end..]].concat().as_bytes()) else {
            return Ok(());
        };
        if let Ok(table) = scan(&index.shards()[0], &file, seed) {
            for column in &table.columns {
                common::rows(column, table.rows, &file);
            }
        }
    }

    #[test]
    fn flipped_and_cut_indexes_end_without_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut text = fixture("many_variable/index.json");
        for (at, byte) in flips {
            let at = at.index(text.len());
            text[at] ^= byte;
        }
        let _ = Index::parse(&text);
        prop_assert!(Index::parse(&text[..cut.index(text.len() - 1)]).is_err());
    }
}
