//! A simulated loader: it reads window after window, and tells how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use larder_foresight::Loader;
use larder_order::{DeclaredShards, ShardKeys, ShardOrder};
use larder_store::HolderId;

/// How often a loader tells its plan.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct SimLoader {
    pub(super) id: u64,
    /// The node of its host, whose shards it maps.
    pub(super) host: usize,
    pub(super) is_alive: bool,
    /// When it last told its plan.
    pub(super) told_at: Option<Instant>,
    job: u64,
    declared: DeclaredShards,
    width: u32,
    pace: Duration,
    pass: u64,
    window: u32,
    entered: Instant,
    stalls_until: Instant,
    /// The window that it tells instead of its own.
    lie: Option<u32>,
    /// Whether it ever went another way than its plan.
    is_odd: bool,
    left: BTreeSet<u32>,
    /// Mapped shards, by node, and whether each was recalled.
    maps: BTreeMap<(usize, u32), bool>,
    told_window: Option<(u64, u32)>,
}

impl SimLoader {
    pub(super) fn new(
        id: u64,
        job: u64,
        host: usize,
        (shards, width): (u32, u32),
        pace: Duration,
        now: Instant,
    ) -> Self {
        let declared =
            DeclaredShards::from_runs(std::iter::once(0..shards)).expect("one stretch of shards");
        let mut loader = Self {
            id,
            host,
            is_alive: true,
            told_at: None,
            job,
            declared,
            width,
            pace,
            pass: 0,
            window: 0,
            entered: now,
            stalls_until: now,
            lie: None,
            is_odd: false,
            left: BTreeSet::new(),
            maps: BTreeMap::new(),
            told_window: None,
        };
        loader.enter(0, now);
        loader
    }

    pub(super) fn holder(&self) -> HolderId {
        HolderId(self.id)
    }

    fn keys(&self) -> ShardKeys {
        let key = |pass: u64| u128::from(self.job) << 64 | u128::from(pass + 1);
        let keys = Some([key(self.pass), key(self.pass + 1)]);
        ShardKeys { declared: self.declared.clone(), width: self.width, keys }
    }

    fn order(&self) -> ShardOrder {
        let [order, _] = self.keys().orders();
        order
    }

    pub(super) fn windows(&self) -> u32 {
        self.keys().windows()
    }

    fn enter(&mut self, window: u32, now: Instant) {
        (self.window, self.entered) = (window, now);
        self.left = self.order().shards(window).collect();
    }

    /// The shards of its window that it has not read yet.
    pub(super) fn wanted(&self) -> Vec<u32> {
        self.left.iter().copied().collect()
    }

    pub(super) fn has_read(&mut self, shard: u32) {
        self.left.remove(&shard);
    }

    /// Goes to the next window when this one is read and its time is over.
    pub(super) fn advance(&mut self, now: Instant, random: &mut Rng) {
        let pace = self.pace.mul_f64(0.9 + 0.2 * random.f64());
        let is_over = now.saturating_duration_since(self.entered) >= pace;
        if !self.left.is_empty() || !is_over || now < self.stalls_until {
            return;
        }
        if self.window + 1 < self.windows() {
            self.enter(self.window + 1, now);
        } else {
            self.pass += 1;
            self.enter(0, now);
        }
    }

    pub(super) fn stall(&mut self, until: Instant) {
        self.stalls_until = until;
    }

    pub(super) fn jump(&mut self, window: u32, now: Instant) {
        self.enter(window, now);
    }

    pub(super) fn lie(&mut self, window: u32) {
        (self.lie, self.is_odd) = (Some(window), true);
    }

    /// What it tells now, if it tells something.
    pub(super) fn announcement(&mut self, now: Instant) -> Option<Loader<u8>> {
        let place = self.place();
        let is_due = self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        if !is_due && self.told_window == Some(place) {
            return None;
        }
        (self.told_at, self.told_window) = (Some(now), Some(place));
        let window = self.lie.unwrap_or(self.window).min(self.windows() - 1);
        Some(Loader {
            snapshot: 0,
            job: "".into(),
            pass: self.pass,
            keys: Arc::new(self.keys()),
            first_window: window,
            last_window: window,
            rate: Some(1.0 / self.pace.as_secs_f64()),
            heard: now,
        })
    }

    /// Whether nodes know which shards it reads.
    pub(super) fn is_honest(&self) -> bool {
        self.is_alive && !self.is_odd
    }

    /// Its pass and window.
    pub(super) fn place(&self) -> (u64, u32) {
        (self.pass, self.window)
    }

    /// Whether a shard is in its window.
    pub(super) fn reads(&self, shard: u32) -> bool {
        self.order().window_of(shard) == Some(self.window)
    }

    pub(super) fn maps(&self, node: usize, shard: u32) -> bool {
        self.maps.contains_key(&(node, shard))
    }

    pub(super) fn map(&mut self, node: usize, shard: u32) {
        self.maps.insert((node, shard), false);
    }

    pub(super) fn recall(&mut self, node: usize, shard: u32) {
        if let Some(is_recalled) = self.maps.get_mut(&(node, shard)) {
            *is_recalled = true;
        }
    }

    /// The maps that it returns now.
    pub(super) fn returned(&mut self) -> Vec<(usize, u32)> {
        let reads: Vec<u32> = self.order().shards(self.window).collect();
        let goes = |(&(node, shard), &is_recalled): (&(usize, u32), &bool)| {
            (is_recalled && !reads.contains(&shard)).then_some((node, shard))
        };
        let returned: Vec<_> = self.maps.iter().filter_map(goes).collect();
        self.maps.retain(|map, _| !returned.contains(map));
        returned
    }

    /// Whether it maps a shard that it reads, or that it was asked to return.
    pub(super) fn keeps(&self, node: usize, shard: u32) -> bool {
        let map = self.maps.get(&(node, shard));
        map.is_some_and(|&is_recalled| is_recalled || self.reads(shard))
    }

    /// A node is gone, and its maps with it.
    pub(super) fn forget(&mut self, node: usize) {
        self.maps.retain(|(of, _), _| *of != node);
    }
}
