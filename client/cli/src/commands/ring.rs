//! `larder ring ...`: the members of the cluster, and changing them.

mod apply;
mod figures;
pub(super) mod follow;
mod history;
mod lost;
mod plan;
mod plan_file;
mod status;
mod steer;

use clap::Subcommand;
use larder_client::admin::ChangeEdit;

use super::operator::Consent;
use crate::{context::Context, error::Failure, output::units};

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
    Pause(Consent),
    /// Go on moving
    Resume(Consent),
    /// Give the change in flight up: the ring stays what it was
    Abort(Consent),
    /// Set how fast the change in flight moves
    Rate(steer::RateArguments),
    /// List the latest changes that are over
    History,
    /// Take nodes out at once that are dead for good
    ///
    /// Done whatever the brake says. What only they had is read from the origin again. Let nodes
    /// that live leave with larder node drain.
    Remove(lost::RemoveArguments),
    /// Make another node the coordinator when the one that was is lost for good
    ///
    /// Refused while the old one is reached by anybody, when a node that was not named as lost does
    /// not answer, and when another node has a newer copy of the record: then say --on that one. A
    /// cluster whose record etcd keeps has no use for it.
    Takeover(lost::TakeoverArguments),
}

pub(super) fn run(context: &Context, command: RingCommand) -> Result<(), Failure> {
    match command {
        RingCommand::Status => status::run(context),
        RingCommand::Plan(arguments) => plan::run(context, &arguments),
        RingCommand::Apply(arguments) => apply::run(context, &arguments),
        RingCommand::Pause(consent) => steer::pause(context, &consent),
        RingCommand::Resume(consent) => steer::resume(context, &consent),
        RingCommand::Abort(consent) => steer::abort(context, &consent),
        RingCommand::Rate(arguments) => steer::rate(context, &arguments),
        RingCommand::History => history::run(context),
        RingCommand::Remove(arguments) => lost::remove(context, &arguments),
        RingCommand::Takeover(arguments) => lost::take_over(context, &arguments),
    }
}

/// What a change does to the ring, in one line: `d joins, c leaves, a gets weight 3`.
fn words(edits: &[ChangeEdit], replicas: Option<u32>) -> String {
    let edit = |edit: &ChangeEdit| match (&edit.node_id, edit.weight_before, edit.weight) {
        (node, 0, _) => format!("{node} joins"),
        (node, _, 0) => format!("{node} leaves"),
        (node, _, weight) => format!("{node} gets weight {weight}"),
    };
    let replicas = replicas.into_iter().map(replicas_of_each);
    replicas.chain(edits.iter().map(edit)).collect::<Vec<_>>().join(", ")
}

fn speed_words(rate: Option<u64>) -> String {
    match rate {
        Some(rate) => format!("at most {}/s", units::bytes(rate)),
        None => "as fast as reads allow".to_owned(),
    }
}

fn replicas_of_each(replicas: u32) -> String {
    format!("{replicas} {} of each shard", if replicas == 1 { "replica" } else { "replicas" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_read_in_one_line() {
        let edit = |node: &str, weight_before, weight| ChangeEdit {
            node_id: node.to_owned(),
            weight,
            weight_before,
        };
        let edits = vec![edit("a", 1, 3), edit("c", 1, 0), edit("d", 0, 1)];
        assert_eq!(words(&edits, None), "a gets weight 3, c leaves, d joins");
        assert_eq!(words(&[], Some(1)), "1 replica of each shard");
        assert_eq!(words(&[], Some(3)), "3 replicas of each shard");
    }

    #[test]
    fn a_node_that_leaves_has_no_weight_in_json() {
        let edit = ChangeEdit { node_id: "c".to_owned(), weight: 0, weight_before: 1 };
        let leaves = serde_json::json!({ "node": "c", "what": "leave", "weight_before": 1 });
        assert_eq!(serde_json::to_value(edit).unwrap(), leaves);
    }
}
