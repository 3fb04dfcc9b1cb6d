//! A random cut of a set of samples in two, to the sample exact and even over the shards.
//!
//! How many rows of each shard go to the first side is decided by walking along the shards in a
//! random order and rounding the running total: after `x` of `n` samples, `floor((x * first + p) /
//! n)` are taken, `p` a random number below `n` (systematic sampling with a random start; W. and L.
//! Madow, *On the Theory of Systematic Sampling*, 1944). So a shard gives its share of rows to
//! within one, every row is as likely as any other, and all shards together give exactly `first`.
//! A keyed permutation chooses the rows of a shard: the first side has those at its front, the
//! other side the rest.

use xxhash_rust::xxh3::xxh3_128;

use crate::{DatasetShape, Permutation};

/// One side of a random cut in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Split {
    /// Which random cut: both sides must have the same.
    pub seed: u64,
    /// Samples on the first side; the rest is on the other.
    pub first: u64,
    /// Which side.
    pub side: SplitSide,
}

/// A side of a cut in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitSide {
    /// The [`Split::first`] samples.
    First,
    /// All others.
    Rest,
}

impl Split {
    /// How many of `samples` samples are on this side.
    pub(super) fn len(&self, samples: u64) -> u64 {
        match self.side {
            SplitSide::First => self.first,
            SplitSide::Rest => samples - self.first,
        }
    }

    /// The rows of each shard of `from`, the set named `source`, on this side. Some 30 ns a shard.
    pub(super) fn shape(&self, from: &DatasetShape, source: [u8; 16]) -> DatasetShape {
        let count = from.shard_count();
        let walk = Permutation::new(u64::from(count), self.key(source, KeyUse::Shards));
        let total = u128::from(from.samples());
        let start = self.key(source, KeyUse::Start).checked_rem(total).unwrap_or(0);
        let mut rows = vec![0; count as usize];
        let (mut passed, mut taken) = (0, 0);
        for place in 0..u64::from(count) {
            let shard = u32::try_from(walk.at(place)).expect("below a u32 count");
            let whole = from.rows(shard);
            passed += whole;
            let line = u128::from(passed) * u128::from(self.first) + start;
            let due = line.checked_div(total).unwrap_or(0);
            let first = u64::try_from(due - taken).expect("no more than the shard has");
            rows[shard as usize] = match self.side {
                SplitSide::First => first,
                SplitSide::Rest => whole - first,
            };
            taken = due;
        }
        from.with_rows(&rows)
    }

    /// The cut through a shard of `whole` rows of which this side has `own`.
    pub(super) fn in_shard(&self, shard: u32, whole: u64, own: u64, source: [u8; 16]) -> ShardCut {
        let rows = Permutation::new(whole, self.key(source, KeyUse::Rows(shard)));
        let start = match self.side {
            SplitSide::First => 0,
            SplitSide::Rest => whole - own,
        };
        ShardCut { rows, start, own }
    }

    /// The key of one use. Neither the side nor where the cut is takes part, so that both sides see
    /// the same order.
    fn key(&self, source: [u8; 16], key_use: KeyUse) -> u128 {
        let (number, index) = match key_use {
            KeyUse::Shards => (0_u8, 0),
            KeyUse::Rows(shard) => (1, shard),
            KeyUse::Start => (2, 0),
        };
        let mut bytes = [0; 16 + 16 + 8 + 1 + 4];
        bytes[..16].copy_from_slice(b"larder split v1\0");
        bytes[16..32].copy_from_slice(&source);
        bytes[32..40].copy_from_slice(&self.seed.to_le_bytes());
        bytes[40] = number;
        bytes[41..].copy_from_slice(&index.to_le_bytes());
        xxh3_128(&bytes)
    }
}

/// The use of a key.
#[derive(Clone, Copy)]
enum KeyUse {
    /// The order in which shards are walked along.
    Shards,
    /// The order of a shard's rows.
    Rows(u32),
    /// Where the rounding starts.
    Start,
}

/// A cut through one shard.
pub(super) struct ShardCut {
    rows: Permutation,
    /// The places of the shuffled rows that are on this side.
    start: u64,
    own: u64,
}

impl ShardCut {
    pub(super) fn source_of(&self, row: u64) -> u64 {
        self.rows.at(self.start + row)
    }

    pub(super) fn taken(&self, row: u64) -> Option<u64> {
        let place = self.rows.position_of(row);
        place.checked_sub(self.start).filter(|&row| row < self.own)
    }
}
