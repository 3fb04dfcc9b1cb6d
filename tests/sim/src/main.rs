//! `larder-sim`: runs seeds, then every planted bug, and prints the results.

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use larder_sim::{ALL, Bug, Report, SECOND_BOLTS, find, run, tell};

/// Simulates clusters from seeds and checks them after every event.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds to try for each planted bug; 0 leaves them out.
    #[arg(long, default_value_t = 8_000)]
    bug_seeds: u64,
    /// Tell the story of one seed, and nothing else.
    #[arg(long)]
    tell: Option<u64>,
    /// The planted bug of that story, as `--bug-seeds` shows its name.
    #[arg(long, requires = "tell")]
    bug: Option<String>,
    /// How many runs go on at once; as many as there are cores by default.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.tell {
        let named = |bug: &&Bug| options.bug.as_deref() == Some(format!("{bug:?}").as_str());
        println!("{:#?}", tell(seed, ALL.iter().find(named).copied()));
        return ExitCode::SUCCESS;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores).max(1);
    let violations = run_seeds(&options, threads);
    let missed = if options.bug_seeds == 0 { 0 } else { hunt_bugs(&options, threads) };
    if violations + missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs each seed, and two in a hundred twice to compare them. Returns the number of violations.
fn run_seeds(options: &Options, threads: usize) -> u64 {
    let (next, bad) = (AtomicU64::new(0), AtomicU64::new(0));
    let totals = Mutex::new((0, 0, 0, 0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= options.seeds {
                        break;
                    }
                    let report = run(options.from + index, None);
                    let replayed = !index.is_multiple_of(50) || run(report.seed, None) == report;
                    if report.violation.is_some() || !replayed {
                        bad.fetch_add(1, Ordering::Relaxed);
                        say(&report, replayed);
                    }
                    let mut totals = totals.lock().expect("no run panics with it");
                    totals.0 += report.events;
                    totals.1 += report.versions;
                    totals.2 += report.reads;
                    totals.3 += report.moved;
                }
            });
        }
    });
    let (events, versions, reads, moved) = totals.into_inner().expect("all are done");
    let bad = bad.into_inner();
    println!(
        "{} seeds, {events} events, {versions} ring versions, {moved} shards moved, {reads} reads: \
         {bad} violations",
        options.seeds
    );
    bad
}

fn say(report: &Report, replayed: bool) {
    let seed = report.seed;
    if let Some(violation) = &report.violation {
        println!("seed {seed}: {violation}");
    }
    if !replayed {
        println!("seed {seed}: a second run went another way");
    }
}

/// A planted bug, the report that showed it, and how long the search took.
type Hunted = (Bug, Option<Report>, Duration);

/// Searches for every planted bug. Returns the number of bugs that some seed should have shown.
fn hunt_bugs(options: &Options, threads: usize) -> u64 {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::<Hunted>::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = take(&next) {
                    let begun = now();
                    let shown = find(bug, options.from..options.from + options.bug_seeds);
                    let hunted = (bug, shown, now() - begun);
                    found.lock().expect("no run panics with it").push(hunted);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("all are done");
    found.sort_by_key(|(bug, ..)| *bug);
    found.iter().for_each(say_hunted);
    let missed: Vec<Bug> =
        found.iter().filter(|(_, shown, _)| shown.is_none()).map(|(bug, ..)| *bug).collect();
    let longest =
        found.iter().filter(|(_, shown, _)| shown.is_some()).map(|(.., took)| *took).max();
    println!(
        "{} of {} planted bugs found, each within {:.1} s",
        found.len() - missed.len(),
        found.len(),
        longest.unwrap_or_default().as_secs_f64()
    );
    missed.iter().filter(|bug| !SECOND_BOLTS.contains(bug)).count() as u64
}

fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of whoever waits; a simulated cluster has its own"
    )]
    Instant::now()
}

fn say_hunted((bug, shown, took): &Hunted) {
    let took = took.as_secs_f64();
    match shown {
        Some(Report { seed, violation, .. }) => {
            println!(
                "{bug:?}: seed {seed}, {took:.1} s: {}",
                violation.as_deref().unwrap_or_default()
            );
        }
        None if SECOND_BOLTS.contains(bug) => {
            println!("{bug:?}: not found, {took:.1} s: other rules hold without it");
        }
        None => println!("{bug:?}: NOT FOUND, {took:.1} s"),
    }
}

fn take(next: &AtomicU64) -> Option<Bug> {
    let index = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok()?;
    ALL.get(index).copied()
}
