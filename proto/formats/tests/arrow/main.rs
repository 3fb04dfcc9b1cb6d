//! The scan of Arrow files and streams: fixtures of the real writers, crafted files, bad input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad;
mod craft;
mod random;
mod reads;
mod real;

use std::ops::Range;

use larder_formats::{ArrowScan, Fault, Forms, Scan, Table};

/// Bytes of a file in memory, with the reads of its last scan.
struct File<'a> {
    /// Pieces at their offsets. All other bytes are zero.
    pieces: Vec<(u64, &'a [u8])>,
    bytes: u64,
    reads: Vec<Range<u64>>,
}

impl<'a> File<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { pieces: vec![(0, bytes)], bytes: bytes.len() as u64, reads: Vec::new() }
    }

    fn read(&self, range: Range<u64>) -> Vec<u8> {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let mut found = vec![0; at(range.end - range.start)];
        for (offset, piece) in &self.pieces {
            let begin = range.start.max(*offset);
            let end = range.end.min(offset + piece.len() as u64);
            if begin < end {
                let from = &piece[at(begin - offset)..at(end - offset)];
                found[at(begin - range.start)..at(end - range.start)].copy_from_slice(from);
            }
        }
        found
    }

    /// Scans the file, and once more if columns need other forms.
    fn scan(&mut self, random: &mut fastrand::Rng) -> Result<Table, Fault> {
        let table = self.scan_with(&Forms::new(), random)?;
        if table.forms.is_empty() { Ok(table) } else { self.scan_with(&table.forms, random) }
    }

    /// Scans the file, with its bytes in pieces of random size. Checks each range that the scan
    /// wants.
    fn scan_with(&mut self, forms: &Forms, random: &mut fastrand::Rng) -> Result<Table, Fault> {
        let mut scan: Box<dyn Scan> = Box::new(ArrowScan::new(self.bytes).with(None, forms));
        self.reads.clear();
        while let Some(range) = scan.wants() {
            assert!(range.start < range.end && range.end <= self.bytes, "{range:?}");
            let bytes = self.read(range.clone());
            self.reads.push(range);
            let mut rest = bytes.as_slice();
            let piece_max = 1 << random.u32(4..24);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(random.usize(1..=piece_max).min(rest.len()));
                scan.take(piece)?;
                rest = after;
            }
        }
        scan.finish()
    }

    fn bytes_read(&self) -> u64 {
        self.reads.iter().map(|range| range.end - range.start).sum()
    }
}

fn scan(bytes: &[u8]) -> Result<Table, Fault> {
    File::of(bytes).scan(&mut fastrand::Rng::with_seed(1))
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/arrow");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}
