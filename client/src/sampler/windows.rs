//! The order of a window shuffle: shards in random order, rows mixed within a few shards at a time.
//!
//! The selected shards are permuted and laid end to end; a window is `shards` consecutive ones of
//! that row, and its rows are permuted among themselves. Since a shard's place in the row is
//! computed by the inverse permutation, its window, and so its next use, takes no search and no
//! table.

use std::ops::Range;

use super::plan::KeyUse;
use super::{DatasetShape, Permutation, PlanId};

/// One epoch's windows: 12 bytes a shard, built in one pass over the shards.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    plan: PlanId,
    shape: DatasetShape,
    /// The declared samples; shards at its ends may be used in part.
    samples: Range<u64>,
    /// The first shard that holds a declared sample.
    first_shard: u32,
    /// Order of the shards from `first_shard` on.
    shuffled: Permutation,
    /// The shard at each place.
    shards: Vec<u32>,
    /// The position at which each place's rows begin; one more entry holds the number of positions.
    starts: Vec<u64>,
    /// Places of a window.
    width: usize,
}

/// A window with the order of its rows, which is worth keeping over many positions.
struct Window {
    positions: Range<u64>,
    places: Range<usize>,
    rows: Permutation,
}

impl Windows {
    /// The windows of `width` shards of `plan` over the samples `samples` of `shape`.
    pub(super) fn new(plan: PlanId, shape: DatasetShape, samples: Range<u64>, width: u32) -> Self {
        let first_shard = shape.shard_of(samples.start).unwrap_or(0);
        let last_shard = samples.end.checked_sub(1).and_then(|last| shape.shard_of(last));
        let count = match last_shard {
            Some(last) if !samples.is_empty() => last - first_shard + 1,
            _ => 0,
        };
        let shuffled = Permutation::new(u64::from(count), plan.key(KeyUse::Shards));
        let mut windows = Self {
            plan,
            shape,
            samples,
            first_shard,
            shuffled,
            shards: Vec::with_capacity(count as usize),
            starts: Vec::with_capacity(count as usize + 1),
            width: width as usize,
        };
        let mut position = 0;
        windows.starts.push(position);
        for place in 0..u64::from(count) {
            let offset = u32::try_from(windows.shuffled.at(place)).expect("below a u32 count");
            let shard = first_shard + offset;
            let declared = windows.declared(shard);
            position += declared.end - declared.start;
            windows.shards.push(shard);
            windows.starts.push(position);
        }
        windows
    }

    /// Appends the samples at `positions`, which must lie within the epoch.
    pub(super) fn fill(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let mut next = positions.start;
        while next < positions.end {
            let window = self.window_at(next);
            let end = window.positions.end.min(positions.end);
            out.extend((next..end).map(|position| self.sample_in(&window, position)));
            next = end;
        }
    }

    pub(super) fn sample_at(&self, position: u64) -> u64 {
        self.sample_in(&self.window_at(position), position)
    }

    /// The position of a declared sample.
    pub(super) fn position_of(&self, sample: u64) -> u64 {
        let shard = self.shape.shard_of(sample).expect("a declared sample lies in a shard");
        let place = self.place_of(shard).expect("a declared sample's shard has a place");
        let window = self.window(place / self.width);
        let row = self.starts[place] + (sample - self.declared(shard).start);
        window.positions.start + window.rows.position_of(row - window.positions.start)
    }

    /// The positions of the window that holds `shard`, empty if the shard is not selected.
    pub(super) fn positions_of(&self, shard: u32) -> Range<u64> {
        match self.place_of(shard) {
            Some(place) => {
                let places = self.places(place / self.width);
                self.starts[places.start]..self.starts[places.end]
            }
            None => 0..0,
        }
    }

    /// The shards of the window at `position` and of all later ones, in order of use.
    pub(super) fn shards_from(&self, position: u64) -> &[u32] {
        let place = self.place_at(position);
        &self.shards[place - place % self.width..]
    }

    /// The declared samples of a selected shard.
    fn declared(&self, shard: u32) -> Range<u64> {
        let whole = self.shape.shard_samples(shard).unwrap_or(0..0);
        whole.start.max(self.samples.start)..whole.end.min(self.samples.end)
    }

    fn place_of(&self, shard: u32) -> Option<usize> {
        let offset = u64::from(shard.checked_sub(self.first_shard)?);
        let place = (offset < self.shuffled.len()).then(|| self.shuffled.position_of(offset))?;
        usize::try_from(place).ok()
    }

    /// The last place that begins at or before `position`: the one that holds it.
    fn place_at(&self, position: u64) -> usize {
        self.starts.partition_point(|&start| start <= position) - 1
    }

    fn places(&self, window: usize) -> Range<usize> {
        let start = window * self.width;
        start..(start + self.width).min(self.shards.len())
    }

    fn window(&self, index: usize) -> Window {
        let places = self.places(index);
        let positions = self.starts[places.start]..self.starts[places.end];
        let key = self.plan.key(KeyUse::Window(index as u64));
        let rows = Permutation::new(positions.end - positions.start, key);
        Window { positions, places, rows }
    }

    fn window_at(&self, position: u64) -> Window {
        self.window(self.place_at(position) / self.width)
    }

    fn sample_in(&self, window: &Window, position: u64) -> u64 {
        let start = window.positions.start;
        let row = start + window.rows.at(position - start);
        let places = &self.starts[window.places.clone()];
        let place = window.places.start + places.partition_point(|&start| start <= row) - 1;
        self.declared(self.shards[place]).start + (row - self.starts[place])
    }
}
