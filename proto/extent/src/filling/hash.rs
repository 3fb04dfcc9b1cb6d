//! Checksums of a part, taken while its bytes pass by.

use std::ops::Range;

use crate::crc::{Crc32c, crc32c};
use crate::layout::{Placed, index};

/// How far a part is written, and which checksums of it are not taken yet.
pub(super) struct UnitHasher {
    /// Where in the region the next byte lies.
    at: u64,
    /// The units that lie wholly in the part and are not hashed yet.
    left: Range<u64>,
    /// What of the first of them has passed by.
    begun: Crc32c,
}

impl UnitHasher {
    /// At the first byte of a part of a region.
    pub(super) fn new(placed: &Placed, part: &Range<u64>) -> Self {
        Self { at: part.start, left: placed.units_within(part), begun: Crc32c::new() }
    }

    /// Where in the region the next byte lies.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The units that are to be hashed where they lie: those that did not pass by as a whole, and all
    /// if they overlap.
    pub(super) fn left(&self) -> Range<u64> {
        self.left.clone()
    }

    /// Takes in the next bytes; `done` is told each unit that is complete with them.
    pub(super) fn pass(&mut self, placed: &Placed, bytes: &[u8], mut done: impl FnMut(u64, u32)) {
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

    /// The bytes up to this place, or all there are.
    fn take<'a>(&mut self, rest: &mut &'a [u8], until: u64) -> &'a [u8] {
        let (taken, after) = rest.split_at(rest.len().min(index(until - self.at)));
        self.at += taken.len() as u64;
        *rest = after;
        taken
    }
}
