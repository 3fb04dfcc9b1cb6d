//! `larder doctor`: checks this host, the origin and the nodes.
//!
//! Every check reports its finding, the reason why it matters, and the remedy. Checks change
//! nothing. To test whether a prefix can be written, they write one small object under `.larder`
//! and delete it.

mod host;
mod memory;
mod nodes;
mod origin;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::dataset::parse_reference;
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Ink, Page, Report, units},
};

/// Checks this host, an origin if it is named, and the nodes: those of --cluster or LARDER_CLUSTER,
/// else the node of this host, if it runs.
///
/// The exit code is 1 if a check fails; warnings do not count.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// An origin to check: can it be listed, read and written?
    uri: Option<String>,

    /// A node's socket to try instead of the default
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    checks: Vec<Check>,
    ok: usize,
    warn: usize,
    fail: usize,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let reference = arguments.uri.as_deref().map(parse_reference).transpose()?;
    let progress = context.progress("looking at this host");
    let mut checks = host::checks();
    checks.extend(memory::checks());
    checks.extend(host::gpu_checks());
    progress.say("asking the nodes");
    checks.extend(nodes::checks(context.nodes_to_inspect(), arguments.socket.as_deref()));
    if let Some(reference) = reference {
        progress.say(&format!("reaching {}", reference.uri()));
        checks.extend(context.block_on(Box::pin(origin::checks(&reference)))?);
    }
    drop(progress);
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (ok, warn, fail) = (count(State::Ok), count(State::Warn), count(State::Fail));
    context.output.print(&DoctorReport { checks, ok, warn, fail })?;
    match fail {
        0 => Ok(()),
        fail => Err(Failure::new(
            Exit::Failed,
            format!("{} failed", units::counted(fail as u64, "check")),
        )
        .hint("do what the failed checks say, and run larder doctor again")),
    }
}

impl Report for DoctorReport {
    fn show(&self, page: &mut Page) {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for check in &self.checks {
            let (ink, word) = match check.state {
                State::Ok => (Ink::Green, "ok  "),
                State::Warn => (Ink::Yellow, "warn"),
                State::Fail => (Ink::Red, "fail"),
            };
            let state = page.ink(ink, word);
            page.hung(width + 8, &format!("{state}  {:<width$}  {}", check.name, check.found));
            if check.state != State::Ok {
                let indent = " ".repeat(width + 8);
                let why = page.ink(Ink::Dim, "why:");
                page.hung(width + 13, &format!("{indent}{why} {}", check.why));
                if let Some(hint) = &check.hint {
                    let mark = page.ink(Ink::Cyan, "do: ");
                    page.hung(width + 13, &format!("{indent}{mark} {hint}"));
                }
            }
        }
        page.line("");
        page.line(&format!("{} ok, {} to improve, {} failed", self.ok, self.warn, self.fail));
    }
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// It works, but slower or with less memory than it could.
    Warn,
    /// It does not work.
    Fail,
}

/// The outcome of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    /// Why the finding matters.
    why: &'static str,
    /// The remedy, if one is needed.
    hint: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>, why: &'static str) -> Self {
        Self { name, state: State::Ok, found: found.into(), why, hint: None }
    }

    fn warn(
        name: &'static str,
        found: impl Into<String>,
        why: &'static str,
        hint: impl Into<String>,
    ) -> Self {
        Self { state: State::Warn, hint: Some(hint.into()), ..Self::ok(name, found, why) }
    }

    fn fail(
        name: &'static str,
        found: impl Into<String>,
        why: &'static str,
        hint: impl Into<String>,
    ) -> Self {
        Self { state: State::Fail, hint: Some(hint.into()), ..Self::ok(name, found, why) }
    }
}
