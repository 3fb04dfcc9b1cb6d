//! The result of the demo: what each change cost, and whether that is within the limits.

use serde::Serialize;

use super::reader::Read;

/// Bytes moved may be so many times those planned.
const MOVED_OF_PLANNED_MAX: f64 = 1.05;
/// The 99th percentile of reads during a change may be so many times that before it. It depends on
/// the machine, so a miss is only told.
const P99_RATIO_MAX: f64 = 1.5;

/// The result. Scripts use these names.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The keeper of the record: `etcd`, or `embedded` in the first node.
    coordinator: &'static str,
    /// One before the changes, one after them.
    epochs: [Epoch; 2],
    verified: bool,
    /// Batches of the reader, failed ones included.
    reads: usize,
    reads_failed: usize,
    #[serde(skip)]
    first_failure: String,
    /// A node joins.
    rebalance: Change,
    /// Another leaves.
    drain: Change,
}

/// One whole epoch. Requests and bytes are those that the S3 server counted.
#[derive(Debug, Serialize)]
pub(super) struct Epoch {
    pub(super) epoch: u64,
    pub(super) samples: u64,
    pub(super) seconds: f64,
    pub(super) rows_local: u64,
    pub(super) rows_remote: u64,
    pub(super) rows_origin: u64,
    pub(super) origin_requests: u64,
    pub(super) origin_bytes: u64,
}

/// The cost of a change. Times are in seconds.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    #[serde(skip)]
    pub(super) what: String,
    /// From the request until all nodes use the new ring.
    pub(super) seconds: f64,
    /// The least that must move between perfectly even placements.
    pub(super) bytes_ideal: u64,
    /// The bytes that the plan of the cluster moves.
    pub(super) bytes_planned: u64,
    /// The bytes that nodes read from each other and from the origin, until each shard is in
    /// memory only once.
    pub(super) bytes_moved: u64,
    /// Batches during the change, failed ones included.
    pub(super) reads: usize,
    pub(super) reads_failed: usize,
    /// The 99th percentile of the time to fetch a batch: at rest, and during the change.
    pub(super) p99_before: Option<f64>,
    pub(super) p99_during: Option<f64>,
}

impl Report {
    pub(super) fn new(
        coordinator: &'static str,
        epochs: [Epoch; 2],
        reads: &[Read],
        rebalance: Change,
        drain: Change,
    ) -> Self {
        let failures: Vec<&String> = reads.iter().filter_map(|read| read.as_ref().err()).collect();
        let first_failure = failures.first().copied().cloned().unwrap_or_default();
        let (verified, reads, reads_failed) = (true, reads.len(), failures.len());
        Self { coordinator, epochs, verified, reads, reads_failed, first_failure, rebalance, drain }
    }

    /// The limits that are exceeded, one a line. A slow read exceeds none.
    #[must_use]
    pub fn faults(&self) -> String {
        let mut faults = String::new();
        if self.reads_failed > 0 {
            let (failed, all, why) = (self.reads_failed, self.reads, &self.first_failure);
            faults = format!("{failed} of {all} reads failed: {why}\n");
        }
        for change in [&self.rebalance, &self.drain] {
            let ratio = change.moved_of_planned();
            if ratio > MOVED_OF_PLANNED_MAX {
                let what = &change.what;
                faults += &format!(
                    "{what} with {ratio:.2} x the bytes planned; at most {MOVED_OF_PLANNED_MAX} x\n"
                );
            }
        }
        faults
    }

