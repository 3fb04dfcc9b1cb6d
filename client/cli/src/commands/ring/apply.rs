//! `larder ring apply`.

use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::{
    figures::Figures,
    follow::{Goal, follow, latest_change},
    plan_file::{self, PlanFile},
};
use crate::{
    commands::operator::{Consent, failed, parse_rate},
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report, units},
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file of the plan, or at least 8 digits of its hash if the file is in this folder
    #[arg(value_name = "FILE|HASH")]
    plan: String,

    /// The most bytes to move a second over all nodes, as 500MiB/s; without it reads go first
    #[arg(long, value_name = "BYTES/s", value_parser = parse_rate)]
    rate: Option<u64>,

    /// Show the progress until the change is over
    #[arg(long)]
    follow: bool,

    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Serialize)]
struct BegunChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    #[serde(flatten)]
    figures: Figures,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let PlanFile { path, bytes, hash } = plan_file::find(&arguments.plan, Path::new("."))?;
    let operator = arguments.consent.operator(context)?;
    let not_begun = |error| failed("the change was not begun", error);
    let bytes = bytes.into();
    let checked = operator.apply(&bytes, arguments.rate, true).map_err(not_begun)?;
    let figures = Figures::new(checked.figures.unwrap_or_default(), arguments.rate);
    check_hash(&path, hash.as_deref(), &figures.plan())?;
    let latest = latest_change(&operator)?;
    context.output.show_first(|page| figures.show(page));
    arguments.consent.ask(&format!("begin this change: {}", figures.words()))?;
    let applied = operator.apply(&bytes, arguments.rate, false).map_err(not_begun)?;
    let change = (applied.change > 0).then_some(applied.change);
    if arguments.follow {
        let after = change.map_or(latest, |change| change - 1);
        return follow(context, &operator, &Goal::ChangeAfter(after));
    }
    context.output.print(&BegunChange { change, figures })
}

/// Fails unless the plan has the hash that the user named.
fn check_hash(path: &Path, typed: Option<&str>, hash: &str) -> Result<(), Failure> {
    if typed.is_none_or(|typed| hash.starts_with(typed)) {
        return Ok(());
    }
    let file = path.display();
    Err(Failure::new(Exit::Data, format!("{file} holds another plan than its name says"))
        .why(format!("the plan in it has the hash {hash}"))
        .hint("plan again: larder ring plan"))
}

impl Report for BegunChange {
    fn show(&self, page: &mut Page) {
        let number =
            self.change.map_or("the change".to_owned(), |number| format!("change {number}"));
        page.line(&format!(
            "{number} has begun: {}; {} to move",
            self.figures.words(),
            units::bytes(self.figures.said.bytes)
        ));
        page.line("watch it with: larder ring status");
    }
}
