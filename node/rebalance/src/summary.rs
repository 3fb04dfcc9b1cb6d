//! The figures of a plan.

use crate::{SKEW_PERCENT_MAX, draft::percent};

/// What a plan does to the shards of one snapshot, or of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many shards there are, each counted once.
    pub shards: u64,
    /// Their bytes, each shard once for each of its owners.
    pub bytes: u64,
    /// Copies that are moved.
    pub moves: u64,
    /// Their bytes.
    pub bytes_moved: u64,
    /// Of these, the bytes that come from the origin, because nobody who is left holds them.
    pub bytes_from_origin: u64,
    /// What an even placement must move for this change: see the crate's page.
    pub bytes_ideal: u64,
    /// Shards whose owners are not those of the walk, before and after.
    pub exceptions_before: u64,
    /// The same afterwards.
    pub exceptions: u64,
    /// Bytes of the largest shard: above a tenth of the smallest share an even placement may not
    /// exist.
    pub shard_bytes_max: u64,
    /// By member of the present ring: bytes it holds. Empty when nothing was in place.
    pub held_before: Vec<u64>,
    /// By member of the present ring: its share.
    pub shares_before: Vec<u64>,
    /// By member of the next ring: bytes it is to hold.
    pub held: Vec<u64>,
    /// By member of the next ring: its share.
    pub shares: Vec<u64>,
}

impl Summary {
    /// The most that a member holds of its share, before the change: 1 is perfectly even.
    pub fn skew_before(&self) -> f64 {
        skew(&self.held_before, &self.shares_before)
    }

    /// The most that a member is to hold of its share after the change.
    pub fn skew(&self) -> f64 {
        skew(&self.held, &self.shares)
    }

    /// Whether nobody is to hold more than is tolerated. Where that is not so shards are too large
    /// for their number, or copies that must keep apart leave no choice.
    pub fn is_even(&self) -> bool {
        let cap = |share| percent(share, SKEW_PERCENT_MAX);
        self.held.iter().zip(&self.shares).all(|(&held, &share)| held <= cap(share))
    }

    /// The bytes moved in proportion to the ideal; `None` where the ideal is to move nothing.
    pub fn share_of_ideal(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let share =
            (self.bytes_ideal > 0).then(|| self.bytes_moved as f64 / self.bytes_ideal as f64);
        share
    }

    /// Adds the figures of another snapshot of the same plan.
    pub(crate) fn add(&mut self, other: &Self) {
        self.shards += other.shards;
        self.bytes += other.bytes;
        self.moves += other.moves;
        self.bytes_moved += other.bytes_moved;
        self.bytes_from_origin += other.bytes_from_origin;
        self.bytes_ideal += other.bytes_ideal;
        self.exceptions_before += other.exceptions_before;
        self.exceptions += other.exceptions;
        self.shard_bytes_max = self.shard_bytes_max.max(other.shard_bytes_max);
        add_each(&mut self.held_before, &other.held_before);
        add_each(&mut self.shares_before, &other.shares_before);
        add_each(&mut self.held, &other.held);
        add_each(&mut self.shares, &other.shares);
    }
}

fn add_each(sums: &mut Vec<u64>, others: &[u64]) {
    if sums.len() < others.len() {
        sums.resize(others.len(), 0);
    }
    sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
}

fn skew(held: &[u64], shares: &[u64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = held.iter().zip(shares).map(|(&held, &share)| held as f64 / share.max(1) as f64);
    each.fold(0.0, f64::max)
}
