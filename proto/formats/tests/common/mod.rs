//! Scans over files in memory.

use std::ops::Range;

use larder_formats::{Column, Fault, Rows, Scan, Table};

const READ_BYTES_MAX: u64 = 8 << 20;

/// Runs a scan over a file, in pieces of random sizes. Returns the ranges that it read too.
pub(crate) fn run(
    mut scan: impl Scan,
    file: &[u8],
    seed: u64,
) -> Result<(Table, Vec<Range<u64>>), Fault> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    while let Some(range) = scan.wants() {
        assert!(range.start < range.end && range.end <= file.len() as u64, "{range:?}");
        assert!(range.end - range.start <= READ_BYTES_MAX, "{range:?}");
        assert!(ranges.last().is_none_or(|last| last.end <= range.start), "{range:?} again");
        let mut rest = cut(file, range.clone());
        let largest = if random.bool() { 9 } else { rest.len() };
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.usize(1..=largest.min(rest.len())));
            scan.take(piece)?;
            rest = after;
        }
        ranges.push(range);
    }
    Ok((Box::new(scan).finish()?, ranges))
}

/// Returns the bytes of each row.
pub(crate) fn rows(column: &Column, count: u64, file: &[u8]) -> Vec<Vec<u8>> {
    let elements: u64 = column.shape.iter().product();
    let length = column.dtype.size_bytes() * elements;
    let of = |row: u64| match &column.rows {
        Rows::Strided { begin, stride } => {
            let at = begin + row * stride;
            at..at + length
        }
        Rows::Spans(spans) => spans.range(usize::try_from(row).unwrap()),
        Rows::Inline(_) | Rows::Blocks(_) => panic!("the rows lie in the file"),
    };
    let rows: Vec<Vec<u8>> = (0..count).map(of).map(|range| cut(file, range).to_vec()).collect();
    assert!(column.ragged || rows.iter().all(|row| row.len() as u64 == length));
    rows
}

fn cut(file: &[u8], range: Range<u64>) -> &[u8] {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    &file[at(range.start)..at(range.end)]
}
