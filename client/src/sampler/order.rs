//! Positions of an epoch to samples, and back.

use std::ops::Range;

use super::plan::KeyUse;
use super::windows::Windows;
use super::{DatasetShape, Error, ORDER_VERSION, Permutation, PlanId, Shuffle, View};

/// The order of one epoch: which sample each position brings.
///
/// Positions run from 0 to [`len`](Self::len); each declared sample has exactly one. Constant
/// memory, but for a window shuffle 12 bytes a shard, built in [`Order::new`] in about 25 ns a
/// shard (one million: 25 ms). It is immutable: share it by reference.
#[derive(Debug, Clone)]
pub struct Order {
    plan: PlanId,
    shape: DatasetShape,
    /// The declared samples.
    samples: Range<u64>,
    arrangement: Arrangement,
}

#[derive(Debug, Clone)]
enum Arrangement {
    Straight,
    Windows(Box<Windows>),
    Global(Box<Permutation>),
}

impl Order {
    /// The order of `plan`, a plan of `view`, over a dataset of shape `shape`.
    ///
    /// # Errors
    /// [`Error::View`] if the plan is of another view, [`Error::OrderVersion`] if this build does
    /// not compute the plan's order, [`Error::Samples`] if view and shape differ in their dataset.
    pub fn new(plan: PlanId, view: &View, shape: &DatasetShape) -> Result<Self, Error> {
        if plan.order_version() != ORDER_VERSION {
            let found = plan.order_version();
            return Err(Error::OrderVersion { found, supported: ORDER_VERSION });
        }
        if plan.view() != view.digest() {
            return Err(Error::View { plan: Box::new(plan) });
        }
        if view.snapshot_samples() != shape.samples() {
            let (view, shape) = (view.snapshot_samples(), shape.samples());
            return Err(Error::Samples { view, shape });
        }
        let samples = view.range();
        let arrangement = match plan.shuffle() {
            Shuffle::None => Arrangement::Straight,
            Shuffle::Window { shards } => {
                let windows = Windows::new(plan, shape.clone(), samples.clone(), shards.get());
                Arrangement::Windows(Box::new(windows))
            }
            Shuffle::Global => {
                let permutation = Permutation::new(view.len(), plan.key(KeyUse::Samples));
                Arrangement::Global(Box::new(permutation))
            }
        };
        Ok(Self { plan, shape: shape.clone(), samples, arrangement })
    }

    /// The plan's id.
    #[must_use]
    pub fn plan(&self) -> PlanId {
        self.plan
    }

    /// Number of positions, which is the number of declared samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.samples.end - self.samples.start
    }

    /// Whether the epoch has no position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The declared samples, in sample order.
    #[must_use]
    pub fn samples(&self) -> Range<u64> {
        self.samples.clone()
    }

    /// The sample that `position` brings. 20 to 40 ns, in a window shuffle 125 ns; for many
    /// positions use [`fill`](Self::fill).
    ///
    /// # Panics
    /// If `position` is not below [`len`](Self::len), as a slice would.
    #[must_use]
    pub fn sample_at(&self, position: u64) -> u64 {
        self.check(position..position.saturating_add(1));
        match &self.arrangement {
            Arrangement::Straight => self.samples.start + position,
            Arrangement::Windows(windows) => windows.sample_at(position),
            Arrangement::Global(permutation) => self.samples.start + permutation.at(position),
        }
    }

    /// Appends the samples that `positions` bring, in order, to `out`. About 25 ns a position.
    ///
    /// # Panics
    /// If `positions` runs past [`len`](Self::len).
    pub fn fill(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        self.check(positions.clone());
        let first = self.samples.start;
        match &self.arrangement {
            Arrangement::Straight => out.extend(positions.map(|position| first + position)),
            Arrangement::Windows(windows) => windows.fill(positions, out),
            Arrangement::Global(permutation) => {
                out.extend(positions.map(|position| first + permutation.at(position)));
            }
        }
    }

    /// The position that brings `sample`, or `None` if the sample is not declared.
    #[must_use]
    pub fn position_of(&self, sample: u64) -> Option<u64> {
        self.samples.contains(&sample).then(|| match &self.arrangement {
            Arrangement::Straight => sample - self.samples.start,
            Arrangement::Windows(windows) => windows.position_of(sample),
            Arrangement::Global(permutation) => {
                permutation.position_of(sample - self.samples.start)
            }
        })
    }

    /// The positions from `from` on among which rows of `shard` are used, or `None` if it is not
    /// used any more in this epoch: such a shard may be evicted, and of the others the one whose
    /// range begins last.
    ///
    /// Without a shuffle these are exactly its rows, in a window shuffle its window, in a global
    /// one all that is left. Constant time.
    #[must_use]
    pub fn next_use(&self, shard: u32, from: u64) -> Option<Range<u64>> {
        let Range { start, end } = self.samples;
        let whole = self.shape.shard_samples(shard)?;
        let declared = whole.start.clamp(start, end)..whole.end.clamp(start, end);
        let used = match &self.arrangement {
            _ if declared.is_empty() => return None,
            Arrangement::Straight => declared.start - start..declared.end - start,
            Arrangement::Windows(windows) => windows.positions_of(shard),
            Arrangement::Global(_) => 0..self.len(),
        };
        let left = used.start.max(from)..used.end;
        (!left.is_empty()).then_some(left)
    }

    /// The shards used from `position` on, soonest first: what a prefetch walks along.
    ///
    /// The shards of one window come side by side, the whole of the current window included; in a
    /// global shuffle, where every shard may be needed at once, all come in shard order.
    pub fn shards_from(&self, position: u64) -> impl Iterator<Item = u32> + '_ {
        let (listed, counted) = match &self.arrangement {
            _ if position >= self.len() => (&[][..], 0..0),
            Arrangement::Straight => (&[][..], self.shards_between(self.samples.start + position)),
            Arrangement::Windows(windows) => (windows.shards_from(position), 0..0),
            Arrangement::Global(_) => (&[][..], self.shards_between(self.samples.start)),
        };
        listed.iter().copied().chain(counted).filter(move |&shard| {
            // Passes over shards without a row.
            self.next_use(shard, position).is_some()
        })
    }

    /// The shards from the one that holds `sample` to the last declared one.
    fn shards_between(&self, sample: u64) -> Range<u32> {
        match (self.shape.shard_of(sample), self.shape.shard_of(self.samples.end - 1)) {
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
