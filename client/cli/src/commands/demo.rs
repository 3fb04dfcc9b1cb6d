//! `larder demo`: the whole system at work on this machine, with nothing configured.
//!
//! A folder of images is the origin. Two nodes cache it, and a client runs three shuffled epochs:
//! it reads node `a` through shared memory, and node `b` over TCP as another host would. It
//! compares every row with the written one. The folder is removed and the nodes end when the
//! command ends.

mod epochs;
mod images;
mod nodes;
mod report;
mod signals;

use clap::Args;
use larder_client::Dataset;

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
    signals::watch()?;
    // A failure after a signal is a consequence of the signal.
    show(context, arguments).map_err(|failure| signals::check().err().unwrap_or(failure))
}

fn show(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let progress = context.progress("writing images");
    let images = Images::write(arguments.samples)?;
    progress.say("starting two nodes");
    let nodes = nodes::start(&images, [NODE_LOCAL, NODE_REMOTE])?;
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
        signals::wait();
    }
    drop(dataset);
    drop(nodes);
    images.remove()
}
