//! The figures of a plan, on a page and as JSON.

use std::time::Duration;

use larder_client::admin::{NodeFigures, PlanFigures};
use serde::Serialize;

use super::words;
use crate::output::{Ink, Page, TextTable, units};

/// A plan in numbers.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    #[serde(flatten)]
    pub(super) said: PlanFigures,
    /// `bytes` divided by `bytes_ideal`; absent if the ideal is to move nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_ideal: Option<f64>,
    /// Bytes that come from nodes. Otherwise they would be read again from the origin.
    origin_bytes_avoided: u64,
    /// The largest ratio of a node's bytes to its share: 1 is perfectly even. Absent if nothing is
    /// owned.
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_before: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_after: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    /// At that rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    eta_seconds: Option<f64>,
}

impl Figures {
    pub(super) fn new(said: PlanFigures, rate: Option<u64>) -> Self {
        let share = || said.bytes as f64 / said.bytes_ideal as f64;
        Self {
            share_of_ideal: (said.bytes_ideal > 0).then(share),
            origin_bytes_avoided: said.bytes.saturating_sub(said.bytes_from_origin),
            skew_before: skew(&said.nodes, |node| (node.weight_before, node.owned_bytes_before)),
            skew_after: skew(&said.nodes, |node| (node.weight, node.owned_bytes)),
            rate,
            eta_seconds: rate.map(|rate| eta(&said.nodes, rate).as_secs_f64()),
            said,
        }
    }

    /// The hash of the plan.
    pub(super) fn plan(&self) -> String {
        format!("{:x}", self.said.plan_id)
    }

    pub(super) fn words(&self) -> String {
        words(&self.said.edits, self.said.replicas)
    }

    pub(super) fn show(&self, page: &mut Page) {
        let moves = format!(
            "{}, {}",
            units::counted(self.said.moves, "shard"),
            units::bytes(self.said.bytes)
        );
        let ideal = match self.share_of_ideal {
            Some(share) => format!("{} ({share:.2} x)", units::bytes(self.said.bytes_ideal)),
            None => "nothing".to_owned(),
        };
        let skew = |skew: Option<f64>| skew.map_or("-".to_owned(), |skew| format!("{skew:.2}"));
        let skews = (skew(self.skew_before), skew(self.skew_after));
        let from_nodes = units::bytes(self.origin_bytes_avoided);
        let from_origin = units::bytes(self.said.bytes_from_origin);
        let mut fields = vec![
            ("plan", page.ink(Ink::Bold, &self.plan())),
            ("change", format!("{}; for ring {}", self.words(), self.said.ring_version)),
            ("moves", moves),
            ("ideal", ideal),
            ("skew", format!("{} before, {} after; 1 is even", skews.0, skews.1)),
            (
                "origin",
                format!("{from_nodes} come from nodes instead, {from_origin} from the origin"),
            ),
        ];
        if let (Some(rate), Some(seconds)) = (self.rate, self.eta_seconds)
            && self.said.bytes > 0
        {
            let time = units::time_left(seconds);
            fields.push(("takes", format!("{time} at {}/s", units::bytes(rate))));
        }
        page.fields(&fields);
        page.line("");
        page.table(&self.table());
        if let Some(words) = self.copies_words() {
            page.line("");
            page.line(&words);
        }
        if self.said.datasets_measured < self.said.datasets {
            let missing = self.said.datasets - self.said.datasets_measured;
            page.line("");
            page.line(&format!(
                "what nodes own leaves out {}, not open on the node that was asked",
                units::counted(missing.into(), "dataset")
            ));
        }
    }

    /// The copies that appear or disappear without a move, in words.
    fn copies_words(&self) -> Option<String> {
        self.said.replicas?;
        let owned = |of: fn(&NodeFigures) -> u64| self.said.nodes.iter().map(of).sum::<u64>();
        let (before, after) =
            (owned(|node| node.owned_bytes_before), owned(|node| node.owned_bytes));
        let added = after.saturating_sub(before);
        Some(if added > 0 {
            format!(
                "owners fill further replicas afterwards, in the background, of shards that are read, where \
                 there is room: at most {}",
                units::bytes(added)
            )
        } else {
            "nodes drop replicas without an owner when they need the room".to_owned()
        })
    }

    fn table(&self) -> TextTable {
        let mut table = TextTable::new("NODE | >WEIGHT | >OWNS | >AFTER | >GETS | >GIVES");
        for node in &self.said.nodes {
            let weight = match (node.weight_before, node.weight) {
                (before, after) if before == after => after.to_string(),
                (0, after) => format!("new: {after}"),
                (before, 0) => format!("{before}, leaves"),
                (before, after) => format!("{before}, then {after}"),
            };
            table.row([
                node.node_id.clone(),
                weight,
                units::bytes(node.owned_bytes_before),
                units::bytes(node.owned_bytes),
                units::bytes(node.bytes_in),
                units::bytes(node.bytes_out),
            ]);
        }
        table
    }
}

