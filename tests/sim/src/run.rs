//! One run, and the search for a seed that shows a planted bug.

use crate::{bugs::Bug, report::Report, world::World};

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
