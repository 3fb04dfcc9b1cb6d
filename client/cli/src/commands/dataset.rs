//! `larder dataset ...`: datasets on the origin, and the datasets that nodes have open.

mod describe;
mod index;
mod ls;
mod open;
mod sample;
mod show;
mod verify;

use clap::Subcommand;

use crate::{context::Context, error::Failure};

pub(super) use open::{open, open_through_nodes, parse_reference};

/// The commands on datasets.
#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Index the files under a prefix in place: no conversion, no copy
    Index(index::Arguments),
    /// List the datasets that nodes have open, or the tags of one prefix
    Ls(ls::Arguments),
    /// Show a dataset: its tensors, shards, objects and the place of its manifest
    Show(show::Arguments),
    /// Read every row and check it
    Verify(verify::Arguments),
    /// Write one tensor of some samples to a .npy file
    Sample(sample::Arguments),
}

pub(super) fn run(context: &Context, command: DatasetCommand) -> Result<(), Failure> {
    match command {
        DatasetCommand::Index(arguments) => index::run(context, &arguments),
        DatasetCommand::Ls(arguments) => ls::run(context, &arguments),
        DatasetCommand::Show(arguments) => show::run(context, &arguments),
        DatasetCommand::Verify(arguments) => verify::run(context, &arguments),
        DatasetCommand::Sample(arguments) => sample::run(context, &arguments),
    }
}
