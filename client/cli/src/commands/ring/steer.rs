//! `larder ring pause`, `resume`, `abort` and `rate`: the change in flight.

use clap::Args;
use larder_client::admin::{
    AbortChange, ChangeEdit, ClusterChange, ClusterCommand, Operator, PauseChange, ResumeChange,
    SetRate,
};
use serde::Serialize;

use super::{speed_words, words};
use crate::{
    commands::operator::{Consent, failed, parse_rate},
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report},
};

#[derive(Debug, Args)]
pub(crate) struct RateArguments {
    /// The most bytes a second over all nodes, as 500MiB/s; with 'none' reads go first
    #[arg(value_name = "BYTES/s|none", value_parser = parse_rate_or_none)]
    rate: Rate,

    #[command(flatten)]
    consent: Consent,
}

/// A rate in bytes a second, or no rate.
#[derive(Debug, Clone, Copy)]
struct Rate(Option<u64>);

#[derive(Debug, Serialize)]
struct Steered {
    change: u64,
    /// The result: `paused`, `resumed`, `aborted` or `rated`.
    now: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    edits: Vec<ChangeEdit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<u32>,
}

pub(super) fn pause(context: &Context, consent: &Consent) -> Result<(), Failure> {
    steer(context, consent, "pause", "paused", |change| {
        ClusterCommand::Pause(PauseChange { change: Some(change) })
    })
}

pub(super) fn resume(context: &Context, consent: &Consent) -> Result<(), Failure> {
    steer(context, consent, "go on with", "resumed", |change| {
        ClusterCommand::Resume(ResumeChange { change: Some(change) })
    })
}

pub(super) fn abort(context: &Context, consent: &Consent) -> Result<(), Failure> {
    steer(context, consent, "give up", "aborted", |change| {
        ClusterCommand::Abort(AbortChange { change: Some(change) })
    })
}

pub(super) fn rate(context: &Context, arguments: &RateArguments) -> Result<(), Failure> {
    let Rate(rate) = arguments.rate;
    steer(context, &arguments.consent, "change the rate of", "rated", |change| {
        ClusterCommand::Rate(SetRate { rate, change: Some(change) })
    })
}

/// Sends the command for the change that the user saw, and for no other.
fn steer(
    context: &Context,
    consent: &Consent,
    verb: &str,
    now: &'static str,
    command: impl FnOnce(u64) -> ClusterCommand,
) -> Result<(), Failure> {
    let operator = consent.operator(context)?;
    let change = in_flight(&operator)?;
    let what = words(&change.edits, change.replicas);
    consent.ask(&format!("{verb} change {}: {what}", change.number))?;
    let command = command(change.number);
    let rate = match &command {
        ClusterCommand::Rate(set) => set.rate,
        _ => change.rate,
    };
    let not_done = format!("change {} was not {now}", change.number);
    operator.command(command).map_err(|error| failed(not_done, error))?;
    let ClusterChange { number, edits, replicas, .. } = change;
    context.output.print(&Steered { change: number, now, rate, edits, replicas })
}

/// The change in flight.
fn in_flight(operator: &Operator) -> Result<ClusterChange, Failure> {
    let status = operator.status();
    let status = status.map_err(|error| failed("the cluster can't be asked", error))?;
    status.change.ok_or_else(|| {
        Failure::new(Exit::Failed, "no change is in flight")
            .hint("see larder ring history for those that are over")
    })
}

fn parse_rate_or_none(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate(None)),
        _ => parse_rate(text).map(|rate| Rate(Some(rate))),
    }
}

impl Report for Steered {
    fn show(&self, page: &mut Page) {
        let (number, what) = (self.change, words(&self.edits, self.replicas));
        let speed = speed_words(self.rate);
        page.line(&match self.now {
            "paused" => format!("change {number} ({what}) is paused; what was moved stays"),
            "aborted" => format!("change {number} ({what}) is given up; the ring is what it was"),
            "rated" => format!("change {number} ({what}) moves {speed}"),
            _ => format!("change {number} ({what}) goes on, {speed}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_none_is_accepted_and_zero_refused() {
        assert_eq!(parse_rate_or_none("none").unwrap().0, None);
        assert_eq!(parse_rate_or_none("1MiB/s").unwrap().0, Some(1 << 20));
        assert!(parse_rate_or_none("0").is_err());
    }

    #[test]
    fn steered_change_is_shown_in_one_sentence() {
        let shown = |now, rate| {
            let mut page = Page::new(false, false);
            let (edits, replicas) = (Vec::new(), None);
            Steered { change: 3, now, rate, edits, replicas }.show(&mut page);
            page.text().to_owned()
        };
        assert!(shown("paused", None).contains("is paused"));
        assert!(shown("aborted", None).contains("the ring is what it was"));
        assert!(shown("rated", Some(1 << 20)).contains("at most 1.0 MiB/s"));
        assert!(shown("resumed", None).contains("as fast as reads allow"));
    }
}
