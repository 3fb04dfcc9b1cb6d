//! The commands. Each has one file, with its arguments, its code and its result.

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

/// The commands of the tool.
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
    /// Show which nodes own a shard or sample, which have it, and why the others do not
    Explain(explain::Arguments),
    /// Check this host, the origin and the nodes, and name the remedy for each problem
    Doctor(doctor::Arguments),
    /// Run a demo: two nodes, three shuffled epochs, every byte checked
    Demo(demo::Arguments),
    /// Measure your dataset: from the origin, over the network, from memory on this host
    Bench(bench::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// List the exit codes and their meanings
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