    /// Tables for people.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut text =
            row(&["EPOCH", "SAMPLES/S", "TIME", "LOCAL", "REMOTE", "ORIGIN", "REQUESTS", "MIB"]);
        for epoch in &self.epochs {
            text += &row(&[
                &epoch.epoch.to_string(),
                &format!("{:.0}", epoch.samples as f64 / epoch.seconds),
                &format!("{:.2} s", epoch.seconds),
                &epoch.rows_local.to_string(),
                &epoch.rows_remote.to_string(),
                &epoch.rows_origin.to_string(),
                &epoch.origin_requests.to_string(),
                &mib(epoch.origin_bytes),
            ]);
        }
        text += "\n";
        text += &row(&[
            "CHANGE",
            "TIME",
            "MOVED MIB",
            "PLANNED",
            "IDEAL",
            "READS",
            "FAILED",
            "P99 BEFORE",
            "P99 DURING",
        ]);
        for change in [&self.rebalance, &self.drain] {
            text += &change.row();
        }
        let limits = format!("at most {MOVED_OF_PLANNED_MAX} x of the plan may move");
        let told = format!("p99 during a change should stay within {P99_RATIO_MAX} x");
        text + &format!("\n{limits}; {told}\nverified: every sample exactly once, every byte\n")
    }
}

impl Change {
    fn moved_of_planned(&self) -> f64 {
        self.bytes_moved as f64 / self.bytes_planned as f64
    }

    fn row(&self) -> String {
        let time = |p99: Option<f64>| {
            p99.map_or_else(|| "-".to_owned(), |p99| format!("{:.1} ms", p99 * 1e3))
        };
        let slow = self
            .p99_during
            .zip(self.p99_before)
            .is_some_and(|(during, before)| during > P99_RATIO_MAX * before);
        row(&[
            &self.what,
            &format!("{:.2} s", self.seconds),
            &mib(self.bytes_moved),
            &mib(self.bytes_planned),
            &mib(self.bytes_ideal),
            &self.reads.to_string(),
            &self.reads_failed.to_string(),
            &time(self.p99_before),
            &format!("{}{}", time(self.p99_during), if slow { " (slow)" } else { "" }),
        ])
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// One line of a table.
fn row(cells: &[&str]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>10}")).collect();
    cells + "\n"
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

    fn report(moved_mib: u64, p99_during: f64, failed: usize) -> Report {
        let epoch = |epoch| Epoch {
            epoch,
            samples: 4_096,
            seconds: 1.0,
            rows_local: 0,
            rows_remote: 4_096,
            rows_origin: 0,
            origin_requests: 0,
            origin_bytes: 0,
        };
        let mut reads = vec![Ok(std::time::Duration::ZERO); 9_000 - failed];
        reads.extend(vec![Err("it was too late".to_owned()); failed]);
        let changed = || change(moved_mib << 20, p99_during);
        Report::new("etcd", [epoch(1), epoch(2)], &reads, changed(), changed())
    }

    #[test]
    fn changes_within_the_limits_have_no_fault() {
        let report = report(105, 0.003, 0);
        assert_eq!(report.faults(), "");
        assert!(report.tables().contains("d joins     6.50 s      105.0"), "{}", report.tables());
        assert!(!report.tables().contains("(slow)"));
    }

    #[test]
    fn slow_reads_are_reported_but_are_no_fault() {
        let report = report(100, 0.004, 0);
        assert_eq!(report.faults(), "");
        assert!(report.tables().contains("4.0 ms (slow)"), "{}", report.tables());
    }

    #[test]
    fn failed_reads_and_unplanned_bytes_are_faults() {
        let faults = report(106, 0.002, 3).faults();
        assert!(faults.contains("3 of 9000 reads failed: it was too late"), "{faults}");
        assert!(faults.contains("1.06 x the bytes planned; at most 1.05 x"), "{faults}");
    }

    #[test]
    fn scripts_find_the_promised_names() {
        let json = serde_json::to_value(report(100, 0.002, 0)).expect("numbers and names");
        assert_eq!((&json["coordinator"], &json["reads_failed"]), (&"etcd".into(), &0.into()));
        let names =
            "bytes_ideal bytes_planned bytes_moved reads reads_failed p99_before p99_during";
        for change in [&json["rebalance"], &json["drain"]] {
            assert!(names.split(' ').all(|name| change[name].is_number()), "{change}");
        }
    }
}
