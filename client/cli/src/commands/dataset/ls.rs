//! `larder dataset ls`: lists the datasets that nodes have open, each with its bytes in the memory
//! of the whole cluster, and the jobs that read them; or the tags of a prefix.

mod tags;

use std::collections::BTreeMap;

use clap::Args;
use larder_client::admin::{DatasetStatus, MemberAnswer, NodeDescription, ReadJob};
use serde::Serialize;

use super::super::jobs;
use super::open::parse_prefix;
use crate::{
    context::Context,
    error::Failure,
    output::{Page, Report, TextTable, units},
};

/// Lists the datasets that the nodes of the cluster have open, and the jobs that read them.
///
/// With a prefix it lists tags and snapshots on the origin, and asks no node. It also lists those
/// in this user's cache, where they go if the prefix can't be written to.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A prefix to list the tags of: s3://bucket/prefix
    uri: Option<String>,

    /// Place of its manifests if not beside the data
    #[arg(long, value_name = "URI", requires = "uri")]
    manifest: Option<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.uri {
        Some(uri) => {
            let prefix = parse_prefix(uri, "as")?;
            tags::run(context, &prefix, arguments.manifest.as_deref())
        }
        None => list_open(context),
    }
}

#[derive(Debug, Serialize)]
struct DatasetsReport {
    datasets: Vec<DatasetRow>,
    jobs: Vec<ReadJob>,
    unreachable: Vec<Unreachable>,
}

#[derive(Debug, Serialize)]
struct DatasetRow {
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

fn list_open(context: &Context) -> Result<(), Failure> {
    let cluster = context.cluster()?;
    let progress = context.progress("asking the nodes");
    let (datasets, nodes) = (cluster.datasets(), cluster.describe());
    drop(progress);
    context.output.print(&report(datasets, nodes))
}

/// A node that did not answer.
#[derive(Debug, Serialize)]
struct Unreachable {
    node: String,
    control: String,
    why: String,
}

impl Unreachable {
    fn new(answer: &MemberAnswer<Vec<DatasetStatus>>) -> Option<Self> {
        let error = answer.answer.as_ref().err()?;
        let why = error.why().unwrap_or_else(|| error.what()).to_owned();
        Some(Self { node: answer.member.id.clone(), control: answer.member.control.clone(), why })
    }
}

fn report(
    answers: Vec<MemberAnswer<Vec<DatasetStatus>>>,
    nodes: Vec<MemberAnswer<NodeDescription>>,
) -> DatasetsReport {
    let unreachable = answers.iter().filter_map(Unreachable::new).collect();
    let mut datasets = BTreeMap::new();
    for MemberAnswer { member, answer } in answers {
        for status in answer.into_iter().flatten() {
            let key = (status.uri.clone(), format!("{:x}", status.snapshot));
            let dataset = datasets.entry(key).or_insert_with_key(|key| DatasetRow {
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
    let (datasets, jobs) = (datasets.into_values().collect(), jobs::of_cluster(nodes));
    DatasetsReport { datasets, jobs, unreachable }
}

impl Report for DatasetsReport {
    fn show(&self, page: &mut Page) {
        if self.datasets.is_empty() {
            page.line("no dataset is open on any node");
        } else {
            let mut table = TextTable::new(
                "DATASET | SNAPSHOT | >SAMPLES | >SIZE | >IN MEMORY | >NODES | >CONNECTIONS",
            );
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
            page.table(&table);
        }
        jobs::show(page, &self.jobs);
        if !self.unreachable.is_empty() {
            page.line("");
        }
        for Unreachable { node, control, why } in &self.unreachable {
            page.no_answer(&format!("{node} ({control})"), why);
        }
    }
}
