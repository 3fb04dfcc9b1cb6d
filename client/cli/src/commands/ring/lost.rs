//! `larder ring remove` and `takeover`: nodes that are lost for good.

use clap::Args;
use larder_client::admin::{ClusterCommand, RemoveNodes, TakeOverResponse};
use serde::Serialize;

use crate::{
    commands::operator::{Consent, failed},
    context::Context,
    error::Failure,
    output::{Page, Report},
};

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
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

pub(super) fn remove(context: &Context, arguments: &RemoveArguments) -> Result<(), Failure> {
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

#[derive(Debug, Args)]
pub(crate) struct TakeoverArguments {
    /// A lost node: the old coordinator, and all others that do not answer; repeat for more
    #[arg(long, value_name = "NODE", value_delimiter = ',', required = true)]
    lost: Vec<String>,

    /// The node that takes over; by default the first of --cluster that answers
    #[arg(long, value_name = "NODE")]
    on: Option<String>,

    #[command(flatten)]
    consent: Consent,
}

pub(super) fn take_over(context: &Context, arguments: &TakeoverArguments) -> Result<(), Failure> {
    let operator = arguments.consent.operator(context)?;
    let (lost, on) = (arguments.lost.clone(), arguments.on.as_deref());
    let by = on.unwrap_or("another node");
    let named = lost.join(", ");
    arguments.consent.ask(&format!("give {named} up for good and have {by} coordinate"))?;
    let taken = operator.take_over(on, lost).map_err(|error| failed("nobody took over", error))?;
    context.output.print(&taken)
}

impl Report for TakeOverResponse {
    fn show(&self, page: &mut Page) {
        page.line(&format!("{} coordinates now, generation {}", self.node_id, self.generation));
        if !self.untold.is_empty() {
            page.line(&format!(
                "not told yet: {}; they learn it from the others",
                self.untold.join(", ")
            ));
        }
        page.line(
            "never start the lost coordinator again with its old folder while these nodes are away",
        );
    }
}
