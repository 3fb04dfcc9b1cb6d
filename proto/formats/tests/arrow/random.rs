//! Damaged fixtures: any result is right, but no panic and no endless scan.

use larder_formats::{Fault, Table};

use super::{File, fixture};

const FIXTURES: [&str; 9] = [
    "cache.stream.arrow",
    "empty.file.arrow",
    "kinds.file.arrow",
    "kinds.stream.arrow",
    "legacy.stream.arrow",
    "mixed.file.arrow",
    "mixed.stream.arrow",
    "v4.file.arrow",
    "zstd.file.arrow",
];

/// Scans a damaged file. A scan reads no byte more than four times.
fn scan_damaged(bytes: &[u8], random: &mut fastrand::Rng) -> Result<Table, Fault> {
    let mut file = File::of(bytes);
    let result = file.scan(random);
    assert!(file.bytes_read() <= 4 * bytes.len() as u64, "{:?}", file.reads);
    assert!(file.reads.len() <= 100, "{:?}", file.reads);
    result
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
        for end in 0..bytes.len() {
            let result = scan_damaged(&bytes[..end], &mut random);
            assert!(result.is_err() || name.contains(".stream."), "{name} of {end} bytes");
        }
    }
}
