//! Lists the datasets that nodes have open, each with its bytes in the memory of the whole cluster.

use std::collections::BTreeMap;

use larder_client::admin::{Answer, DatasetStatus};
use serde::Serialize;

use crate::{
    commands::node::{Unreachable, snapshot_hex, unreachable},
    context::Context,
    error::Failure,
    output::{Align, Page, Report, Table, units},
};

#[derive(Debug, Serialize)]
struct DatasetsReport {
    datasets: Vec<Dataset>,
    unreachable: Vec<Unreachable>,
}

#[derive(Debug, Serialize)]
struct Dataset {
    uri: String,
    snapshot: String,
    samples: u64,
    shards: u32,
    bytes: u64,
    /// The sum over all nodes. A shard that two nodes hold counts twice.
    resident_shards: u64,
    resident_bytes: u64,
    sessions: u64,
    nodes: Vec<OnNode>,
}

#[derive(Debug, Serialize)]
struct OnNode {
    node: String,
    resident_shards: u32,
    resident_bytes: u64,
    sessions: u32,
    idle_ms: u64,
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let cluster = context.cluster()?;
    let progress = context.progress("asking the nodes");
    let answers = cluster.datasets();
    drop(progress);
    context.output.print(&report(answers))
}

fn report(answers: Vec<Answer<Vec<DatasetStatus>>>) -> DatasetsReport {
    let unreachable = unreachable(&answers);
    let mut datasets = BTreeMap::new();
    for Answer { member, answer } in answers {
        for status in answer.into_iter().flatten() {
            let key = (status.uri.clone(), snapshot_hex(&status.snapshot));
            let dataset = datasets.entry(key).or_insert_with_key(|key| Dataset {
                uri: key.0.clone(),
                snapshot: key.1.clone(),
                samples: status.samples,
                shards: status.shards,
                bytes: status.bytes,
                resident_shards: 0,
                resident_bytes: 0,
                sessions: 0,
                nodes: Vec::new(),
            });
            dataset.resident_shards += u64::from(status.resident_shards);
            dataset.resident_bytes += status.resident_bytes;
            dataset.sessions += u64::from(status.sessions);
            dataset.nodes.push(OnNode {
                node: member.id.clone(),
                resident_shards: status.resident_shards,
                resident_bytes: status.resident_bytes,
                sessions: status.sessions,
                idle_ms: status.idle_ms,
            });
        }
    }
    DatasetsReport { datasets: datasets.into_values().collect(), unreachable }
}

impl Report for DatasetsReport {
    fn show(&self, page: &mut Page) {
        if self.datasets.is_empty() {
            page.line("no dataset is open on any node");
        } else {
            let mut table = Table::new(&[
                ("DATASET", Align::Left),
                ("SNAPSHOT", Align::Left),
                ("SAMPLES", Align::Right),
                ("SIZE", Align::Right),
                ("IN MEMORY", Align::Right),
                ("NODES", Align::Right),
                ("SESSIONS", Align::Right),
            ]);
            for dataset in &self.datasets {
                table.row([
                    dataset.uri.clone(),
                    dataset.snapshot[..12.min(dataset.snapshot.len())].to_owned(),
                    units::count(dataset.samples),
                    units::bytes(dataset.bytes),
                    format!("{}/{}", dataset.resident_shards, dataset.shards),
                    dataset.nodes.len().to_string(),
                    dataset.sessions.to_string(),
                ]);
            }
            page.table(table);
        }
        Unreachable::show_all(&self.unreachable, page);
    }
}
