//! `larder node ls`.

use std::time::Duration;

use larder_client::admin::{MemberAnswer, NodeDescription};
use serde::Serialize;

use crate::{
    commands::operator::nodes_away,
    context::Context,
    error::Failure,
    output::{Page, Report, TextTable, units},
};

#[derive(Debug, Serialize)]
struct NodesReport {
    ring_version: u64,
    nodes: Vec<NodeRow>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: String,
    control: String,
    /// `up`, `draining` or `down`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
}

#[derive(Debug, Serialize)]
struct Facts {
    version: String,
    host: String,
    data: String,
    socket: String,
    uptime_seconds: f64,
    ring_version: u64,
    /// Nodes with different digests were started with different members.
    ring_digest: String,
    budget_bytes: u64,
    resident_bytes: u64,
    filling_bytes: u64,
    orphaned_bytes: u64,
    page_size_bytes: u64,
    data_connections: u32,
    socket_connections: u32,
    leases: u64,
    fills_running: u32,
    fills_queued: u32,
    fills_failed: u64,
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let cluster = context.cluster()?;
    let progress = context.progress("asking the nodes");
    let answers = cluster.describe();
    drop(progress);
    let nodes: Vec<NodeRow> = answers.into_iter().map(node).collect();
    let report = NodesReport { ring_version: cluster.ring_version(), nodes };
    context.output.print(&report)?;
    if let Some(disagreement) = report.disagreement() {
        context.output.warn(&disagreement);
    }
    match report.nodes.iter().filter(|node| node.state == "down").count() {
        0 => Ok(()),
        down => Err(nodes_away(down, report.nodes.len())),
    }
}

fn node(MemberAnswer { member, answer }: MemberAnswer<NodeDescription>) -> NodeRow {
    let (node, control) = (member.id, member.control);
    match answer {
        Ok(said) => NodeRow {
            node,
            control,
            state: if said.draining { "draining" } else { "up" },
            why: None,
            facts: Some(facts(said)),
        },
        Err(error) => {
            NodeRow { node, control, state: "down", why: Some(error.to_string()), facts: None }
        }
    }
}

fn facts(said: NodeDescription) -> Facts {
    let (memory, load) = (said.memory.unwrap_or_default(), said.load.unwrap_or_default());
    Facts {
        version: said.version,
        host: said.host,
        data: said.data_address,
        socket: said.socket_path,
        uptime_seconds: Duration::from_millis(said.uptime_ms).as_secs_f64(),
        ring_version: said.ring_version,
        ring_digest: format!("{:016x}", said.ring_digest),
        budget_bytes: memory.budget_bytes,
        resident_bytes: memory.resident_bytes,
        filling_bytes: memory.filling_bytes,
        orphaned_bytes: memory.orphaned_bytes,
        page_size_bytes: memory.page_size_bytes,
        data_connections: load.data_connections,
        socket_connections: load.socket_connections,
        leases: load.leases,
        fills_running: load.fills_running,
        fills_queued: load.fills_queued,
        fills_failed: said.counters.unwrap_or_default().fills_failed,
    }
}

impl NodesReport {
    /// Reports nodes that place shards differently: each byte is then held twice, without an error.
    fn disagreement(&self) -> Option<String> {
        let mut digests = self.nodes.iter().filter_map(|node| {
            let facts = node.facts.as_ref()?;
            Some((facts.ring_version, facts.ring_digest.as_str()))
        });
        let first = digests.next()?;
        digests.any(|other| other != first).then(|| {
            "the nodes do not agree on the members of the ring: each reads shards that another holds; \
             start all with the same --member list"
                .to_owned()
        })
    }
}

impl Report for NodesReport {
    fn show(&self, page: &mut Page) {
        let mut table = TextTable::new(
            "NODE | STATE | CONTROL | >MEMORY | >RESIDENT | >FILLING | >PAGES | >LEASES | >CONNECTIONS | >UP FOR",
        );
        for node in &self.nodes {
            let dash = || "-".to_owned();
            let cells = match &node.facts {
                None => [(); 7].map(|()| dash()),
                Some(facts) => [
                    units::bytes(facts.budget_bytes),
                    format!("{} ({})", units::bytes(facts.resident_bytes), facts.share()),
                    units::bytes(facts.filling_bytes),
                    units::bytes(facts.page_size_bytes),
                    units::count(facts.leases),
                    (facts.data_connections + facts.socket_connections).to_string(),
                    units::seconds(facts.uptime_seconds),
                ],
            };
            let names = [node.node.clone(), node.state.to_owned(), node.control.clone()];
            table.row(names.into_iter().chain(cells));
        }
        page.table(&table);
        page.line("");
        page.line(&format!("ring version {}", self.ring_version));
        for node in &self.nodes {
            if let Some(why) = &node.why {
                page.no_answer(&node.node, why);
            }
        }
    }
}

impl Facts {
    fn share(&self) -> String {
        let share = self.resident_bytes as f64 / self.budget_bytes.max(1) as f64;
        format!("{:.0} %", share * 100.0)
    }
}
