//! `larder ring history`.

use larder_client::admin::PastChange;
use serde::Serialize;

use crate::{
    commands::operator::{failed, onlooker},
    context::Context,
    error::Failure,
    output::{Align, Page, Report, Table},
};

#[derive(Debug, Serialize)]
struct HistoryReport {
    /// The latest first.
    changes: Vec<Past>,
}

#[derive(Debug, Serialize)]
struct Past {
    change: u64,
    /// The version of the ring when the change was over.
    ring_version: u64,
    /// `committed` or `aborted`.
    outcome: &'static str,
    words: String,
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let history = onlooker(context)?.history();
    let history = history.map_err(|error| failed("the history can't be shown", error))?;
    let changes = history.changes.into_iter().rev().map(past).collect();
    context.output.print(&HistoryReport { changes })
}

fn past(past: PastChange) -> Past {
    Past {
        change: past.number,
        ring_version: past.ring_version,
        outcome: if past.committed { "committed" } else { "aborted" },
        words: past.words,
    }
}

impl Past {
    /// The words, without those of other columns.
    fn what(&self) -> &str {
        let known = format!("change {} is {}", self.change, self.outcome);
        let rest = self.words.strip_prefix(&known).unwrap_or(&self.words);
        rest.trim_start_matches([':', ',', ' '])
    }
}

impl Report for HistoryReport {
    fn show(&self, page: &mut Page) {
        if self.changes.is_empty() {
            page.line("the cluster has not changed yet");
            return;
        }
        let mut table = Table::new(&[
            ("CHANGE", Align::Right),
            ("RING", Align::Right),
            ("OUTCOME", Align::Left),
            ("WHAT", Align::Left),
        ]);
        for past in &self.changes {
            let (number, ring) = (past.change.to_string(), past.ring_version.to_string());
            table.row([number, ring, past.outcome.to_owned(), past.what().to_owned()]);
        }
        page.table(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_line_does_not_repeat_number_or_outcome() {
        let what = |committed, words: &str| {
            let (number, ring_version) = (7, 3);
            let words = words.to_owned();
            past(PastChange { number, ring_version, committed, words }).what().to_owned()
        };
        assert_eq!(what(true, "change 7 is committed: put c"), "put c");
        assert_eq!(what(true, "change 7 is committed at once, as b died"), "at once, as b died");
        assert_eq!(what(false, "change 7 is aborted, as c is gone: put c"), "as c is gone: put c");
        assert_eq!(what(false, "other words"), "other words");
    }
}
