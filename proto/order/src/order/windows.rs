//! The order of a window shuffle: shards in random order, rows mixed within a few shards at a time.
//!
//! The declared shards are permuted and laid end to end; a window is `shards` consecutive ones of
//! that row, and its rows are permuted among themselves. Since a shard's place in the row is
//! computed by the inverse permutation, its window, and so its next use, takes no search and no
//! table.

use std::ops::Range;

use crate::plan::KeyUse;
use crate::{DatasetShape, Permutation, PlanId, View};

/// One epoch's windows: 12 bytes a shard, built in one pass over the shards; 4 bytes more where
/// only some shards of a stretch are declared.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    plan: PlanId,
    view: View,
    declared: DeclaredShards,
    /// Order of the declared shards.
    shuffled: Permutation,
    /// The shard at each place.
    shards: Vec<u32>,
    /// The position at which each place's rows begin; one more entry holds the number of positions.
    starts: Vec<u64>,
    /// Places of a window.
    width: usize,
}

/// The shards that hold a declared sample, in order.
#[derive(Debug, Clone)]
enum DeclaredShards {
    Stretch(Range<u32>),
    Listed(Box<[u32]>),
}

impl DeclaredShards {
    fn of(shape: &DatasetShape) -> Self {
        let last = shape.samples().checked_sub(1).and_then(|last| shape.shard_of(last));
        let stretch = match (shape.shard_of(0), last) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        };
        let declared = |shard: &u32| shape.rows(*shard) > 0;
        if stretch.clone().all(|shard| declared(&shard)) {
            return Self::Stretch(stretch);
        }
        Self::Listed(stretch.filter(declared).collect())
    }

    fn len(&self) -> u64 {
        match self {
            Self::Stretch(stretch) => u64::from(stretch.end - stretch.start),
            Self::Listed(list) => list.len() as u64,
        }
    }

    fn at(&self, index: u64) -> u32 {
        let index = u32::try_from(index).expect("below a u32 count");
        match self {
            Self::Stretch(stretch) => stretch.start + index,
            Self::Listed(list) => list[index as usize],
        }
    }

    fn index_of(&self, shard: u32) -> Option<u64> {
        match self {
            Self::Stretch(stretch) => {
                stretch.contains(&shard).then(|| u64::from(shard - stretch.start))
            }
            Self::Listed(list) => list.binary_search(&shard).ok().map(|index| index as u64),
        }
    }
}

/// A window with the order of its rows, which is worth keeping over many positions.
struct Window {
    positions: Range<u64>,
    places: Range<usize>,
    rows: Permutation,
}

impl Windows {
    /// The windows of `width` shards of `plan`, a plan of `view`.
    pub(super) fn new(plan: PlanId, view: View, width: u32) -> Self {
        let declared = DeclaredShards::of(view.shape());
        let count = declared.len();
        let shuffled = Permutation::new(count, plan.key(KeyUse::Shards));
        let shards: Vec<u32> = (0..count).map(|place| declared.at(shuffled.at(place))).collect();
        let mut starts = Vec::with_capacity(shards.len() + 1);
        let mut position = 0;
        starts.push(position);
        for &shard in &shards {
            position += view.shape().rows(shard);
            starts.push(position);
        }
        Self { plan, view, declared, shuffled, shards, starts, width: width as usize }
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

    /// The position of the declared sample with this index in the view.
    pub(super) fn position_of(&self, index: u64) -> u64 {
        let shape = self.view.shape();
        let shard = shape.shard_of(index).expect("a declared sample lies in a shard");
        let place = self.place_of(shard).expect("a declared sample's shard has a place");
        let window = self.window(place / self.width);
        let row = self.starts[place] + (index - shape.first_sample(shard));
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

    fn place_of(&self, shard: u32) -> Option<usize> {
        let index = self.declared.index_of(shard)?;
        usize::try_from(self.shuffled.position_of(index)).ok()
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
        self.view.sample_in(self.shards[place], row - self.starts[place])
    }
}
