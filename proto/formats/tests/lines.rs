//! Files of lines, against a model that splits the whole file at once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use larder_formats::{Rows, Scan, Table, jsonl::LinesScan};
use proptest::prelude::*;

fn scan(file: &[u8]) -> Table {
    common::run(LinesScan::new(file.len() as u64), file, 1).unwrap().0
}

fn lines(file: &[u8]) -> Vec<Vec<u8>> {
    let table = scan(file);
    common::rows(&table.columns[0], table.rows, file)
}

/// Returns the lines and the number of blank ones.
fn model(file: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let text = file.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(file);
    let mut split: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let last = split.pop().unwrap();
    let ended = split.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let unended = (!last.is_empty()).then_some(last);
    let (blank, full): (Vec<&[u8]>, Vec<&[u8]>) =
        ended.chain(unended).partition(|line| line.trim_ascii().is_empty());
    (full.into_iter().map(<[u8]>::to_vec).collect(), blank.len())
}

#[test]
fn lines_end_at_newlines_with_or_without_return() {
    let file = b"\xEF\xBB\xBF{\"a\": 1}\r\n\n \t\r\nb\rc\nlast\r";
    assert_eq!(lines(file), [&b"{\"a\": 1}"[..], b"b\rc", b"last\r"]);
    let table = scan(file);
    assert_eq!(table.left_out, [("2 blank lines".into(), "hold no samples".into())]);
    assert_eq!(table.columns[0].name, "line");
    assert!(table.columns[0].ragged);
}

#[test]
fn empty_files_have_no_rows() {
    for file in [&b""[..], b"\xEF\xBB\xBF", b"\n", b" "] {
        assert_eq!(scan(file).rows, 0);
    }
    assert_eq!(scan(b" \n").left_out, [("1 blank line".into(), "holds no sample".into())]);
    assert_eq!(lines(b"\xEF\xBB"), [b"\xEF\xBB"]);
}

#[test]
fn large_file_is_read_in_consecutive_ranges() {
    let file = "0123456789\n".repeat(1 << 20);
    let (table, ranges) =
        common::run(LinesScan::new(file.len() as u64), file.as_bytes(), 2).unwrap();
    assert_eq!(table.rows, 1 << 20);
    let Rows::Spans(spans) = &table.columns[0].rows else { panic!("spans") };
    assert!(spans.iter().zip(0..).all(|(range, row)| range == (11 * row..11 * row + 10)));
    assert_eq!(ranges, [0..8 << 20, 8 << 20..file.len() as u64]);
}

#[test]
fn scan_that_ends_early_is_a_fault() {
    let mut scan = LinesScan::new(4);
    scan.take(b"ab\n").unwrap();
    assert_eq!(Box::new(scan).finish().unwrap_err().why, "was not read to its end");
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_lines_of_the_model(
        marked in any::<bool>(),
        bytes in proptest::collection::vec(
            prop::sample::select(&b"\n\n\r ax\xEF\xBB\xBF\0"[..]), 0..60,
        ),
        seed in any::<u64>(),
    ) {
        let mark: &[u8] = if marked { b"\xEF\xBB\xBF" } else { b"" };
        let file = [mark, &bytes].concat();
        let (table, _) = common::run(LinesScan::new(file.len() as u64), &file, seed).unwrap();
        let (full, blank) = model(&file);
        prop_assert_eq!(common::rows(&table.columns[0], table.rows, &file), full);
        let told = table.left_out.first().map_or(0, |(name, _)| {
            name.split(' ').next().unwrap().parse().unwrap()
        });
        prop_assert_eq!(told, blank);
    }
}
