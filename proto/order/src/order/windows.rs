//! The order of a window shuffle: shards in random order, rows mixed within a few shards at a time.
//!
//! The declared shards lie end to end in a [`ShardOrder`]; the rows of a window are permuted among
//! themselves.

use std::ops::Range;

use super::shards::{DeclaredShards, ShardKeys, ShardOrder};
use crate::pass::KeyUse;
use crate::{PassId, Permutation, View};

/// One epoch's windows: 12 bytes a shard, built in one pass over the shards; 8 bytes more for each
/// stretch of declared shards.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    pass_id: PassId,
    view: View,
    order: ShardOrder,
    /// The shard at each place.
    shards: Vec<u32>,
    /// The position at which each place's rows begin; one more entry holds the number of positions.
    starts: Vec<u64>,
}

/// A window with the order of its rows, which is worth keeping over many positions.
struct Window {
    positions: Range<u64>,
    places: Range<usize>,
    rows: Permutation,
}

impl Windows {
    /// The windows of `width` shards of `pass_id`, a pass of `view`.
    pub(super) fn new(pass_id: PassId, view: View, width: u32) -> Self {
        let declared = DeclaredShards::of(view.shape());
        let order = ShardOrder::new(declared, Some(pass_id.key(KeyUse::Shards)), width);
        let shards: Vec<u32> = (0..order.declared().len()).map(|place| order.at(place)).collect();
        let mut starts = Vec::with_capacity(shards.len() + 1);
        let mut position = 0;
        starts.push(position);
        for &shard in &shards {
            position += view.shape().rows(shard);
            starts.push(position);
        }
        Self { pass_id, view, order, shards, starts }
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
        let place = self.order.place_of(shard).expect("a declared sample's shard has a place");
        let window = self.window(self.order.window_at(place));
        let row = self.starts[place as usize] + (index - shape.first_sample(shard));
        window.positions.start + window.rows.position_of(row - window.positions.start)
    }

    /// The orders of this pass and the next.
    pub(super) fn keys(&self) -> ShardKeys {
        let keys =
            [self.pass_id, self.pass_id.next_epoch()].map(|pass_id| pass_id.key(KeyUse::Shards));
        let (declared, width) = (self.order.declared().clone(), self.order.width());
        ShardKeys { declared, width, keys: Some(keys) }
    }

    /// The number of the window at a position.
    pub(super) fn number_at(&self, position: u64) -> u32 {
        self.order.window_at(self.place_at(position))
    }

    /// The positions of the window that holds `shard`, empty if the shard is not selected.
    pub(super) fn positions_of(&self, shard: u32) -> Range<u64> {
        match self.order.window_of(shard) {
            Some(window) => {
                let places = self.places(window);
                self.starts[places.start]..self.starts[places.end]
            }
            None => 0..0,
        }
    }

    /// The shards of the window at `position` and of all later ones, in order of use.
    pub(super) fn shards_from(&self, position: u64) -> &[u32] {
        let window = self.number_at(position);
        &self.shards[self.places(window).start..]
    }

    /// The last place that begins at or before `position`: the one that holds it.
    fn place_at(&self, position: u64) -> u32 {
        let place = self.starts.partition_point(|&start| start <= position) - 1;
        u32::try_from(place).expect("one of the shards")
    }

    fn places(&self, window: u32) -> Range<usize> {
        let places = self.order.places(window);
        places.start as usize..places.end as usize
    }

    fn window(&self, index: u32) -> Window {
        let places = self.places(index);
        let positions = self.starts[places.start]..self.starts[places.end];
        let key = self.pass_id.key(KeyUse::Window(index.into()));
        let rows = Permutation::new(positions.end - positions.start, key);
        Window { positions, places, rows }
    }

    fn window_at(&self, position: u64) -> Window {
        self.window(self.number_at(position))
    }

    fn sample_in(&self, window: &Window, position: u64) -> u64 {
        let start = window.positions.start;
        let row = start + window.rows.at(position - start);
        let places = &self.starts[window.places.clone()];
        let place = window.places.start + places.partition_point(|&start| start <= row) - 1;
        self.view.sample_in(self.shards[place], row - self.starts[place])
    }
}
