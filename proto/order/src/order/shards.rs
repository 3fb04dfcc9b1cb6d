//! The order in which a pass uses shards, and its windows: a few consecutive shards of that order.
//!
//! A shard's place is computed by the inverse permutation, so its window, and so its next use,
//! takes no search and no table. A node computes it too, from the key alone.

use std::ops::Range;
use std::sync::Arc;

use crate::{DatasetShape, Error, Permutation};

/// The shards that hold a declared sample, as stretches of consecutive shards. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeclaredShards {
    runs: Arc<[ShardRun]>,
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ShardRun {
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
        let mut runs: Vec<ShardRun> = Vec::new();
        let (mut count, mut expected) = (0, None);
        for shard in stretch.filter(|&shard| shape.rows(shard) > 0) {
            if expected != Some(shard) {
                runs.push(ShardRun { first: shard, before: count });
            }
            (count, expected) = (count + 1, Some(shard + 1));
        }
        Self { runs: runs.into(), count }
    }

    /// From stretches of shards in ascending order, as [`runs`](Self::runs) returns them.
    ///
    /// # Errors
    /// [`Error::Shape`] for a stretch without shards, and for one that begins at or before the end
    /// of the one before it.
    pub fn from_runs(stretches: impl IntoIterator<Item = Range<u32>>) -> Result<Self, Error> {
        let (mut runs, mut count, mut end) = (Vec::new(), 0, None);
        for stretch in stretches {
            let refused = |problem| Err(Error::Shape { problem, entry: runs.len() });
            if stretch.is_empty() {
                return refused("hold no shard");
            }
            if end.is_some_and(|end| stretch.start <= end) {
                return refused("overlap");
            }
            runs.push(ShardRun { first: stretch.start, before: count });
            count += stretch.end - stretch.start;
            end = Some(stretch.end);
        }
        Ok(Self { runs: runs.into(), count })
    }

    /// The number after the last shard; 0 without shards.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.first + (self.count - run.before))
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
    pub(super) fn index_of(&self, shard: u32) -> Option<u32> {
        let place = self.runs.partition_point(|run| run.first <= shard).checked_sub(1)?;
        let run = self.runs[place];
        let end = self.runs.get(place + 1).map_or(self.count, |next| next.before);
        let index = run.before + (shard - run.first);
        (index < end).then_some(index)
    }
}

/// The orders of a pass and of the next one, as they are told to others: by keys, not by lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardKeys {
    /// The shards of a pass.
    pub declared: DeclaredShards,
    /// Shards of a window, at least 1.
    pub width: u32,
    /// Keys of the pass and of the next one. `None`: shards come as they are declared.
    pub keys: Option<[u128; 2]>,
}

impl ShardKeys {
    /// The number of windows of a pass.
    pub fn windows(&self) -> u32 {
        self.declared.len().div_ceil(self.width)
    }

    /// The orders of both passes.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn orders(&self) -> [ShardOrder; 2] {
        let keys = self.keys.map_or([None; 2], |keys| keys.map(Some));
        keys.map(|key| ShardOrder::new(self.declared.clone(), key, self.width))
    }
}

/// The order of the declared shards in one pass, in windows of some shards each.
#[derive(Debug, Clone)]
pub struct ShardOrder {
    declared: DeclaredShards,
    /// Absent if shards come as they are declared.
    shuffled: Option<Permutation>,
    width: u32,
}

impl ShardOrder {
    /// The order that belongs to `key`, in windows of `width` shards; the last may have fewer.
    /// Without a key, shards come as they are declared.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn new(declared: DeclaredShards, key: Option<u128>, width: u32) -> Self {
        assert!(width > 0, "a window has shards");
        let shuffled = key.map(|key| Permutation::new(declared.len().into(), key));
        Self { declared, shuffled, width }
    }

    /// The declared shards.
    pub fn declared(&self) -> &DeclaredShards {
        &self.declared
    }

    /// Shards of a window.
    pub(super) fn width(&self) -> u32 {
        self.width
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
        let Some(shuffled) = &self.shuffled else { return Some(index) };
        let place = shuffled.position_of(index.into());
        Some(u32::try_from(place).expect("below a u32 count"))
    }

    /// The shard at a place of the order.
    pub(super) fn at(&self, place: u32) -> u32 {
        let Some(shuffled) = &self.shuffled else { return self.declared.at(place) };
        let index = shuffled.at(place.into());
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
            assert_eq!(declared.end(), listed.last().map_or(0, |last| last + 1));
            assert_eq!(DeclaredShards::from_runs(declared.runs()).as_ref(), Ok(&declared));
            for shard in 0..50 {
                let index = listed.binary_search(&shard).ok();
                assert_eq!(declared.index_of(shard).map(|index| index as usize), index);
            }
        }
    }

    #[test]
    fn runs_that_are_empty_or_overlap_are_refused() {
        for (runs, says) in [
            (vec![0..1, 3..3], "hold no shard"),
            (vec![0..2, 1..4], "overlap"),
            (vec![0..2, 2..4], "overlap"),
            (vec![5..7, 1..2], "overlap"),
        ] {
            let refused = DeclaredShards::from_runs(runs).unwrap_err();
            assert!(refused.to_string().contains(says), "{refused}");
        }
        assert!(DeclaredShards::from_runs([]).unwrap().is_empty());
    }

    #[test]
    fn each_shard_is_in_the_window_that_lists_it() {
        let shape = DatasetShape::from_rows([3, 0, 2, 1, 0, 0, 4, 4, 1]).unwrap();
        let order = ShardOrder::new(DeclaredShards::of(&shape), Some(17), 4);
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
