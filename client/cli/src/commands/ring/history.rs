//! `larder ring history`.

use std::time::{Duration, UNIX_EPOCH};

use larder_client::admin::PastChange;
use serde::Serialize;

use crate::{
    commands::operator::{failed, onlooker},
    context::Context,
    error::Failure,
    output::{Page, Report, TextTable},
};

#[derive(Debug, Serialize)]
struct HistoryReport {
    /// The latest first.
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct Change {
    #[serde(rename = "change")]
    number: u64,
    /// Version of the ring when it was over.
    ring_version: u64,
    /// `committed` or `aborted`.
    outcome: &'static str,
    words: String,
    /// When it was over, in UTC as RFC 3339 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// The operator or node that asked for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    asked_by: String,
}

impl From<PastChange> for Change {
    fn from(past: PastChange) -> Self {
        let PastChange { number, ring_version, committed, words, asked_by, at_ms } = past;
        let at = UNIX_EPOCH.checked_add(Duration::from_millis(at_ms)).filter(|_| at_ms > 0);
        let at = at.filter(|at| *at < UNIX_EPOCH + YEAR_10000);
        let at = at.map(|at| humantime::format_rfc3339_seconds(at).to_string());
        let outcome = if committed { "committed" } else { "aborted" };
        Self { number, ring_version, outcome, words, at, asked_by }
    }
}

/// The first second after the dates of RFC 3339, since 1970.
const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let history = onlooker(context)?.history();
    let changes = history.map_err(|error| failed("the history can't be shown", error))?.changes;
    let changes = changes.into_iter().rev().map(Change::from).collect();
    context.output.print(&HistoryReport { changes })
}

/// The words of a change without what other columns say.
fn what(past: &Change) -> &str {
    let known = format!("change {} is {}", past.number, past.outcome);
    let rest = past.words.strip_prefix(&known).unwrap_or(&past.words);
    rest.trim_start_matches([':', ',', ' '])
}

impl Report for HistoryReport {
    fn show(&self, page: &mut Page) {
        if self.changes.is_empty() {
            page.line("the cluster has not changed yet");
            return;
        }
        let mut table = TextTable::new(">CHANGE | >RING | OUTCOME | AT | WHAT");
        for past in &self.changes {
            let (number, ring) = (past.number.to_string(), past.ring_version.to_string());
            let at = past.at.clone().unwrap_or_else(|| "-".to_owned());
            table.row([number, ring, past.outcome.to_owned(), at, what(past).to_owned()]);
        }
        page.table(&table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_line_does_not_repeat_number_or_outcome() {
        let shown = |committed, words: &str| {
            let (number, ring_version) = (7, 3);
            let (words, asked_by) = (words.to_owned(), "me".to_owned());
            let past = PastChange { number, ring_version, committed, words, asked_by, at_ms: 0 };
            what(&past.into()).to_owned()
        };
        assert_eq!(shown(true, "change 7 is committed: put c"), "put c");
        assert_eq!(shown(true, "change 7 is committed at once, as b died"), "at once, as b died");
        assert_eq!(shown(false, "change 7 is aborted, as c is gone: put c"), "as c is gone: put c");
        assert_eq!(shown(false, "other words"), "other words");
    }

    #[test]
    fn times_are_utc_or_missing() {
        let at = |at_ms| Change::from(PastChange { at_ms, ..PastChange::default() }).at;
        assert_eq!(at(1_700_000_000_123).as_deref(), Some("2023-11-14T22:13:20Z"));
        assert_eq!([at(0), at(u64::MAX)], [None, None]);
    }
}
