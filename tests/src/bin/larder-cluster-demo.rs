//! `make demo DEMO_ARGS=--cluster`: a ring that changes while it is read, told as tables or JSON.
//!
//! Exit code: 0 all right; 1 a fault, or a limit that was exceeded; 2 wrong usage; 130 interrupted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;
use larder_tests::interrupt;
use larder_tests::ring_demo::RingDemo;

/// Shows a ring that changes while it is read: a node joins, another is drained. LARDER_ETCD_SERVER
/// names the etcd to use, else the one in PATH; an empty name means none.
#[derive(Parser)]
struct Arguments {
    /// Samples to write: 147 KiB each
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(512..=1_000_000))]
    samples: u64,

    /// Seed of the order
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// How the result is printed
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,

    /// Leave the cluster running until Ctrl-C
    #[arg(long)]
    keep: bool,

    /// The word that chose this demo; it may be left out
    #[arg(long, hide = true)]
    cluster: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    interrupt::watch();
    match catch_unwind(AssertUnwindSafe(|| show(&arguments))) {
        Ok(code) => code,
        Err(_) if interrupt::came() => ExitCode::from(130),
        Err(_) => ExitCode::FAILURE,
    }
}

fn show(arguments: &Arguments) -> ExitCode {
    let (demo, report) = RingDemo::show(arguments.samples, arguments.seed);
    match arguments.output.as_str() {
        "json" => println!("{}", serde_json::to_string(&report).expect("numbers and names")),
        _ => print!("{}", report.tables()),
    }
    if arguments.keep {
        eprintln!("it runs until Ctrl-C; in another terminal:\n\n{}", demo.exports());
        while !interrupt::came() {
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
    }
    drop(demo);
    let faults = report.faults();
    eprint!("{faults}");
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
