//! Scans over files in memory.

use std::ops::Range;

use larder_formats::{Blocks, Column, Fault, Rows, RowsWanted, Scan, Table};

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
    let rows: Vec<Vec<u8>> = match &column.rows {
        Rows::Blocks(blocks) => made(column, blocks, file).unwrap(),
        _ => (0..count).map(of).map(|range| cut(file, range).to_vec()).collect(),
    };
    assert_eq!(rows.len() as u64, count);
    assert!(column.ragged || rows.iter().all(|row| row.len() as u64 == length));
    rows
}

/// Makes the rows of all blocks.
pub(crate) fn made(column: &Column, blocks: &Blocks, file: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let scalar_bytes = column.dtype.size_bytes();
    let row_bytes = column.shape.iter().product::<u64>() * scalar_bytes;
    let (mut made, mut lengths) = (Vec::new(), Vec::new());
    for placed in &blocks.blocks {
        let row_bytes = (!column.ragged).then_some(row_bytes);
        let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes };
        let stored = cut(file, placed.range.clone());
        placed.block.make(wanted, stored, blocks.recipes.as_bytes(), &mut |bytes, rows| {
            made.extend_from_slice(bytes);
            lengths.extend_from_slice(rows);
            Ok(())
        })?;
        if let Some(bytes) = row_bytes {
            lengths.resize(lengths.len() + placed.rows as usize, u32::try_from(bytes).unwrap());
        }
    }
    assert!(blocks.lengths.as_ref().is_none_or(|known| *known == lengths), "{}", column.name);
    let mut rest = made.as_slice();
    let rows = lengths.iter().map(|&length| rest.split_off(..length as usize).unwrap().to_vec());
    let rows = rows.collect();
    assert!(rest.is_empty(), "{}", column.name);
    Ok(rows)
}

fn cut(file: &[u8], range: Range<u64>) -> &[u8] {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    &file[at(range.start)..at(range.end)]
}
