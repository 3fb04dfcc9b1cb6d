//! Measures the data path: `make bench`. Each figure is a ratio to a baseline that alternates with
//! it in the same run.
//!
//! Matrices of random bytes are `.npy` files in memory (`/dev/shm`). They are the origin of a
//! release `larder-node`. The node and the baselines run as children of this process, on loopback.
//! Everything is resident before a clock starts. One batch through the node is compared with the
//! files. Cold epochs are measured separately, in [`cold`].
//!
//! Non-goals: absolute figures. Compare the columns of one run, not runs of different days.

mod bare;
mod children;
mod cold;
mod larger;
mod listing;
mod matrix;
mod measure;
mod net;
mod petabyte;
mod pure;
mod report;
mod resident;
mod strangers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use children::BARE_ARGUMENT;
use matrix::SHAPES;
use pure::{locality, placement, policy};
use report::Report;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measures Larder against plain sockets and plain memory, side by side.
#[derive(Debug, Parser)]
#[command(name = "larder-benches")]
struct Args {
    /// Folder for results.json
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,

    /// Run two rounds instead of nine, to test that it works
    #[arg(long)]
    quick: bool,

    /// Measure only this part
    #[arg(long)]
    only: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Remote,
    Local,
    Loader,
    /// Plans and lookups at their largest; needs no node
    Placement,
    /// The share of rows that ranks read on their own host; needs no node
    Locality,
    /// Policies over data larger than memory, simulated; needs no node
    Policy,
    /// The manifest of a petabyte
    Manifest,
    /// The rules of an index over a million keys; needs no node
    Listing,
    /// What data larger than memory costs at the origin, counted
    Larger,
    /// Samples of 50 MB: warm, and with memory for half of them
    LargeRows,
    /// Calls while a stranger holds connections
    Strangers,
    /// Needs garage, an S3 server: see benches/README.md
    Cold,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1..) {
        Some([first, folder, shape]) if first == BARE_ARGUMENT => serve_bare(folder, shape),
        Some([first, uri, node]) if first == petabyte::OPEN_ARGUMENT => petabyte::open(uri, node),
        Some([first, rounds]) if first == listing::LIST_ARGUMENT => listing::list(rounds),
        _ => run(&Args::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder-benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_bare(folder: &str, shape: &str) -> Result<(), Error> {
    let shape = SHAPES.get(shape.parse::<usize>()?).ok_or("no such shape")?;
    Ok(bare::serve(&shape.map(Path::new(folder))?)?)
}

fn run(args: &Args) -> Result<(), Error> {
    let mut report = Report::new(if args.quick { 2 } else { 9 });
    if matches!(args.only, None | Some(Part::Remote | Part::Local | Part::Loader)) {
        resident::measure(&mut report, args.only)?;
    }
    if matches!(args.only, None | Some(Part::Placement)) {
        placement::measure(&mut report)?;
    }
    if matches!(args.only, None | Some(Part::Locality)) {
        locality::measure(&mut report)?;
    }
    if matches!(args.only, None | Some(Part::Policy)) {
        policy::measure(&mut report);
    }
    if matches!(args.only, None | Some(Part::Manifest)) {
        petabyte::measure(&mut report)?;
    }
    if matches!(args.only, None | Some(Part::Listing)) {
        listing::measure(&mut report)?;
    }
    if args.only == Some(Part::Larger) {
        larger::measure(&mut report)?;
    }
    if args.only == Some(Part::LargeRows) {
        larger::large_rows::measure(&mut report)?;
    }
    if args.only == Some(Part::Strangers) {
        strangers::measure(&mut report)?;
    }
    match (args.only, larder_tests::garage::find()) {
        (Some(Part::Cold) | None, Ok(_)) => cold::measure(&mut report)?,
        (Some(Part::Cold), Err(why)) => return Err(why.into()),
        (None, Err(why)) => report.not_measured("cold epochs", &why),
        (Some(_), _) => {}
    }
    report.write(&args.out)
}
