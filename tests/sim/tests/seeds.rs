//! Ten thousand clusters, and a hundred of them twice.

use std::thread;

use larder_sim::{ALL, Report, find, run};

const SEEDS: u64 = 10_000;
/// Planted bugs that 400 seeds show at least; the others take `make sim`.
const FOUND_MIN: usize = 55;

/// Runs seeds on all cores; gives those that went wrong.
fn wrong(seeds: u64, check: impl Fn(u64) -> Option<Report> + Sync) -> Vec<Report> {
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores)
            .map(|worker| {
                let check = &check;
                let mine = (worker..seeds).step_by(usize::try_from(cores).expect("few"));
                scope.spawn(move || mine.filter_map(check).collect::<Vec<_>>())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    })
}

#[test]
fn no_seed_breaks_a_check() {
    let wrong = wrong(SEEDS, |seed| Some(run(seed, None)).filter(|r| r.violation.is_some()));
    assert!(wrong.is_empty(), "{} of {SEEDS}: {:#?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

#[test]
fn a_seed_goes_the_same_way_twice() {
    let other = wrong(100, |seed| {
        let first = run(seed, None);
        (run(seed, None) != first).then_some(first)
    });
    assert!(other.is_empty(), "{other:#?}");
}

#[test]
fn planted_bugs_are_found() {
    let count = ALL.len() as u64;
    let at = |index: u64| ALL[usize::try_from(index).expect("few")];
    let found = wrong(count, |index| find(at(index), 0..400));
    assert!(found.len() >= FOUND_MIN, "only {} of {count} planted bugs found", found.len());
}
