//! `larder node drain` and `larder node undrain`.

use std::time::Duration;

use clap::Args;
use larder_client::admin::{ClusterCommand, DrainNode, UndrainNode};
use serde::Serialize;

use crate::{
    commands::{
        operator::{Consent, failed, keeps_record, of_the_record, parse_duration},
        ring::follow::{Goal, follow},
    },
    context::Context,
    error::Failure,
    output::{Page, Report, units},
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its name on the ring; see larder ring status
    node: String,

    /// The longest time that it may take, as 90s or 10m; without it there is no limit
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,

    /// Show the progress until the node has left
    #[arg(long)]
    follow: bool,

    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Args)]
pub(crate) struct UndrainArguments {
    /// Its name on the ring
    node: String,

    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Serialize)]
struct Drained {
    node: String,
    /// `draining` or `active`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_seconds: Option<f64>,
    /// Whether it keeps the record of the cluster. A drain does not move the record.
    keeps_record: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let operator = arguments.consent.operator(context)?;
    let (node, deadline) = (arguments.node.clone(), arguments.deadline);
    let within = deadline.map(|limit| format!(" within {}", units::duration(limit)));
    let within = within.unwrap_or_default();
    arguments.consent.ask(&format!("move everything off {node}{within} and let it leave"))?;
    let deadline_ms = deadline.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let command = ClusterCommand::Drain(DrainNode { node_id: node.clone(), deadline_ms });
    // Asked before the command: a node that owns nothing may have left when the command returns.
    let keeps_record = keeps_record(&operator, &node);
    operator.command(command).map_err(|error| failed(format!("{node} does not drain"), error))?;
    if arguments.follow {
        return follow(context, &operator, &Goal::Leaves { node, keeps_record });
    }
    let deadline_seconds = deadline.map(|limit| limit.as_secs_f64());
    context.output.print(&Drained { node, state: "draining", deadline_seconds, keeps_record })
}

pub(super) fn undrain(context: &Context, arguments: &UndrainArguments) -> Result<(), Failure> {
    let operator = arguments.consent.operator(context)?;
    let node = arguments.node.clone();
    arguments.consent.ask(&format!("let {node} stay in the ring"))?;
    let command = ClusterCommand::Undrain(UndrainNode { node_id: node.clone() });
    operator.command(command).map_err(|error| failed(format!("{node} drains on"), error))?;
    let (deadline_seconds, keeps_record) = (None, false);
    context.output.print(&Drained { node, state: "active", deadline_seconds, keeps_record })
}

impl Report for Drained {
    fn show(&self, page: &mut Page) {
        let node = &self.node;
        match (self.state, self.deadline_seconds) {
            ("active", _) => page.line(&format!("{node} stays in the ring")),
            (_, Some(limit)) => {
                page.line(&format!("{node} drains, for {} at most", units::seconds(limit)));
            }
            _ => page.line(&format!("{node} drains; watch it with: larder ring status")),
        }
        if self.keeps_record {
            page.line(&of_the_record(node));
        }
    }
}
