//! `larder node ...`: lists and shows nodes, and drains a node.

mod drain;
mod ls;
mod show;

use std::fmt::Write as _;

use clap::Subcommand;
use larder_client::{MemberState, admin::Answer};
use serde::Serialize;

use crate::{
    context::Context,
    error::Failure,
    output::{Ink, Page},
};

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

/// A node that did not answer.
#[derive(Debug, Serialize)]
pub(super) struct Unreachable {
    node: String,
    control: String,
    why: String,
}

impl Unreachable {
    fn new(member: &MemberState, error: &larder_client::Error) -> Self {
        let why = error.why().unwrap_or_else(|| error.what()).to_owned();
        Self { node: member.id.clone(), control: member.control.clone(), why }
    }

    /// Lists the nodes that did not answer.
    pub(super) fn show_all(all: &[Self], page: &mut Page) {
        if all.is_empty() {
            return;
        }
        page.line("");
        for one in all {
            let mark = page.ink(Ink::Red, "no answer");
            page.line(&format!("{mark} from {} ({}): {}", one.node, one.control, one.why));
        }
    }
}

/// The members that did not answer.
pub(super) fn unreachable<T>(answers: &[Answer<T>]) -> Vec<Unreachable> {
    let failed = answers.iter().filter_map(|answer| {
        let error = answer.answer.as_ref().err()?;
        Some(Unreachable::new(&answer.member, error))
    });
    failed.collect()
}

/// Bytes as hex digits.
pub(super) fn snapshot_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
