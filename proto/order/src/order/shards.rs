//! The order in which a pass uses shards, and its windows: a few consecutive shards of that order.
//!
//! A shard's place is computed by the inverse permutation, so its window, and so its next use,
//! takes no search and no table. A node computes it too, from the key alone.

use std::ops::Range;

use crate::{DatasetShape, Permutation};

/// The shards that hold a declared sample, as stretches of consecutive shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredShards {
    runs: Box<[Run]>,
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u32,
    /// The shards of all runs before it.
    before: u32,
}

impl DeclaredShards {
    /// The shards of a shape that have rows.
    pub fn of(shape: &DatasetShape) -> Self {
        let last = shape.samples().checked_sub(1).and_then(|last| shape.shard_of(last));
        let stretch = match (shape.shard_of(0), last) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        };
        let mut runs: Vec<Run> = Vec::new();
        let (mut count, mut expected) = (0, None);
        for shard in stretch.filter(|&shard| shape.rows(shard) > 0) {
            if expected != Some(shard) {
                runs.push(Run { first: shard, before: count });
            }
            (count, expected) = (count + 1, Some(shard + 1));
        }
        Self { runs: runs.into(), count }
    }

    /// The number of shards.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The stretches, in order. Between two lies at least one shard that is not declared.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let ends = self.runs.iter().skip(1).map(|run| run.before).chain([self.count]);
        self.runs.iter().zip(ends).map(|(run, end)| run.first..run.first + (end - run.before))
    }

    /// The declared shard with this number.
    fn at(&self, index: u32) -> u32 {
        let run = self.runs[self.runs.partition_point(|run| run.before <= index) - 1];
        run.first + (index - run.before)
    }

    /// The number of a declared shard.
    fn index_of(&self, shard: u32) -> Option<u32> {
        let place = self.runs.partition_point(|run| run.first <= shard).checked_sub(1)?;
        let run = self.runs[place];
        let end = self.runs.get(place + 1).map_or(self.count, |next| next.before);
        let index = run.before + (shard - run.first);
        (index < end).then_some(index)
    }
}

/// The order of the declared shards in one pass, in windows of some shards each.
#[derive(Debug, Clone)]
pub struct ShardOrder {
    declared: DeclaredShards,
    shuffled: Permutation,
    width: u32,
}

impl ShardOrder {
    /// The order that belongs to `key`, in windows of `width` shards; the last may have fewer.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn new(declared: DeclaredShards, key: u128, width: u32) -> Self {
        assert!(width > 0, "a window has shards");
        let shuffled = Permutation::new(declared.len().into(), key);
        Self { declared, shuffled, width }
    }

    /// The declared shards.
    pub fn declared(&self) -> &DeclaredShards {
        &self.declared
    }

    /// The number of windows.
    pub fn windows(&self) -> u32 {
        self.declared.len().div_ceil(self.width)
    }

    /// The window that uses a shard; `None` if the shard is not declared.
    pub fn window_of(&self, shard: u32) -> Option<u32> {
        Some(self.window_at(self.place_of(shard)?))
    }

    /// The window of a place in the order.
    pub(super) fn window_at(&self, place: u32) -> u32 {
        place / self.width
    }

    /// The places of a window in the order.
    pub(super) fn places(&self, window: u32) -> Range<u32> {
        let start = window * self.width;
        start..start.saturating_add(self.width).min(self.declared.len())
    }

    /// The place of a shard in the order; `None` if the shard is not declared.
    pub(super) fn place_of(&self, shard: u32) -> Option<u32> {
        let index = self.declared.index_of(shard)?;
        let place = self.shuffled.position_of(index.into());
        Some(u32::try_from(place).expect("below a u32 count"))
    }

    /// The shard at a place of the order.
    pub(super) fn at(&self, place: u32) -> u32 {
        let index = self.shuffled.at(place.into());
        self.declared.at(u32::try_from(index).expect("below a u32 count"))
    }

    /// The shards of a window, in the order of their places.
    pub fn shards(&self, window: u32) -> impl Iterator<Item = u32> + '_ {
        self.places(window).map(|place| self.at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_shards_are_those_with_rows() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..300 {
            let rows: Vec<u32> = (0..random.u32(1..40)).map(|_| random.u32(0..3)).collect();
            let Ok(shape) = DatasetShape::from_rows(rows.iter().copied()) else { continue };
            let declared = DeclaredShards::of(&shape);
            let listed: Vec<u32> = (0u32..)
                .zip(&rows)
                .filter(|(_, rows)| **rows > 0)
                .map(|(shard, _)| shard)
                .collect();
            assert_eq!(declared.len() as usize, listed.len());
            assert!(declared.runs().flatten().eq(listed.iter().copied()));
            assert!((0..declared.len()).map(|index| declared.at(index)).eq(listed.iter().copied()));
            for shard in 0..50 {
                let index = listed.binary_search(&shard).ok();
                assert_eq!(declared.index_of(shard).map(|index| index as usize), index);
            }
        }
    }

    #[test]
    fn each_shard_is_in_the_window_that_lists_it() {
        let shape = DatasetShape::from_rows([3, 0, 2, 1, 0, 0, 4, 4, 1]).unwrap();
        let order = ShardOrder::new(DeclaredShards::of(&shape), 17, 4);
        assert_eq!(order.windows(), 2);
        let mut seen: Vec<u32> = Vec::new();
        for window in 0..2 {
            for shard in order.shards(window) {
                assert_eq!(order.window_of(shard), Some(window));
                seen.push(shard);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 2, 3, 6, 7, 8]);
        assert_eq!((order.window_of(1), order.window_of(99)), (None, None));
    }
}
