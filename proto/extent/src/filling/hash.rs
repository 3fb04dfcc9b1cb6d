//! Computes the checksums of a part while its bytes are written, and of the other units afterwards.

use std::ops::Range;

use crate::crc::{Crc32c, crc32c};
use crate::layout::{PlacedRegion, index};

/// Bytes read back at a time to be hashed: a unit may have a gibibyte, and every fill thread reads
/// some back. Rows of usual length are one piece, which stays in a core's L2 between read and hash.
const PIECE_BYTES: u64 = 256 << 10;

/// Returns the checksum of a unit, read piece by piece through `read`. `piece` is a buffer that the
/// caller keeps from one unit to the next.
pub(super) fn hash_in_pieces<E>(
    unit: Range<u64>,
    piece: &mut Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<u32, E> {
    let longest = index((unit.end - unit.start).min(PIECE_BYTES));
    piece.resize(longest.max(piece.len()), 0);
    if unit.end - unit.start <= PIECE_BYTES {
        read(unit.start, &mut piece[..longest])?;
        return Ok(crc32c(&piece[..longest]));
    }
    let (mut crc, mut at) = (Crc32c::new(), unit.start);
    while at < unit.end {
        let bytes = index((unit.end - at).min(PIECE_BYTES));
        read(at, &mut piece[..bytes])?;
        crc.update(&piece[..bytes]);
        at += bytes as u64;
    }
    Ok(crc.finish())
}

/// How far a part is written, and which of its checksums are missing.
pub(super) struct UnitHasher {
    /// Where in the region the next byte lies.
    at: u64,
    /// The units that lie wholly in the part and are not hashed yet.
    left: Range<u64>,
    /// The checksum of the bytes seen of the first of `left`.
    begun: Crc32c,
}

impl UnitHasher {
    /// Begins at the first byte of a part of a region.
    pub(super) fn new(placed: &PlacedRegion, part: &Range<u64>) -> Self {
        Self { at: part.start, left: placed.units_within(part), begun: Crc32c::new() }
    }

    /// Returns where in the region the next byte lies.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the units that must be read back: units not written as a whole here, and all units
    /// if units overlap.
    pub(super) fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// Takes in the next bytes, and calls `done` for each unit they complete.
    pub(super) fn pass(
        &mut self,
        placed: &PlacedRegion,
        bytes: &[u8],
        mut done: impl FnMut(u64, u32),
    ) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.left.is_empty() && !placed.units_overlap() {
            let unit = placed.unit_range(self.left.start);
            if self.at < unit.start {
                self.take(&mut rest, unit.start);
                continue;
            }
            let whole = self.at == unit.start;
            let now = self.take(&mut rest, unit.end);
            let ends = self.at == unit.end;
            let crc = if whole && ends {
                crc32c(now)
            } else {
                self.begun.update(now);
                self.begun.finish()
            };
            if ends {
                done(self.left.start, crc);
                self.left.start += 1;
                self.begun = Crc32c::new();
            }
        }
        self.at += rest.len() as u64;
    }

    /// Takes the bytes up to `until`, or all there are.
    fn take<'a>(&mut self, rest: &mut &'a [u8], until: u64) -> &'a [u8] {
        let (taken, after) = rest.split_at(rest.len().min(index(until - self.at)));
        self.at += taken.len() as u64;
        *rest = after;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_any_length_is_hashed_in_short_pieces() {
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| at.to_le_bytes()[0]).collect();
        let mut piece = Vec::new();
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 7] {
            let unit = 5..5 + length;
            let read = |at: u64, target: &mut [u8]| {
                target.copy_from_slice(&bytes[index(at)..][..target.len()]);
                Ok::<(), ()>(())
            };
            let crc = hash_in_pieces(unit.clone(), &mut piece, read).unwrap();
            assert_eq!(crc, crc32c(&bytes[index(unit.start)..index(unit.end)]), "{length} bytes");
            assert!(piece.len() as u64 <= PIECE_BYTES, "{} bytes are held", piece.len());
        }
    }
}
