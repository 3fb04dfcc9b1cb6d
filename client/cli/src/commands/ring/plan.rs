//! `larder ring plan`.

use std::path::PathBuf;

use clap::Args;
use larder_client::admin::{COPIES_MAX, NodeWeight, PlanChangeRequest, PlannedChange};
use serde::Serialize;

use super::{figures::Figures, plan_file};
use crate::{
    commands::operator::{Entitlement, failed, parse_rate},
    context::Context,
    error::Failure,
    output::{Page, Report},
};

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["add", "drain", "remove", "reweight", "replicas"]))]
pub(crate) struct Arguments {
    /// Add a node that waits outside of the ring (see larder ring status); repeat for more
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    add: Vec<String>,

    /// Let a live node leave: its shards are read from it
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    drain: Vec<String>,

    /// Remove a dead node: its shards come from other nodes that have them, or from the origin
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    remove: Vec<String>,

    /// Give a node another weight: its share of the shards, in proportion to the other weights
    #[arg(long, value_name = "NODE=WEIGHT", value_delimiter = ',', value_parser = parse_weight)]
    reweight: Vec<NodeWeight>,

    /// Set the number of owners of each shard, 1 to 8; not together with other changes
    #[arg(long, value_name = "N", conflicts_with_all = ["add", "drain", "remove", "reweight"], value_parser = clap::value_parser!(u32).range(1..=i64::from(COPIES_MAX)))]
    replicas: Option<u32>,

    /// Show the time that it takes at this rate over all nodes, as 500MiB/s
    #[arg(long, value_name = "BYTES/s", value_parser = parse_rate)]
    rate: Option<u64>,

    /// File for the plan; by default ring-HASH.plan in this folder
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    entitlement: Entitlement,
}

#[derive(Debug, Serialize)]
struct PlanReport {
    #[serde(flatten)]
    figures: Figures,
    /// The file of the plan.
    file: String,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let operator = arguments.entitlement.operator(context)?;
    let progress = context.progress("planning");
    let planned = operator.plan(&request(arguments));
    let PlannedChange { figures, bytes } =
        planned.map_err(|error| failed("nothing was planned", error))?;
    drop(progress);
    let figures = Figures::new(figures, arguments.rate);
    let path = arguments.out.clone().unwrap_or_else(|| plan_file::name(&figures.plan()));
    plan_file::write(&path, &bytes)?;
    context.output.print(&PlanReport { figures, file: path.display().to_string() })
}

fn request(arguments: &Arguments) -> PlanChangeRequest {
    PlanChangeRequest {
        add: arguments.add.clone(),
        drain: arguments.drain.clone(),
        remove: arguments.remove.clone(),
        weights: arguments.reweight.clone(),
        replicas: arguments.replicas,
    }
}

fn parse_weight(text: &str) -> Result<NodeWeight, String> {
    let parsed = text.split_once('=').and_then(|(node, weight)| Some((node, weight.parse().ok()?)));
    match parsed {
        Some((node, weight)) if weight > 0 && !node.is_empty() => {
            Ok(NodeWeight { node_id: node.to_owned(), weight })
        }
        _ => Err("write NODE=WEIGHT with a whole number from 1 on, like c=128".to_owned()),
    }
}

impl Report for PlanReport {
    fn show(&self, page: &mut Page) {
        self.figures.show(page);
        page.line("");
        page.line(&format!("kept in {}", self.file));
        page.line(&format!("begin it with: larder ring apply {}", self.file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_is_parsed_as_node_and_number() {
        let weight = parse_weight("c=128").unwrap();
        assert_eq!((weight.node_id.as_str(), weight.weight), ("c", 128));
        for odd in ["c", "c=", "=3", "c=0", "c=-1", "c=x"] {
            assert!(parse_weight(odd).unwrap_err().contains("c=128"), "{odd}");
        }
    }
}
