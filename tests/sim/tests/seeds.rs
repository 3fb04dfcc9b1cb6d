//! Simulated clusters: a thousand of them in `make test`, ten thousand in `make test-full`, a
//! hundred of them twice.

use std::thread;

use larder_sim::{ALL, PLAN_BUGS, Report, SECOND_BOLTS, find, find_plans, run, run_plans};

/// Seeds for each planted bug, and how many bugs they show at least. The others take `make sim`.
const BUG_SEEDS: (u64, usize) = (100, 60);
const BUG_SEEDS_FULL: (u64, usize) = (4_000, ALL.len() - SECOND_BOLTS.len());

/// How many clusters to run: `LARDER_TEST_SEEDS`, else by the verb.
fn seeds() -> u64 {
    let asked = std::env::var("LARDER_TEST_SEEDS");
    asked.map_or(if is_full() { 10_000 } else { 1_000 }, |asked| asked.parse().expect("a number"))
}

fn is_full() -> bool {
    std::env::var_os("LARDER_TEST_FULL").is_some()
}

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
    let seeds = seeds();
    let wrong = wrong(seeds, |seed| Some(run(seed, None)).filter(|r| r.violation.is_some()));
    assert!(wrong.is_empty(), "{} of {seeds}: {:#?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

#[test]
fn seed_repeats_exactly() {
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
    let (seeds, found_min) = if is_full() { BUG_SEEDS_FULL } else { BUG_SEEDS };
    let found = wrong(count, |index| find(at(index), 0..seeds));
    assert!(found.len() >= found_min, "only {} of {count} planted bugs found", found.len());
}

#[test]
fn no_seed_of_plans_breaks_a_check() {
    let seeds = if is_full() { 2_000 } else { 100 };
    let mut reads = [0; 3];
    for seed in 0..seeds {
        let report = run_plans(seed, None);
        assert_eq!(report.violation, None, "{report:?}");
        assert_eq!(run_plans(seed, None), report, "a seed repeats exactly");
        reads.iter_mut().zip(report.reads).for_each(|(sum, more)| *sum += more);
    }
    let [from_memory, fetched_ahead, by_range] = reads;
    assert!(fetched_ahead > from_memory / 10, "{reads:?}");
    assert!(by_range < from_memory / 10, "{reads:?}");
}

#[test]
fn planted_bugs_of_plans_are_all_found() {
    for bug in PLAN_BUGS {
        assert!(find_plans(bug, 0..200).is_some(), "{bug:?} was not found");
    }
}
