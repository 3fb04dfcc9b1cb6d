//! `larder`: the admin tool. It indexes and checks datasets, shows and changes nodes and the ring,
//! checks a host, runs a demo, and measures the user's own data.
//!
//! Results go to standard output, as a table or as JSON. Progress, notes and errors go to standard
//! error, so that `larder ... -o json | jq` always works. One process runs one command and keeps no
//! state.

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
