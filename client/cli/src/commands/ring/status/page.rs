//! Shows the cluster on a page.

use super::{
    super::{speed_words, words},
    Change, NodeRow, StatusReport,
};
use crate::output::{Ink, Page, Report, TextTable, units};

const LEGEND: &str = "U up, D silent; A active, J joining, L leaving, O out until it is back, H held, C condemned, \
     E in another cluster";

impl Report for StatusReport {
    fn show(&self, page: &mut Page) {
        let coordinator = &self.coordinator;
        let kept_by = match coordinator.kind {
            "etcd" => format!("etcd at {}", coordinator.address),
            _ if coordinator.address.is_empty() => "a node that is not known here".to_owned(),
            _ => format!(
                "the node at {}, generation {}",
                coordinator.address, coordinator.generation
            ),
        };
        let mut fields = vec![
            ("ring", format!("{} of cluster {}", self.ring_version, &self.cluster[..8])),
            ("kept by", kept_by),
            ("datasets", self.datasets_words()),
            ("replicas", format!("{} of each shard", self.replicas)),
        ];
        fields.extend(self.extra_words().map(|words| ("extra copies", words)));
        page.fields(&fields);
        page.line("");
        page.table(&self.table());
        page.line("");
        let legend = page.ink(Ink::Dim, LEGEND);
        page.line(&legend);
        for node in &self.nodes {
            if let Some(why) = &node.why {
                page.no_answer(&node.node, why);
            }
        }
        match &self.change {
            Some(change) => self.show_change(change, page),
            None if self.settling => {
                page.line("old copies are kept until their new owners have them");
            }
            None => {}
        }
    }
}

impl StatusReport {
    fn datasets_words(&self) -> String {
        let bytes = self.datasets.iter().map(|dataset| dataset.bytes).sum();
        let known = self.datasets.len() as u64;
        let text = format!("{}, {}", units::count(known), units::bytes(bytes));
        match known.saturating_sub(self.datasets_measured.into()) {
            0 => text,
            left => format!(
                "{text}; {} not open on {}, left out of OWNS",
                units::count(left),
                self.asked
            ),
        }
    }

    /// The shards on nodes that are none of their owners, if there are any.
    fn extra_words(&self) -> Option<String> {
        let counts = self.nodes.iter().filter_map(|node| match node.extra_copies {
            Some(count @ 1..) => Some(format!("{} on {}", units::count(count.into()), node.node)),
            _ => None,
        });
        let counts: Vec<String> = counts.collect();
        (!counts.is_empty()).then(|| counts.join(", "))
    }

    fn table(&self) -> TextTable {
        let mut table = TextTable::new(
            "| NODE | STATE | >WEIGHT | >OWNS | >RESIDENT | >ORPHANED | >RING | CONTROL",
        );
        for node in &self.nodes {
            table.row(row(node));
        }
        table
    }

    fn show_change(&self, change: &Change, page: &mut Page) {
        let said = &change.said;
        page.heading(&format!("Change {}: {}", said.number, words(&said.edits, said.replicas)));
        let done = said.bytes.saturating_sub(change.bytes_left);
        let percent = done * 100 / said.bytes.max(1);
        let speed = speed_words(said.rate);
        let mut fields = vec![
            (
                "moved",
                format!("{} of {}, {percent} %", units::bytes(done), units::bytes(said.bytes)),
            ),
            ("speed", if said.paused { format!("paused; else {speed}") } else { speed }),
        ];
        if let Some(seconds) = change.eta_seconds.filter(|_| change.bytes_left > 0) {
            fields.push(("left", format!("{} at that rate", units::time_left(seconds))));
        }
        fields.push(("asked by", said.asked_by.clone()));
        fields.push(("plan", format!("{:x}", said.plan_id)));
        page.fields(&fields);
        page.line("");
        let mut table = TextTable::new("NODE | >GETS | >LEFT |");
        for node in &self.nodes {
            let Some(progress) =
                node.progress.as_ref().filter(|progress| progress.to_come.shards > 0)
            else {
                continue;
            };
            let left = units::counted(progress.to_come.shards_left, "shard");
            let state = match (progress.settled, progress.gaps) {
                (true, 0) => "has all".to_owned(),
                (true, gaps) => format!("lacks {gaps}"),
                _ => progress.eta_seconds.map(units::time_left).unwrap_or_default(),
            };
            table.row([
                node.node.clone(),
                units::bytes(progress.to_come.bytes),
                format!("{} in {left}", units::bytes(progress.to_come.bytes_left)),
                state,
            ]);
        }
        page.table(&table);
    }
}

fn row(node: &NodeRow) -> [String; 9] {
    let dash = || "-".to_owned();
    let in_ring = node.owns > 0.0;
    let (resident, orphaned) = match &node.memory {
        Some(memory) => (units::bytes(memory.resident_bytes), units::bytes(memory.orphaned_bytes)),
        None => (dash(), dash()),
    };
    let state = match node.deadline_seconds {
        Some(limit) => format!("{}, for {}", node.state, units::seconds(limit)),
        None => node.state.to_owned(),
    };
    [
        node.letters.clone(),
        node.node.clone(),
        state,
        node.weight.to_string(),
        if in_ring { format!("{:.1} %", node.owns * 100.0) } else { dash() },
        resident,
        orphaned,
        if node.ring_version > 0 { node.ring_version.to_string() } else { dash() },
        node.control.clone(),
    ]
}
