//! Links, each in one direction: cut or not, its delay, its losses.

use std::{collections::BTreeSet, time::Duration};

use super::Place;

#[derive(Debug)]
pub(super) struct Network {
    places: usize,
    cut: BTreeSet<(Place, Place)>,
    lost_one_in: u32,
    /// Every message takes this much longer.
    pub(super) slow: Duration,
    pub(super) lossless: bool,
}

impl Network {
    pub(super) fn new(places: usize, lost_one_in: u32) -> Self {
        Self {
            places,
            cut: BTreeSet::new(),
            lost_one_in,
            slow: Duration::ZERO,
            lossless: lost_one_in == 0,
        }
    }

    /// Where the coordinator is.
    pub(super) fn coordinator(&self) -> Place {
        self.places - 1
    }

    pub(super) fn cut(&mut self, from: Place, to: Place) {
        self.cut.insert((from, to));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
        self.slow = Duration::ZERO;
    }

    pub(super) fn join(&mut self, from: Place, to: Place) {
        self.cut.remove(&(from, to));
    }

    pub(super) fn open(&self, from: Place, to: Place) -> bool {
        !self.cut.contains(&(from, to))
    }

    pub(super) fn both_ways(&self, a: Place, b: Place) -> bool {
        a == b || (self.open(a, b) && self.open(b, a))
    }

    /// How long a message takes, if it arrives. Later ones may overtake it.
    pub(super) fn travel(
        &self,
        rng: &mut fastrand::Rng,
        from: Place,
        to: Place,
    ) -> Option<Duration> {
        if !self.open(from, to) || (!self.lossless && rng.u32(..self.lost_one_in) == 0) {
            return None;
        }
        let mut millis = rng.u64(1..20);
        if !self.lossless && rng.u32(..50) == 0 {
            millis += rng.u64(100..4_000);
        }
        Some(Duration::from_millis(millis) + self.slow)
    }
}
