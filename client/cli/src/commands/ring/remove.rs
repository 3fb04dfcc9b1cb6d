//! `larder ring remove`.

use clap::Args;
use larder_client::admin::{ClusterCommand, RemoveNodes};
use serde::Serialize;

use crate::{
    commands::operator::{Consent, failed},
    context::Context,
    error::Failure,
    output::{Page, Report},
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The names of the nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,

    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: Vec<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let operator = arguments.consent.operator(context)?;
    let (nodes, named) = (arguments.nodes.clone(), arguments.nodes.join(", "));
    arguments
        .consent
        .ask(&format!("remove {named} for good, without moving anything from there"))?;
    let command = ClusterCommand::Remove(RemoveNodes { node_ids: nodes.clone() });
    operator.command(command).map_err(|error| failed(format!("{named} not removed"), error))?;
    context.output.print(&Removed { removed: nodes })
}

impl Report for Removed {
    fn show(&self, page: &mut Page) {
        let leave = if self.removed.len() == 1 { "leaves" } else { "leave" };
        page.line(&format!("{} {leave} the ring at once", self.removed.join(", ")));
    }
}
