//! `larder node ...`: what nodes say about themselves, and letting one leave.

mod drain;
mod ls;
mod show;

use clap::Subcommand;

use crate::{context::Context, error::Failure};

/// What can be asked of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes of the cluster
    Ls,
    /// Show one node: memory, load, counters, fills that gave up
    Show(show::Arguments),
    /// Move everything off a node, then let it leave the ring
    ///
    /// Then it can be stopped. Reads go on meanwhile. When the deadline is over the ring goes on
    /// without the node, moved or not, and what is missing is read from the origin.
    Drain(drain::Arguments),
    /// Let a node that drains stay
    ///
    /// When its change is in flight, abort that instead: larder ring abort.
    Undrain(drain::UndrainArguments),
}

pub(super) fn run(context: &Context, command: NodeCommand) -> Result<(), Failure> {
    match command {
        NodeCommand::Ls => ls::run(context),
        NodeCommand::Show(arguments) => show::run(context, &arguments),
        NodeCommand::Drain(arguments) => drain::run(context, &arguments),
        NodeCommand::Undrain(arguments) => drain::undrain(context, &arguments),
    }
}
