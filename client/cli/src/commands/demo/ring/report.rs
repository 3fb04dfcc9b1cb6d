//! What the demo of a ring prints: who is there, what each change cost, and whether that is as
//! promised.

use std::time::Duration;

use larder_client::Dataset;
use serde::Serialize;

use super::{
    super::{
        origin::Origin,
        report::{Epoch, exports, show_epochs, show_verified},
    },
    change::Change,
    members::Members,
    reader::{BATCH_SIZE, Sum},
};
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Align, Ink, Page, Report, Table, units},
};

/// The goals. Bytes moved, of those that were planned.
const MOVED_OF_PLANNED_MAX: f64 = 1.05;
/// The 99th percentile of reads during a change, of that before it. A matter of the machine too: it
/// is told, and fails nothing.
const P99_RATIO_MAX: f64 = 1.5;

/// The result: exactly these names, for scripts.
#[derive(Debug, Serialize)]
pub(super) struct RingReport {
    /// Who keeps the record: `etcd`, or `embedded` in the first node.
    coordinator: &'static str,
    /// One before the changes, one after them.
    epochs: [Epoch; 2],
    verified: bool,
    /// Batches fetched from the first change to the last and between them, and those that failed.
    reads: u64,
    reads_failed: u64,
    #[serde(skip)]
    first_failure: Option<String>,
    /// A node joins.
    rebalance: Change,
    /// Another leaves.
    drain: Change,
}

/// Whether a goal was reached, in words.
struct Verdict {
    reached: bool,
    words: String,
}

impl RingReport {
    /// Of epochs that were verified.
    pub(super) fn new(
        coordinator: &'static str,
        epochs: [Epoch; 2],
        rebalance: Change,
        drain: Change,
        all: Sum,
    ) -> Self {
        let Sum { reads, failed: reads_failed, first_failure } = all;
        let verified = true;
        Self { coordinator, epochs, verified, reads, reads_failed, first_failure, rebalance, drain }
    }

    /// Fails if a read failed, or more was moved than was planned.
    pub(super) fn kept_its_word(&self) -> Result<(), Failure> {
        let broken = [self.no_read_failed(), self.moved_as_planned()];
        let mut broken = broken.into_iter().filter(|verdict| !verdict.reached).peekable();
        if broken.peek().is_none() {
            return Ok(());
        }
        let why: Vec<String> = broken.map(|verdict| verdict.words).collect();
        Err(Failure::new(Exit::Failed, "the ring did not change as it should")
            .why(why.join("\n"))
            .hint("this is a defect of Larder: please report it"))
    }

    fn changes(&self) -> [&Change; 2] {
        [&self.rebalance, &self.drain]
    }

    fn no_read_failed(&self) -> Verdict {
        let (reads, failed) = (units::counted(self.reads, "read"), units::count(self.reads_failed));
        let first = self.first_failure.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        Verdict {
            reached: self.reads_failed == 0,
            words: format!("{failed} of {reads} failed{first}"),
        }
    }

    fn moved_as_planned(&self) -> Verdict {
        let ratio = |change: &Change| change.bytes_moved as f64 / change.bytes_planned as f64;
        let ratios = self.changes().map(ratio);
        Verdict {
            reached: ratios.iter().all(|ratio| *ratio <= MOVED_OF_PLANNED_MAX),
            words: self.words(ratios, "the bytes planned", MOVED_OF_PLANNED_MAX),
        }
    }

    /// Unknown where nothing was read.
    fn reads_stayed_fast(&self) -> Option<Verdict> {
        let ratio = |change: &Change| Some(change.p99_during? / change.p99_before?);
        let ratios = [ratio(&self.rebalance)?, ratio(&self.drain)?];
        Some(Verdict {
            reached: ratios.iter().all(|ratio| *ratio <= P99_RATIO_MAX),
            words: self.words(ratios, "the p99 before", P99_RATIO_MAX),
        })
    }

    /// `d joins with 1.00 x, b drains with 1.00 x of the bytes planned; at most 1.05 x`.
    fn words(&self, ratios: [f64; 2], of: &str, max: f64) -> String {
        let with = |(change, ratio): (&Change, f64)| format!("{} with {ratio:.2} x", change.what);
        let both: Vec<String> = self.changes().into_iter().zip(ratios).map(with).collect();
        format!("{} of {of}; at most {max} x", both.join(", "))
    }
}

impl Report for RingReport {
    fn show(&self, page: &mut Page) {
        show_epochs(&self.epochs, page);
        page.line("");
        let mut table = Table::new(&[
            ("CHANGE", Align::Left),
            ("TIME", Align::Right),
            ("MOVED", Align::Right),
            ("PLANNED", Align::Right),
            ("IDEAL", Align::Right),
            ("READS", Align::Right),
            ("FAILED", Align::Right),
            ("P99 BEFORE", Align::Right),
            ("P99 DURING", Align::Right),
        ]);
        for change in self.changes() {
            table.row(cells(change));
        }
        page.table(table);
        page.line("");
        let sure = [self.no_read_failed(), self.moved_as_planned()];
        for verdict in sure.into_iter().chain(self.reads_stayed_fast()) {
            let mark = match verdict.reached {
                true => page.ink(Ink::Green, "goal reached:"),
                false => page.ink(Ink::Yellow, "goal missed: "),
            };
            page.line(&format!("{mark} {}", verdict.words));
        }
        show_verified(page);
    }
}

