//! `larder ring ...`: shows and changes the members of the cluster.

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
    Pause(Consent),
    /// Go on moving
    Resume(Consent),
    /// Abort the change in flight: the ring stays as it was
    Abort(Consent),
    /// Set the rate of the change in flight
    Rate(steer::RateArguments),
    /// List the latest changes that are over
    History,
    /// Remove nodes that are dead for good, at once
    ///
    /// The brake does not stop it. Shards that only these nodes had are read from the origin again.
    /// For nodes that live use larder node drain.
    Remove(lost::RemoveArguments),
    /// Make another node the coordinator after the old one is lost for good
    ///
    /// It is refused in three cases: a node still reaches the old coordinator; a node that is not
    /// named as lost does not answer; another node has a newer copy of the record. In the last case
    /// name that node with --on. A cluster with its record in etcd does not need this command.
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

/// The effect of a change on the ring, in one line: `d joins, c leaves, a gets weight 3`.
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
    fn edits_are_described_in_one_line() {
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
