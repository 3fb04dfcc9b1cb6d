//! `larder ring ...`: the members of the cluster, and changing them.

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

/// What can be asked of a ring.
#[derive(Debug, Subcommand)]
pub(crate) enum RingCommand {
    /// Show the members: state, share, memory, which ring each goes by, what is being changed
    Status,
    /// Show what a change of the members would move; keep the plan in a file
    ///
    /// Nothing is changed. Several changes can be one plan. A plan is for the ring that it was made
    /// on: when the ring has moved on, it is refused.
    Plan(plan::Arguments),
    /// Begin a change by a plan that was kept
    ///
    /// Refused when the ring has moved on since it was planned, or another change is in flight.
    /// Reads go on by the present ring until everything has moved; then the change is committed.
    Apply(apply::Arguments),
    /// Stop moving; what was moved stays
    Pause(steer::Arguments),
    /// Go on moving
    Resume(steer::Arguments),
    /// Give the change in flight up: the ring stays what it was
    Abort(steer::Arguments),
    /// Set how fast the change in flight moves
    Rate(steer::RateArguments),
    /// List the latest changes that are over
    History,
    /// Take nodes out at once that are dead for good
    ///
    /// Done whatever the brake says. What only they had is read from the origin again. Let nodes
    /// that live leave with larder node drain.
    Remove(remove::Arguments),
    /// Make another node the coordinator when the one that was is lost for good
    ///
    /// Refused while the old one is reached by anybody, when a node that was not named as lost does
    /// not answer, and when another node has a newer copy of the record: then say --on that one. A
    /// cluster whose record etcd keeps has no use for it.
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

/// What becomes of one node.
#[derive(Debug, Clone, Serialize)]
struct Edit {
    node: String,
    /// `add`, `leave` or `reweight`.
    what: &'static str,
    /// Absent for who leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    /// Absent for who comes.
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

/// What a change does to the ring.
#[derive(Debug, Clone, Default, Serialize)]
struct Edits {
    edits: Vec<Edit>,
    /// How many nodes own each shard afterwards. Absent: as many as before.
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
