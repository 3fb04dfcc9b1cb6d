//! `larder node show`.

use std::time::Duration;

use clap::Args;
use larder_client::{
    Cluster,
    admin::{FillFailure, MemberAnswer, NodeDescription, ShardCounts},
};
use serde::Serialize;

use super::super::jobs;
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report, units},
};

/// Shows one node: memory, load, counters, and the latest fills that gave up, with the reasons.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its name on the ring; see larder node ls [default: the only node]
    node: Option<String>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    #[serde(flatten)]
    said: NodeDescription,
    control: String,
    protocol_versions: [u32; 2],
    shards: ShardCounts,
    failures: Failures,
}

#[derive(Debug, Serialize)]
struct Failures {
    /// Since the start of the node.
    total: u64,
    latest: Vec<FillFailure>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let cluster = context.cluster()?;
    let node = match &arguments.node {
        Some(node) => node.clone(),
        None => only(&cluster)?,
    };
    let progress = context.progress(&format!("asking {node}"));
    let said = pick(cluster.describe(), &node)?;
    let shards = pick(cluster.shards(None), &node)?;
    let (latest, total) = pick(cluster.failures(), &node)?;
    drop(progress);
    let control = cluster.members().into_iter().find(|member| member.id == node);
    context.output.print(&NodeReport {
        control: control.map(|member| member.control).unwrap_or_default(),
        protocol_versions: [said.protocol_version_min, said.protocol_version_max],
        said,
        shards,
        failures: Failures { total, latest },
    })
}

/// The name of the only node.
fn only(cluster: &Cluster) -> Result<String, Failure> {
    match &*cluster.members() {
        [member] => Ok(member.id.clone()),
        members => {
            let names: Vec<&str> = members.iter().map(|member| &*member.id).collect();
            let failure = Failure::new(Exit::Usage, "the ring has several nodes: name one");
            Err(failure.hint(format!("larder node show NODE, of {}", names.join(", "))))
        }
    }
}

/// The answer of the node with this name.
fn pick<T>(answers: Vec<MemberAnswer<T>>, node: &str) -> Result<T, Failure> {
    let names: Vec<_> = answers.iter().map(|answer| answer.member.id.clone()).collect();
    match answers.into_iter().find(|answer| answer.member.id == node) {
        Some(found) => Ok(found.answer?),
        None => Err(Failure::new(Exit::NotFound, format!("there is no node '{node}'"))
            .hint(format!("the ring has: {}", names.join(", ")))),
    }
}

impl Report for NodeReport {
    fn show(&self, page: &mut Page) {
        let said = &self.said;
        let uptime = units::duration(Duration::from_millis(said.uptime_ms));
        let state = if said.draining { "draining" } else { "up" };
        let mut fields = vec![
            ("node", format!("{} on {}, version {}", said.node_id, said.host, said.version)),
            ("state", format!("{state} for {uptime}")),
            ("control", self.control.clone()),
            ("data", said.data_address.clone()),
            ("socket", said.socket_path.clone()),
            ("origins", said.origins.join(", ")),
        ];
        fields.extend(said.origin_faults.iter().map(|fault| ("unusable", fault.clone())));
        let ring = format!("version {}, digest {:016x}", said.ring_version, said.ring_digest);
        fields.push(("ring", ring));
        page.fields(&fields);
        self.show_memory(page);
        jobs::show(page, &self.said.read_jobs);
        self.show_work(page);
        self.show_failures(page);
    }
}

impl NodeReport {
    fn show_memory(&self, page: &mut Page) {
        let memory = self.said.memory.clone().unwrap_or_default();
        page.heading("Memory");
        let budget =
            format!("{}, from {}", units::bytes(memory.budget_bytes), memory.budget_source);
        let resident = units::counted(self.shards.resident, "shard");
        let waiting = format!("{} filling, {} queued", self.shards.filling, self.shards.queued);
        page.fields(&[
            ("budget", budget),
            ("resident", format!("{} in {resident}", units::bytes(memory.resident_bytes))),
            ("filling", format!("{} ({waiting})", units::bytes(memory.filling_bytes))),
            (
                "orphaned",
                format!(
                    "{} in {} that clients still map",
                    units::bytes(memory.orphaned_bytes),
                    units::counted(self.shards.orphaned, "shard"),
                ),
            ),
            ("pages", units::bytes(memory.page_size_bytes)),
        ]);
    }

    fn show_work(&self, page: &mut Page) {
        let load = self.said.load.unwrap_or_default();
        let sums = self.said.counters.unwrap_or_default();
        page.heading("Now");
        page.fields(&[
            (
                "connections",
                format!(
                    "{} on the socket, {} over TCP, {}",
                    load.socket_connections,
                    load.data_connections,
                    units::counted(load.tickets.into(), "ticket"),
                ),
            ),
            ("leases", units::count(load.leases)),
            ("gathers", units::count(load.gathers.into())),
        ]);
        page.heading("Since its start");
        page.fields(&[
            (
                "gathers",
                format!(
                    "{}, {} rows from memory, {} from the origin, {} sent",
                    units::count(sums.gathers),
                    units::count(sums.rows_memory),
                    units::count(sums.rows_origin),
                    units::bytes(sums.sent_bytes),
                ),
            ),
            ("attaches", format!("{}, {} recalled", units::count(sums.attaches), sums.recalls)),
            (
                "fills",
                format!(
                    "{} done, {} gave up",
                    units::count(sums.fills_completed),
                    units::count(sums.fills_failed),
                ),
            ),
            (
                "origin",
                format!(
                    "{}, {}, {} retried",
                    units::counted(sums.origin_requests, "request"),
                    units::bytes(sums.origin_bytes),
                    units::count(sums.origin_retries),
                ),
            ),
            (
                "ahead",
                format!("{} fetched before a reader asked", units::bytes(sums.prefetched_bytes)),
            ),
            (
                "evicted",
                format!(
                    "{}, {}; {} for others needed sooner",
                    units::counted(sums.evicted_shards, "shard"),
                    units::bytes(sums.evicted_bytes),
                    units::count(sums.given_up_shards),
                ),
            ),
        ]);
    }

    fn show_failures(&self, page: &mut Page) {
        if self.failures.total == 0 {
            return;
        }
        page.heading(&format!("Fills that gave up ({})", units::count(self.failures.total)));
        for one in &self.failures.latest {
            let age = units::duration(Duration::from_millis(one.age_ms));
            let tries = units::counted(one.tries.into(), "try").replace("trys", "tries");
            page.line(&format!("shard {} {age} ago after {tries}: {}", one.shard, one.message));
        }
    }
}