fn cells(change: &Change) -> [String; 9] {
    let time = |seconds: f64| units::duration(Duration::from_secs_f64(seconds));
    let slowest = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), time);
    [
        change.what.clone(),
        time(change.seconds),
        units::bytes(change.bytes_moved),
        units::bytes(change.bytes_planned),
        units::bytes(change.bytes_ideal),
        units::count(change.reads),
        units::count(change.reads_failed),
        slowest(change.p99_before),
        slowest(change.p99_during),
    ]
}

/// What was started, in a few words.
pub(super) fn opening(
    context: &Context,
    dataset: &Dataset,
    origin: &Origin,
    coordinator: &str,
) -> String {
    let mut page = context.output.page();
    let agree =
        if coordinator == "etcd" { "etcd" } else { "the first of them, as there is no etcd" };
    let shards = units::counted(dataset.manifest().shard_count().into(), "shard");
    page.fields(&[
        ("origin", origin.words(dataset)),
        ("nodes", format!("a, b and c, which agree through {agree}; {shards} between them")),
        (
            "client",
            format!("shuffled batches of {BATCH_SIZE} over TCP without pause, every row compared with its file"),
        ),
        ("then", "node d joins, and node b is drained and stopped".to_owned()),
    ]);
    page.line("");
    page.text().to_owned()
}

/// What to export and to paste while it is left running.
pub(super) fn how_to_use(origin: &Origin, members: &Members<'_>) -> Result<String, Failure> {
    let mut text = exports(origin, &members.addresses()?);
    text.push_str(&format!(
        "  export LARDER_TOKEN={}

  larder ring status
  larder ring plan --drain c
  larder node drain c --follow
",
        members.token()
    ));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(bytes_moved: u64, p99_during: f64) -> Change {
        Change {
            what: "d joins".to_owned(),
            seconds: 6.5,
            bytes_ideal: 100 << 20,
            bytes_planned: 100 << 20,
            bytes_moved,
            reads: 1_000,
            reads_failed: 0,
            p99_before: Some(0.002),
            p99_during: Some(p99_during),
        }
    }

    fn epoch(epoch: u64) -> Epoch {
        Epoch {
            epoch,
            samples: 4_096,
            seconds: 1.0,
            rows_local: 0,
            rows_remote: 4_096,
            rows_origin: 0,
            origin_requests: 0,
            origin_bytes: 0,
            bytes: 1 << 30,
        }
    }

    fn report(moved_mib: u64, p99_during: f64, failed: u64) -> RingReport {
        let changes = || change(moved_mib << 20, p99_during);
        let first_failure = (failed > 0).then(|| "it was too late".to_owned());
        let all = Sum { reads: 9_000, failed, first_failure };
        RingReport::new("etcd", [epoch(1), epoch(2)], changes(), changes(), all)
    }

    fn shown(report: &RingReport) -> String {
        let mut page = Page::new(false, false);
        report.show(&mut page);
        page.text().to_owned()
    }

    #[test]
    fn what_was_promised_is_said_to_be_reached() {
        let report = report(105, 0.003, 0);
        assert!(report.kept_its_word().is_ok());
        let shown = shown(&report);
        assert!(shown.contains("0 of 9,000 reads failed"), "{shown}");
        assert!(shown.contains("d joins with 1.05 x, d joins with 1.05 x of the bytes planned"));
        assert!(shown.contains("1.50 x of the p99 before; at most 1.5 x"), "{shown}");
        assert!(!shown.contains("missed"), "{shown}");
    }

    #[test]
    fn slow_reads_miss_a_goal_and_fail_nothing() {
        let report = report(100, 0.004, 0);
        assert!(report.kept_its_word().is_ok());
        let shown = shown(&report);
        assert!(shown.contains("goal missed:  d joins with 2.00 x"), "{shown}");
    }

    #[test]
    fn failed_reads_and_bytes_that_nobody_planned_fail_the_demo() {
        let failure = report(106, 0.002, 3).kept_its_word().unwrap_err();
        let why = failure.why.unwrap();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(why.contains("3 of 9,000 reads failed: it was too late"), "{why}");
        assert!(why.contains("1.06 x of the bytes planned; at most 1.05 x"), "{why}");
    }

    #[test]
    fn scripts_find_the_names_that_they_were_promised() {
        let json = serde_json::to_value(report(100, 0.002, 0)).unwrap();
        assert_eq!((&json["coordinator"], &json["reads_failed"]), (&"etcd".into(), &0.into()));
        let names =
            "bytes_ideal bytes_planned bytes_moved reads reads_failed p99_before p99_during";
        for change in [&json["rebalance"], &json["drain"]] {
            assert!(names.split(' ').all(|name| change[name].is_number()), "{change}");
        }
    }
}
