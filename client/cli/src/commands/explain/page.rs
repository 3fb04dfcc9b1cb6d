//! Shows a shard on a page.

use std::time::Duration;

use super::{ExplainReport, Facts, Node};
use crate::output::{Align, Page, Report, Table, units};

impl Report for ExplainReport {
    fn show(&self, page: &mut Page) {
        let mut fields = Vec::new();
        if let Some(sample) = self.sample {
            fields.push(("asked", format!("sample {}", units::count(sample))));
        }
        match &self.of {
            Some(facts) => fields.push(("shard", described(facts))),
            None => fields
                .push(("shard", "of no dataset that is open on a node that answers".to_owned())),
        }
        fields.push(("id", self.shard_id.clone()));
        fields.push(("place", self.place.clone()));
        let owners = format!("{}, by ring {}", self.owners.join(", "), self.ring_version);
        let planned = if self.excepted {
            format!("; a plan decided so, the walk says {}", self.ring_owners.join(", "))
        } else {
            String::new()
        };
        fields.push(("owned by", owners + &planned));
        if let Some(previous) = &self.previous {
            let owners = previous.owners.join(", ");
            fields.push(("before", format!("{owners}, by ring {}", previous.ring_version)));
        }
        page.fields(&fields);
        page.line("");
        page.table(table(&self.nodes));
    }
}

fn described(facts: &Facts) -> String {
    let last = facts.first_sample + u64::from(facts.samples.max(1)) - 1;
    format!(
        "shard {} of {} ({}): samples {} to {}, {}",
        facts.shard,
        facts.uri,
        &facts.snapshot[..8.min(facts.snapshot.len())],
        units::count(facts.first_sample),
        units::count(last),
        units::bytes(facts.bytes)
    )
}

fn table(nodes: &[Node]) -> Table {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("OWNS IT", Align::Left),
        ("HERE", Align::Left),
        ("FOR", Align::Right),
        ("LEASES", Align::Right),
        ("WHY", Align::Left),
    ]);
    for node in nodes {
        let age = node.age_seconds.map(|seconds| units::duration(Duration::from_secs_f64(seconds)));
        let state = match node.bytes_ready {
            Some(bytes) => format!("{}, {} in", node.state, units::bytes(bytes)),
            None => node.state.to_owned(),
        };
        table.row([
            node.node.clone(),
            if node.owner { "yes" } else { "" }.to_owned(),
            state,
            age.unwrap_or_else(|| "-".to_owned()),
            node.leases.to_string(),
            node.why.clone().unwrap_or_default(),
        ]);
    }
    table
}
