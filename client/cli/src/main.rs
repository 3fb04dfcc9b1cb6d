//! `larder`: the admin tool. Indexes and checks datasets, asks nodes how they are, finds out what a
//! host lacks, shows the whole system at work and measures it on the user's own data.
//!
//! Results go to standard output, as a table or as JSON; progress, notes and errors go to standard
//! error, so that `larder ... -o json | jq` always works. One process, one command, no state kept.

mod args;
mod error;
mod global;
mod output;
mod progress;

mod context;
mod nodes;

mod commands;

use std::process::ExitCode;

use args::Cli;
use clap::CommandFactory as _;
use context::Context;

fn main() -> ExitCode {
    let (cli, cluster_was_typed) = Cli::read();
    let context = Context::new(&cli.global, cluster_was_typed);
    match commands::run(&context, cli.command, Cli::command()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            context.output.fail(&failure);
            failure.exit.into()
        }
    }
}
