//! `larder node ...`: lists and shows nodes, and drains a node.

mod drain;
mod ls;
mod show;

use clap::Subcommand;

use crate::{context::Context, error::Failure};

/// The commands on nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes of the cluster
    Ls,
    /// Show one node: memory, load, counters, fills that gave up
    Show(show::Arguments),
    /// Move everything off a node, then let it leave the ring
    ///
    /// Afterwards you can stop the node. Reads go on meanwhile. After the deadline the ring goes on
    /// without the node, even if shards are left on it. Those are read from the origin.
    Drain(drain::Arguments),
    /// Let a draining node stay
    ///
    /// If its change is in flight, abort that instead: larder ring abort.
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
