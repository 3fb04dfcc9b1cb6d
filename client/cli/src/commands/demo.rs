//! `larder demo`: the whole system at work on this machine, with nothing configured.
//!
//! An S3 server that writes photographs into a bucket, two nodes, and a client that runs three
//! shuffled epochs: node `a` is read through shared memory, node `b` over TCP as another host would
//! read it. Every row is compared with the file it came from, and what the origin was asked for is
//! counted by the origin. All of it is gone when the command ends, however it ends: the other
//! programs stop when their standard input closes.

mod epochs;
mod http;
mod nodes;
mod origin;
mod process;
mod report;
mod signals;
mod source;
mod stage;

use clap::Args;
use larder_client::Dataset;

use crate::{
    context::Context,
    error::{Exit, Failure},
};
use epochs::Epochs;
use process::Child;
use report::DemoReport;
use signals::Interrupt;
use stage::Stage;

/// Shows it all at work: an S3 server on loopback, two nodes, three shuffled epochs, every byte
/// checked against its source. Needs nothing, leaves nothing behind.
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

    /// Leave it running afterwards, and say how to use it
    #[arg(long)]
    keep: bool,
}

/// Small enough that two nodes get about equally many.
const SHARD_BYTES: &str = "16MiB";
/// The node that is read through shared memory.
const NODE_LOCAL: &str = "a";
/// The node that is read as if it were on another host.
const NODE_REMOTE: &str = "b";

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    if context.was_given_an_address() {
        return Err(Failure::new(Exit::Usage, "the demo takes no address of a cluster")
            .why("it starts nodes of its own")
            .hint("larder bench DATASET --cluster ADDRESS measures yours"));
    }
    let interrupt = Interrupt::watch()?;
    let finished = show(context, arguments, &interrupt);
    // What breaks while everything is being stopped is not what the user wants to read about.
    finished.map_err(|failure| if interrupt.came() { signals::interrupted() } else { failure })
}

fn show(context: &Context, arguments: &Arguments, interrupt: &Interrupt) -> Result<(), Failure> {
    let progress = context.progress("making a folder");
    let stage = Stage::set(&progress, arguments.samples, SHARD_BYTES)?;
    let origin = &stage.origin;
    progress.say("starting two nodes");
    let nodes = nodes::start(&stage.programs, origin, [NODE_LOCAL, NODE_REMOTE])?;
    let cluster = nodes.iter().map(Child::address).collect::<Result<Vec<_>, _>>()?.join(",");
    let options = Dataset::options().cluster(&cluster).over_network([NODE_REMOTE]);
    let dataset = options.open(origin.dataset())?;
    drop(progress);
    if !context.output.is_json() && !context.output.is_quiet() {
        context.output.write(&report::opening(context, &dataset, origin))?;
    }
    let mut reader = Epochs::new(&dataset, origin, arguments.seed)?;
    let epochs = (0..arguments.epochs).map(|number| reader.run(context, interrupt, number));
    let epochs = epochs.collect::<Result<Vec<_>, _>>()?;
    drop(reader);
    context.output.print(&DemoReport { epochs, verified: true })?;
    if arguments.keep {
        say(context, &report::how_to_use(origin, &cluster))?;
        interrupt.wait();
    }
    drop(dataset);
    drop(nodes);
    stage.clear()
}

/// Says how to go on, where it is not in the way of results.
fn say(context: &Context, text: &str) -> Result<(), Failure> {
    if context.output.is_json() {
        context.output.note(text);
        return Ok(());
    }
    context.output.write(text)
}
