//! The commands: one file each, with its arguments, its result and the code between them.

mod bench;
mod completions;
mod dataset;
mod demo;
mod doctor;
mod exit_codes;
mod explain;
mod node;
mod operator;
mod ring;

use clap::Subcommand;

use crate::{context::Context, error::Failure};

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Index, list, show, verify and sample datasets
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// List nodes, show one, or let one leave
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show the members of the cluster; plan, begin and steer changes of them
    #[command(subcommand)]
    Ring(ring::RingCommand),
    /// Say where a shard or sample belongs, where it is, and why it is not
    Explain(explain::Arguments),
    /// Check this host, the origin and the nodes: what is missing, why it matters, what to do
    Doctor(doctor::Arguments),
    /// Show it all at work: an S3 server, two nodes, three shuffled epochs, every byte checked
    Demo(demo::Arguments),
    /// Measure a dataset of yours: from the origin, over the network, from memory on this host
    Bench(bench::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Say what the exit codes mean
    #[command(long_about = exit_codes::TEXT)]
    ExitCodes,
}

/// Runs one command of `program` to its end.
pub(crate) fn run(
    context: &Context,
    command: Command,
    program: clap::Command,
) -> Result<(), Failure> {
    match command {
        Command::Dataset(command) => dataset::run(context, command),
        Command::Node(command) => node::run(context, command),
        Command::Ring(command) => ring::run(context, command),
        Command::Explain(arguments) => explain::run(context, &arguments),
        Command::Doctor(arguments) => doctor::run(context, &arguments),
        Command::Demo(arguments) => demo::run(context, &arguments),
        Command::Bench(arguments) => bench::run(context, &arguments),
        Command::Completions(arguments) => completions::run(context, &arguments, program),
        Command::ExitCodes => exit_codes::run(context),
    }
}
