//! One run, and the search for a seed that shows a planted bug.

use crate::{bugs::Bug, world::World};

/// What came of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Events that were handled.
    pub events: u64,
    /// A hash over all events and effects in their order.
    pub trace: u64,
    /// The first thing that was wrong, when and what.
    pub violation: Option<String>,
    /// Ring versions that were committed.
    pub versions: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Whole shards that moved between nodes for changes.
    pub moved: u64,
}

/// Runs the cluster of this seed and prints what agents did and what went wrong, as it happens.
pub fn tell(seed: u64, bug: Option<Bug>) -> Report {
    let mut world = World::new(seed, bug);
    world.aloud = true;
    world.run()
}

/// Runs the cluster of this seed until it has come to rest, or something is wrong.
pub fn run(seed: u64, bug: Option<Bug>) -> Report {
    World::new(seed, bug).run()
}

/// The first of these seeds that shows the bug: wrong with it, and right without it.
pub fn find(bug: Bug, seeds: impl IntoIterator<Item = u64>) -> Option<Report> {
    let mut reports = seeds.into_iter().map(|seed| run(seed, Some(bug)));
    reports.find(|report| report.violation.is_some() && run(report.seed, None).violation.is_none())
}
