//! `larder demo`: the whole system at work on this machine, with nothing configured.
//!
//! A folder of images is the origin. Two nodes cache it, and a client runs three shuffled epochs:
//! it reads node `a` through shared memory, and node `b` over TCP as another host would. It
//! compares every row with the written one. The folder is removed and the nodes end when the
//! command ends.

mod epochs;
mod images;
mod report;

use std::{
    io,
    net::TcpListener,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use clap::Args;
use larder_client::{
    Dataset,
    host::{ServeOptions, ServedNode, serve},
};
use nix::sys::signal::{SigSet, Signal};

use crate::{
    context::Context,
    error::{Exit, Failure},
};
use epochs::Epochs;
use images::Images;
use report::DemoReport;

/// Runs a demo on a folder of images: two nodes, three shuffled epochs, every byte checked against
/// its source. It needs no settings and removes its files.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Samples to write: 147 KiB each
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(512..=1_000_000))]
    samples: u64,

    /// Epochs to run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    epochs: u64,

    /// Seed of the order
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Keep the nodes running afterwards, and print how to use them
    #[arg(long)]
    keep: bool,
}

const BATCH_SIZE: u32 = 128;
/// The client reads this node through shared memory.
const NODE_LOCAL: &str = "a";
/// The client reads this node as if it were on another host.
const NODE_REMOTE: &str = "b";

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    if context.was_given_an_address() {
        return Err(Failure::new(Exit::Usage, "the demo takes no address of a cluster")
            .why("it starts nodes of its own")
            .hint("larder bench DATASET --cluster ADDRESS measures yours"));
    }
    watch_signals()?;
    // A failure after a signal is a consequence of the signal.
    show(context, arguments).map_err(|failure| check_signals().err().unwrap_or(failure))
}

fn show(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let progress = context.progress("writing images");
    let images = Images::write(arguments.samples)?;
    progress.say("starting two nodes");
    let nodes = start(&images, [NODE_LOCAL, NODE_REMOTE])?;
    let cluster = format!("{},{}", nodes[0].address(), nodes[1].address());
    let options = Dataset::options().cluster(&cluster).over_network([NODE_REMOTE]);
    let dataset = options.open(&images.uri())?;
    drop(progress);
    if !context.output.is_json() && !context.output.is_quiet() {
        context.output.write(&report::opening(context, &dataset, &images))?;
    }
    let mut reader = Epochs::new(&dataset, &images, arguments.seed)?;
    let epochs = (0..arguments.epochs).map(|number| reader.run(context, number));
    let epochs = epochs.collect::<Result<Vec<_>, _>>()?;
    drop(reader);
    context.output.print(&DemoReport { epochs, verified: true })?;
    if arguments.keep {
        let text = report::how_to_use(&images.uri(), &cluster);
        match context.output.is_json() {
            true => context.output.note(&text),
            false => context.output.write(&text)?,
        }
        wait_for_signal();
    }
    drop(dataset);
    drop(nodes);
    images.remove()
}

/// Starts the nodes. Each has room for more than the whole dataset: a ring of two may divide a few
/// shards unevenly.
fn start(images: &Images, names: [&str; 2]) -> Result<[ServedNode; 2], Failure> {
    let ports = free_ports();
    let ports = ports
        .map_err(|error| Failure::new(Exit::Failed, "no port is free on 127.0.0.1").why(error))?;
    let member = |node: usize| format!("{}=http://127.0.0.1:{}", names[node], ports[node]);
    let start = |node: usize| {
        let args = ["--node-id", names[node], "--data-listen", "127.0.0.1:0"].map(str::to_owned);
        let members = (0..names.len()).flat_map(|other| ["--member".to_owned(), member(other)]);
        serve(&ServeOptions {
            memory: Some(format!("{}MiB", images.bytes() / 4 * 5 / (1 << 20) + 64)),
            origins: vec![images.uri()],
            listen: Some(format!("127.0.0.1:{}", ports[node])),
            args: args.into_iter().chain(members).collect(),
            node_bin: None,
        })
    };
    Ok([start(0)?, start(1)?])
}

/// Two ports that were free a moment ago: each node is told the ports of both.
fn free_ports() -> io::Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

static SIGNAL_CAME: AtomicBool = AtomicBool::new(false);
const TICK: Duration = Duration::from_millis(50);

/// Watches for SIGINT and SIGTERM, which end the demo in order, so that it removes its files and
/// stops its nodes. Runs before any thread starts: threads inherit the blocked signals. The second
/// signal ends the process at once.
fn watch_signals() -> Result<(), Failure> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    let failed = |error: String| Failure::new(Exit::Failed, "signals can't be watched").why(error);
    signals.thread_block().map_err(|error| failed(error.to_string()))?;
    let watch = move || {
        let _ = signals.wait();
        SIGNAL_CAME.store(true, Relaxed);
        let _ = signals.wait();
        std::process::exit(130);
    };
    let thread = thread::Builder::new().name("larder-signals".to_owned()).spawn(watch);
    thread.map(drop).map_err(|error| failed(error.to_string()))
}

/// Fails once a signal came.
fn check_signals() -> Result<(), Failure> {
    if SIGNAL_CAME.load(Relaxed) {
        return Err(Failure::new(Exit::Interrupted, "interrupted"));
    }
    Ok(())
}

/// Waits for a signal.
fn wait_for_signal() {
    while check_signals().is_ok() {
        thread::park_timeout(TICK);
    }
}
