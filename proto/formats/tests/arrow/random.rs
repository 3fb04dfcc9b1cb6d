//! Damaged fixtures: any result is right, but no panic and no endless scan.

use larder_formats::{Fault, Rows, RowsWanted, Table};

use super::{File, fixture};

const FIXTURES: [&str; 12] = [
    "cache.stream.arrow",
    "empty.file.arrow",
    "kinds.file.arrow",
    "kinds.stream.arrow",
    "legacy.stream.arrow",
    "mixed.file.arrow",
    "mixed.stream.arrow",
    "mixed_lz4.stream.arrow",
    "mixed_zstd.file.arrow",
    "polars.file.arrow",
    "v4.file.arrow",
    "zstd.file.arrow",
];

/// Scans a damaged file. A scan reads no byte more than four times.
fn scan_damaged(bytes: &[u8], random: &mut fastrand::Rng) -> Result<Table, Fault> {
    let mut file = File::of(bytes);
    let result = file.scan(random);
    assert!(file.bytes_read() <= 4 * bytes.len() as u64, "{:?}", file.reads);
    assert!(file.reads.len() <= 100, "{:?}", file.reads);
    if let Ok(table) = &result {
        make_damaged(table, bytes, random);
    }
    result
}

/// Makes all rows, once from recipes that are damaged too.
fn make_damaged(table: &Table, bytes: &[u8], random: &mut fastrand::Rng) {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    for column in &table.columns {
        let Rows::Blocks(blocks) = &column.rows else { continue };
        let mut recipes = blocks.recipes.as_bytes().to_vec();
        let scalar_bytes = column.dtype.size_bytes();
        let row_bytes = column.shape.iter().product::<u64>() * scalar_bytes;
        let row_bytes = (!column.ragged).then_some(row_bytes);
        for _ in 0..2 {
            for placed in &blocks.blocks {
                let stored = &bytes[at(placed.range.start)..at(placed.range.end)];
                let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes };
                let mut left = 1_u64 << 20;
                let mut put = |bytes: &[u8], _: &[u32]| {
                    left = left.checked_sub(bytes.len() as u64).ok_or(Fault::new("rows", "end"))?;
                    Ok(())
                };
                let _ = placed.block.make(wanted, stored, &recipes, &mut put);
            }
            if !recipes.is_empty() {
                let at = random.usize(..recipes.len());
                recipes[at] = random.u8(..);
            }
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let mut random = fastrand::Rng::with_seed(5);
    for name in FIXTURES {
        let bytes = fixture(name);
        for _ in 0..1000 {
            let mut damaged = bytes.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..damaged.len());
                damaged[at] = random.u8(..);
            }
            let _ = scan_damaged(&damaged, &mut random);
        }
    }
}

#[test]
fn extreme_numbers_never_panic() {
    let mut random = fastrand::Rng::with_seed(6);
    let extremes = [0, 1, -1, i64::MIN, i64::MAX, 1 << 31, (1 << 31) - 1, 1 << 62];
    for name in FIXTURES {
        let bytes = fixture(name);
        for _ in 0..1000 {
            let mut damaged = bytes.clone();
            let at = 4 * random.usize(..damaged.len() / 4 - 2);
            let number = random.choice(extremes).unwrap();
            damaged[at..at + 8].copy_from_slice(&number.to_le_bytes());
            let _ = scan_damaged(&damaged, &mut random);
        }
    }
}

#[test]
fn truncated_files_never_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    for name in FIXTURES {
        let bytes = fixture(name);
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 4096) {
            let result = scan_damaged(&bytes[..end], &mut random);
            assert!(result.is_err() || name.contains(".stream."), "{name} of {end} bytes");
        }
    }
}
