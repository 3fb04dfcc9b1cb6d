//! `larder ring history`.

use larder_client::admin::PastChange;
use serde::Serialize;

use crate::{
    commands::operator::{failed, onlooker},
    context::Context,
    error::Failure,
    output::{Page, Report, Table},
};

#[derive(Debug, Serialize)]
struct HistoryReport {
    /// The latest first.
    changes: Vec<PastChange>,
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let history = onlooker(context)?.history();
    let mut changes = history.map_err(|error| failed("the history can't be shown", error))?.changes;
    changes.reverse();
    context.output.print(&HistoryReport { changes })
}

fn outcome(past: &PastChange) -> &'static str {
    if past.committed { "committed" } else { "aborted" }
}

/// The words of a change without what other columns say.
fn what(past: &PastChange) -> &str {
    let known = format!("change {} is {}", past.number, outcome(past));
    let rest = past.words.strip_prefix(&known).unwrap_or(&past.words);
    rest.trim_start_matches([':', ',', ' '])
}

impl Report for HistoryReport {
    fn show(&self, page: &mut Page) {
        if self.changes.is_empty() {
            page.line("the cluster has not changed yet");
            return;
        }
        let mut table = Table::new(">CHANGE | >RING | OUTCOME | WHAT");
        for past in &self.changes {
            let (number, ring) = (past.number.to_string(), past.ring_version.to_string());
            table.row([number, ring, outcome(past).to_owned(), what(past).to_owned()]);
        }
        page.table(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_line_does_not_repeat_number_or_outcome() {
        let shown = |committed, words: &str| {
            let (number, ring_version) = (7, 3);
            let words = words.to_owned();
            what(&PastChange { number, ring_version, committed, words }).to_owned()
        };
        assert_eq!(shown(true, "change 7 is committed: put c"), "put c");
        assert_eq!(shown(true, "change 7 is committed at once, as b died"), "at once, as b died");
        assert_eq!(shown(false, "change 7 is aborted, as c is gone: put c"), "as c is gone: put c");
        assert_eq!(shown(false, "other words"), "other words");
    }
}
