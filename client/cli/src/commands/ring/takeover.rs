//! `larder ring takeover`.

use clap::Args;
use serde::Serialize;

use crate::{
    commands::operator::{Consent, failed},
    context::Context,
    error::Failure,
    output::{Page, Report},
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A lost node: the old coordinator, and all others that do not answer; repeat for more
    #[arg(long, value_name = "NODE", value_delimiter = ',', required = true)]
    lost: Vec<String>,

    /// The node that takes over; by default the first of --cluster that answers
    #[arg(long, value_name = "NODE")]
    on: Option<String>,

    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Serialize)]
struct TakenOver {
    /// The coordinator now.
    coordinator: String,
    generation: u64,
    /// Nodes that did not get the news yet. They learn it from any other node.
    untold: Vec<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let operator = arguments.consent.operator(context)?;
    let (lost, on) = (arguments.lost.clone(), arguments.on.as_deref());
    let by = on.unwrap_or("another node");
    let named = lost.join(", ");
    arguments.consent.ask(&format!("give {named} up for good and have {by} coordinate"))?;
    let taken = operator.take_over(on, lost).map_err(|error| failed("nobody took over", error))?;
    context.output.print(&TakenOver {
        coordinator: taken.node_id,
        generation: taken.generation,
        untold: taken.untold,
    })
}

impl Report for TakenOver {
    fn show(&self, page: &mut Page) {
        page.line(&format!("{} coordinates now, generation {}", self.coordinator, self.generation));
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
