//! Runs one seed, and searches for a seed that shows a planted bug.

use crate::{bugs::Bug, report::Report, world::World};

/// Runs the cluster of this seed and prints the agents' actions and faults as they happen.
pub fn tell(seed: u64, bug: Option<Bug>) -> Report {
    let mut world = World::new(seed, bug);
    world.aloud = true;
    world.run()
}

/// Runs the cluster of this seed until it comes to rest or violates a check.
pub fn run(seed: u64, bug: Option<Bug>) -> Report {
    World::new(seed, bug).run()
}

/// Returns the first of these seeds that shows the bug: wrong with it, and right without it.
pub fn find(bug: Bug, seeds: impl IntoIterator<Item = u64>) -> Option<Report> {
    let mut reports = seeds.into_iter().map(|seed| run(seed, Some(bug)));
    reports.find(|report| report.violation.is_some() && run(report.seed, None).violation.is_none())
}
