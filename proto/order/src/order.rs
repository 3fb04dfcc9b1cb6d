//! Positions of an epoch to samples, and back.

mod shards;
mod windows;

use std::ops::Range;

use crate::pass::KeyUse;
use crate::{Error, PassId, Permutation, Shuffle, View};
pub use shards::{DeclaredShards, ShardKeys, ShardOrder};
use windows::Windows;

/// The order of one epoch: which sample each position brings.
///
/// Positions run from 0 to [`len`](Self::len); each declared sample has exactly one. Constant
/// memory, but for a window shuffle 12 bytes a shard, built in [`Order::new`] in about 25 ns a
/// shard (one million: 25 ms). It is immutable: share it by reference.
#[derive(Debug, Clone)]
pub struct Order {
    pass_id: PassId,
    view: View,
    arrangement: Arrangement,
}

#[derive(Debug, Clone)]
enum Arrangement {
    Straight,
    Windows(Box<Windows>),
    Global(Box<Permutation>),
}

impl Order {
    /// The order of `pass_id`, a pass of `view`.
    ///
    /// # Errors
    /// [`Error::View`] if the pass is of another view, [`Error::OrderVersion`] if this build does
    /// not compute the pass's order.
    pub fn new(pass_id: PassId, view: &View) -> Result<Self, Error> {
        pass_id.check(view.digest())?;
        let arrangement = match pass_id.shuffle() {
            Shuffle::None => Arrangement::Straight,
            Shuffle::Window { shards } => {
                Arrangement::Windows(Box::new(Windows::new(pass_id, view.clone(), shards.get())))
            }
            Shuffle::Global => {
                let permutation = Permutation::new(view.len(), pass_id.key(KeyUse::Samples));
                Arrangement::Global(Box::new(permutation))
            }
        };
        Ok(Self { pass_id, view: view.clone(), arrangement })
    }

    /// The pass's id.
    pub fn pass_id(&self) -> PassId {
        self.pass_id
    }

    /// Number of positions, which is the number of declared samples.
    pub fn len(&self) -> u64 {
        self.view.len()
    }

    /// Whether the epoch has no position.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The declared samples.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The sample that `position` brings, as the snapshot counts samples. 20 to 40 ns, in a window
    /// shuffle 125 ns, and what [`View::sample_at`] takes; for many positions use
    /// [`fill`](Self::fill).
    ///
    /// # Panics
    /// If `position` is not below [`len`](Self::len), as a slice would.
    pub fn sample_at(&self, position: u64) -> u64 {
        self.check(position..position.saturating_add(1));
        match &self.arrangement {
            Arrangement::Straight => self.view.sample_at(position),
            Arrangement::Windows(windows) => windows.sample_at(position),
            Arrangement::Global(permutation) => self.view.sample_at(permutation.at(position)),
        }
    }

    /// Appends the samples that `positions` bring, in order, to `out`. About 25 ns a position,
    /// and what [`View::sample_at`] takes.
    ///
    /// # Panics
    /// If `positions` runs past [`len`](Self::len).
    pub fn fill(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        self.check(positions.clone());
        let sample_at = |index| self.view.sample_at(index);
        match &self.arrangement {
            Arrangement::Straight => out.extend(positions.map(sample_at)),
            Arrangement::Windows(windows) => windows.fill(positions, out),
            Arrangement::Global(permutation) => {
                out.extend(positions.map(|position| sample_at(permutation.at(position))));
            }
        }
    }

    /// The position that brings `sample`, or `None` if the sample is not declared.
    pub fn position_of(&self, sample: u64) -> Option<u64> {
        let index = self.view.index_of(sample)?;
        Some(match &self.arrangement {
            Arrangement::Straight => index,
            Arrangement::Windows(windows) => windows.position_of(index),
            Arrangement::Global(permutation) => permutation.position_of(index),
        })
    }

    /// The positions from `from` on among which rows of `shard` are used, or `None` if the epoch
    /// does not use it any more. Such a shard may be evicted first, then the shard with the range
    /// that begins last.
    ///
    /// Without a shuffle these are exactly its rows, in a window shuffle its window, in a global
    /// one all that is left. Constant time.
    pub fn next_use(&self, shard: u32, from: u64) -> Option<Range<u64>> {
        let declared = self.view.shape().shard_samples(shard).filter(|rows| !rows.is_empty())?;
        let used = match &self.arrangement {
            Arrangement::Straight => declared,
            Arrangement::Windows(windows) => windows.positions_of(shard),
            Arrangement::Global(_) => 0..self.len(),
        };
        let left = used.start.max(from)..used.end;
        (!left.is_empty()).then_some(left)
    }

    /// When shards are used in this pass and the next. `None` for a global shuffle, which uses all
    /// of them at all times.
    ///
    /// Without a shuffle each shard is a window. Takes about 10 ns a shard.
    pub fn shard_keys(&self) -> Option<ShardKeys> {
        match &self.arrangement {
            Arrangement::Straight => {
                let declared = DeclaredShards::of(self.view.shape());
                Some(ShardKeys { declared, width: 1, keys: None })
            }
            Arrangement::Windows(windows) => Some(windows.keys()),
            Arrangement::Global(_) => None,
        }
    }

    /// The window of [`shard_keys`](Self::shard_keys) that a position lies in. At the end of the
    /// pass, the number of windows. `keys` are those of this order.
    pub fn window_at(&self, position: u64, keys: &ShardKeys) -> u32 {
        if position >= self.len() {
            return keys.windows();
        }
        match &self.arrangement {
            Arrangement::Straight => {
                let shard = self.view.shape().shard_of(position);
                let window = shard.and_then(|shard| keys.declared.index_of(shard));
                window.expect("a declared sample lies in a declared shard")
            }
            Arrangement::Windows(windows) => windows.number_at(position),
            Arrangement::Global(_) => 0,
        }
    }

    /// The shards used from `position` on, soonest first: the order of a prefetch.
    ///
    /// The shards of one window come side by side, the whole of the current window included; in a
    /// global shuffle, where every shard may be needed at once, all come in shard order.
    pub fn shards_from(&self, position: u64) -> impl Iterator<Item = u32> + '_ {
        let (listed, counted) = match &self.arrangement {
            _ if position >= self.len() => (&[][..], 0..0),
            Arrangement::Straight => (&[][..], self.shards_from_index(position)),
            Arrangement::Windows(windows) => (windows.shards_from(position), 0..0),
            Arrangement::Global(_) => (&[][..], self.shards_from_index(0)),
        };
        listed.iter().copied().chain(counted).filter(move |&shard| {
            // Passes over shards without a row.
            self.next_use(shard, position).is_some()
        })
    }

    /// The shards from the one that holds the declared sample `index` to the last declared one.
    fn shards_from_index(&self, index: u64) -> Range<u32> {
        let shape = self.view.shape();
        match (shape.shard_of(index), shape.shard_of(self.len() - 1)) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        }
    }

    fn check(&self, positions: Range<u64>) {
        let len = self.len();
        assert!(positions.end <= len && positions.start <= len, "positions {positions:?} of {len}");
    }
}

#[cfg(test)]
mod tests;