/// The largest ratio of a node's bytes to its share by weight.
fn skew(nodes: &[NodeFigures], of: impl Fn(&NodeFigures) -> (u32, u64)) -> Option<f64> {
    let weights: f64 = nodes.iter().map(|node| f64::from(of(node).0)).sum();
    let total: f64 = nodes.iter().map(|node| of(node).1 as f64).sum();
    let ratio = |node: &NodeFigures| {
        let (weight, owned) = of(node);
        (weight > 0).then(|| owned as f64 * weights / (f64::from(weight) * total))
    };
    (total > 0.0).then(|| nodes.iter().filter_map(ratio).fold(0.0, f64::max))
}

/// The time that the moves take at a rate. All targets get equal parts of the rate, so the target
/// with the most bytes ends last.
fn eta(nodes: &[NodeFigures], rate: u64) -> Duration {
    let receivers = nodes.iter().filter(|node| node.bytes_in > 0).count();
    let most = nodes.iter().map(|node| node.bytes_in).max().unwrap_or(0);
    Duration::try_from_secs_f64(most as f64 * receivers as f64 / rate.max(1) as f64)
        .unwrap_or(Duration::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use larder_client::admin::ChangeEdit;

    pub(in super::super) fn said() -> PlanFigures {
        let node =
            |id: &str, weights: (u32, u32), owned: (u64, u64), bytes_in, bytes_out| NodeFigures {
                node_id: id.to_owned(),
                weight_before: weights.0,
                weight: weights.1,
                owned_bytes_before: owned.0 << 30,
                owned_bytes: owned.1 << 30,
                bytes_in,
                bytes_out,
            };
        PlanFigures {
            plan_id: vec![0xab; 16].into(),
            ring_version: 7,
            edits: vec![ChangeEdit { node_id: "c".to_owned(), weight: 1, weight_before: 0 }],
            moves: 960,
            bytes: 60 << 30,
            bytes_from_origin: 0,
            bytes_ideal: 50 << 30,
            nodes: vec![
                node("a", (1, 1), (90, 50), 0, 40 << 30),
                node("b", (1, 1), (60, 40), 0, 20 << 30),
                node("c", (0, 1), (0, 60), 60 << 30, 0),
            ],
            datasets: 2,
            datasets_measured: 1,
            replicas: None,
        }
    }

    #[test]
    fn figures_compare_a_plan_with_the_ideal() {
        let figures = Figures::new(said(), Some(1 << 30));
        assert_eq!(figures.share_of_ideal, Some(1.2));
        assert_eq!(figures.skew_before, Some(1.2));
        assert_eq!(figures.skew_after, Some(1.2));
        assert_eq!(figures.eta_seconds, Some(60.0));
        let mut page = Page::new(false, false);
        figures.show(&mut page);
        let shown = page.text();
        for expected in [
            "c joins; for ring 7",
            "960 shards, 60 GiB",
            "50 GiB (1.20 x)",
            "1.20 before",
            "60 GiB come from nodes",
            "1 min 0 s at 1.0 GiB/s",
            "new: 1",
            "leaves out 1 dataset",
        ] {
            assert!(shown.contains(expected), "{expected:?} is missing in\n{shown}");
        }
    }

    #[test]
    fn figures_show_later_copies_beside_the_moves() {
        let page = |said: PlanFigures| {
            let mut page = Page::new(false, false);
            Figures::new(said, None).show(&mut page);
            page.text().to_owned()
        };
        let more = page(PlanFigures { edits: Vec::new(), replicas: Some(2), ..said() });
        assert!(more.contains("2 replicas of each shard; for ring 7"), "{more}");
        assert!(more.contains("when they need the room"), "{more}");
        let mut said = PlanFigures { edits: Vec::new(), replicas: Some(2), ..said() };
        said.nodes[0].owned_bytes += 150 << 30;
        assert!(page(said).contains("at most 150 GiB"));
    }

    #[test]
    fn empty_plan_has_no_ratios() {
        let nothing = PlanFigures { bytes: 0, bytes_ideal: 0, nodes: Vec::new(), ..said() };
        let figures = Figures::new(nothing, None);
        assert_eq!((figures.share_of_ideal, figures.skew_after), (None, None));
        figures.show(&mut Page::new(false, false));
    }
}
