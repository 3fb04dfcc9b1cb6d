//! `larder ring ...`: shows and changes the members of the cluster.

mod apply;
mod figures;
pub(super) mod follow;
mod history;
mod plan;
mod plan_file;
mod remove;
mod status;
mod steer;
mod takeover;

use std::fmt::Write as _;

use clap::Subcommand;
use larder_client::admin::{ChangeEdit, ClusterChange, PlanFigures};
use serde::Serialize;

use crate::{context::Context, error::Failure};

/// The commands on the ring.
#[derive(Debug, Subcommand)]
pub(crate) enum RingCommand {
    /// Show the members: state, share, memory and ring of each, and the change in flight
    Status,
    /// Show the moves of a change of the members, and write the plan to a file
    ///
    /// It changes nothing. A plan may have several changes. A plan fits only the ring that it was
    /// made for: after another change it is refused.
    Plan(plan::Arguments),
    /// Begin a change by a plan from a file
    ///
    /// It is refused if the ring has changed since the plan, or if another change is in flight.
    /// Reads use the present ring until everything has moved. Then the change is committed.
    Apply(apply::Arguments),
    /// Stop moving; moved shards stay
    Pause(steer::Arguments),
    /// Go on moving
    Resume(steer::Arguments),
    /// Abort the change in flight: the ring stays as it was
    Abort(steer::Arguments),
    /// Set the rate of the change in flight
    Rate(steer::RateArguments),
    /// List the latest changes that are over
    History,
    /// Remove nodes that are dead for good, at once
    ///
    /// The brake does not stop it. Shards that only these nodes had are read from the origin again.
    /// For nodes that live use larder node drain.
    Remove(remove::Arguments),
    /// Make another node the coordinator after the old one is lost for good
    ///
    /// It is refused in three cases: a node still reaches the old coordinator; a node that is not
    /// named as lost does not answer; another node has a newer copy of the record. In the last case
    /// name that node with --on. A cluster with its record in etcd does not need this command.
    Takeover(takeover::Arguments),
}

pub(super) fn run(context: &Context, command: RingCommand) -> Result<(), Failure> {
    match command {
        RingCommand::Status => status::run(context),
        RingCommand::Plan(arguments) => plan::run(context, &arguments),
        RingCommand::Apply(arguments) => apply::run(context, &arguments),
        RingCommand::Pause(arguments) => steer::pause(context, &arguments),
        RingCommand::Resume(arguments) => steer::resume(context, &arguments),
        RingCommand::Abort(arguments) => steer::abort(context, &arguments),
        RingCommand::Rate(arguments) => steer::rate(context, &arguments),
        RingCommand::History => history::run(context),
        RingCommand::Remove(arguments) => remove::run(context, &arguments),
        RingCommand::Takeover(arguments) => takeover::run(context, &arguments),
    }
}

/// The change of one node.
#[derive(Debug, Clone, Serialize)]
struct Edit {
    node: String,
    /// `add`, `leave` or `reweight`.
    what: &'static str,
    /// Absent for a node that leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    /// Absent for a node that joins.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_before: Option<u32>,
}

impl From<&ChangeEdit> for Edit {
    fn from(edit: &ChangeEdit) -> Self {
        let given = |weight: u32| (weight > 0).then_some(weight);
        let (weight, weight_before) = (given(edit.weight), given(edit.weight_before));
        let what = match (weight_before, weight) {
            (None, _) => "add",
            (_, None) => "leave",
            _ => "reweight",
        };
        Self { node: edit.node_id.clone(), what, weight, weight_before }
    }
}

/// The effect of a change on the ring.
#[derive(Debug, Clone, Default, Serialize)]
struct Edits {
    edits: Vec<Edit>,
    /// The number of owners of each shard afterwards. Absent if it does not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<u32>,
}

impl From<&ClusterChange> for Edits {
    fn from(change: &ClusterChange) -> Self {
        Self { edits: change.edits.iter().map(Edit::from).collect(), replicas: change.replicas }
    }
}

impl From<&PlanFigures> for Edits {
    fn from(plan: &PlanFigures) -> Self {
        Self { edits: plan.edits.iter().map(Edit::from).collect(), replicas: plan.replicas }
    }
}

impl Edits {
    /// In one line: `d joins, c leaves, a gets weight 3`.
    fn words(&self) -> String {
        let mut text = self.replicas.map_or(String::new(), replicas_of_each);
        for edit in &self.edits {
            let comma = if text.is_empty() { "" } else { ", " };
            let (node, weight) = (&edit.node, edit.weight.unwrap_or(0));
            let _ = match edit.what {
                "add" => write!(text, "{comma}{node} joins"),
                "leave" => write!(text, "{comma}{node} leaves"),
                _ => write!(text, "{comma}{node} gets weight {weight}"),
            };
        }
        text
    }
}

fn replicas_of_each(replicas: u32) -> String {
    format!("{replicas} {} of each shard", if replicas == 1 { "replica" } else { "replicas" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_described_in_one_line() {
        let edit = |node: &str, weight_before, weight| ChangeEdit {
            node_id: node.to_owned(),
            weight,
            weight_before,
        };
        let edits = vec![edit("a", 1, 3), edit("c", 1, 0), edit("d", 0, 1)];
        let edits = Edits::from(&ClusterChange { edits, ..ClusterChange::default() });
        assert_eq!(edits.words(), "a gets weight 3, c leaves, d joins");
        assert_eq!(edits.edits[1].weight, None);
        let replicas = |replicas| Edits { replicas: Some(replicas), ..Edits::default() }.words();
        assert_eq!(replicas(1), "1 replica of each shard");
        assert_eq!(replicas(3), "3 replicas of each shard");
    }
}
