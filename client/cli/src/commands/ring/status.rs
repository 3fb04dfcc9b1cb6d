//! `larder ring status`.

mod page;

use std::time::Duration;

use larder_client::admin::{
    ClusterChange, ClusterDataset, ClusterNode, ClusterStatus, CoordinatorKind, MoveProgress,
    NodeAnswers, NodeState,
};
use serde::Serialize;

use crate::{
    commands::operator::{failed, nodes_away, onlooker},
    context::Context,
    error::{Exit, Failure},
};

#[derive(Debug, Serialize)]
struct StatusReport {
    /// Names the cluster.
    cluster: String,
    /// The node that answered.
    asked: String,
    coordinator: Coordinator,
    ring_version: u64,
    /// The number of owners of each shard, if there are enough nodes.
    replicas: u32,
    /// More than a quarter of the ring is silent: only an operator can remove nodes.
    braked: bool,
    /// Old copies are kept until new owners have theirs.
    settling: bool,
    /// Whether all nodes that answer place shards alike.
    agree: bool,
    nodes: Vec<NodeRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    datasets: Vec<ClusterDataset>,
    /// The datasets that the owned bytes are counted over.
    datasets_measured: u32,
}

#[derive(Debug, Serialize)]
struct Coordinator {
    /// `node`, `etcd` or `unknown`.
    kind: &'static str,
    address: String,
    generation: u64,
    /// Why it changes nothing, by the node in `asked` or by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    away: Option<String>,
    /// Nodes that answer and do not reach it.
    unreached_by: Vec<String>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: String,
    /// `joining`, `active`, `draining`, `down`, `held`, `condemned`, or `elsewhere` (it is a node
    /// of another cluster).
    state: &'static str,
    /// Two letters: U announced or D silent, then the letter of its state.
    letters: String,
    announced: bool,
    weight: u32,
    /// Its part of all owned bytes, from 0 to 1; by weight if no dataset is open.
    owns: f64,
    owned_bytes: u64,
    /// The ring version at which it entered its state.
    since: u64,
    /// The ring that it uses.
    ring_version: u64,
    control: String,
    host: String,
    zone: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_seconds: Option<f64>,
    /// Why it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(flatten)]
    memory: Option<NodeMemory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<RemainingMoves>,
    /// Resident shards that it does not own, as a stand-in of an owner has.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_copies: Option<u32>,
}

#[derive(Debug, Serialize)]
struct NodeMemory {
    budget_bytes: u64,
    resident_bytes: u64,
    filling_bytes: u64,
    orphaned_bytes: u64,
    ring_digest: String,
}

/// The shards that a change still moves to a node.
#[derive(Debug, Serialize)]
struct RemainingMoves {
    #[serde(flatten)]
    to_come: MoveProgress,
    /// At the rate of the change, if it has a rate and is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    eta_seconds: Option<f64>,
    settled: bool,
    /// Shards that it could not get.
    gaps: u32,
}

#[derive(Debug, Serialize)]
struct Change {
    #[serde(flatten)]
    said: ClusterChange,
    /// The sum over the nodes that answer.
    bytes_left: u64,
    /// At its rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    eta_seconds: Option<f64>,
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let operator = onlooker(context)?;
    let progress = context.progress("asking the nodes");
    let status = operator.status().map_err(|error| {
        let failure = failed("the ring can't be shown", error);
        match failure.hint {
            None => failure.hint("larder node ls shows the nodes of a ring that does not change"),
            Some(_) => failure,
        }
    })?;
    let addresses: Vec<(String, String)> = status
        .nodes
        .iter()
        .filter_map(|node| node.member.as_ref())
        .map(|member| (member.id.clone(), member.control.clone()))
        .collect();
    let seen = operator.look(&addresses);
    drop(progress);
    if status.cluster.is_empty() {
        return Err(no_record(&status));
    }
    let report = report(status, &seen);
    context.output.print(&report)?;
    report.warnings().iter().for_each(|warning| context.output.warn(warning));
    match report.nodes.iter().filter(|node| node.why.is_some()).count() {
        0 => Ok(()),
        down => Err(nodes_away(down, report.nodes.len())),
    }
}

/// The failure of a node that knows no cluster to show.
fn no_record(status: &ClusterStatus) -> Failure {
    let what = format!("node {} has not seen the record of its cluster yet", status.node_id);
    let failure = Failure::new(Exit::Unavailable, what).hint(
        "wait until it has joined; its log says why it has not, or ask another node with --cluster",
    );
    if status.away.is_empty() { failure } else { failure.why(&status.away) }
}

fn report(status: ClusterStatus, seen: &[NodeAnswers]) -> StatusReport {
    let coordinator = coordinator(&status, seen);
    let owned: u64 = status.nodes.iter().map(|node| node.owned_bytes).sum();
    let in_ring = |node: &&ClusterNode| is_in_ring(node.state());
    let weights: u64 = status.nodes.iter().filter(in_ring).map(weight).sum();
    let share = |node: &ClusterNode| match (owned, in_ring(&node)) {
        (_, false) => 0.0,
        (0, _) => weight(node) as f64 / weights.max(1) as f64,
        _ => node.owned_bytes as f64 / owned as f64,
    };
    let pair = |said: &ClusterNode| {
        let id = said.member.as_ref().map(|member| &member.id);
        let seen = seen.iter().find(|seen| Some(&seen.id) == id);
        let standing = seen.and_then(|seen| seen.standing.as_ref().ok());
        let cluster = standing.map_or(&status.cluster, |standing| &standing.cluster);
        let row = node(said, share(said), seen, status.change.as_ref());
        if cluster.is_empty() || *cluster == status.cluster {
            return row;
        }
        NodeRow { state: "elsewhere", letters: "DE".to_owned(), ring_version: 0, ..row }
    };
    let nodes: Vec<NodeRow> = status.nodes.iter().map(pair).collect();
    let change = status.change.map(|said| change(said, &nodes));
    let mut report = StatusReport {
        cluster: format!("{:x}", status.cluster),
        asked: status.node_id,
        coordinator,
        ring_version: status.ring_version,
        replicas: status.replicas.max(1),
        braked: status.braked,
        settling: status.settling,
        agree: true,
        nodes,
        change,
        datasets: status.datasets,
        datasets_measured: status.datasets_measured,
    };
    report.agree = report.disagreement().is_none();
    report
}

fn coordinator(status: &ClusterStatus, seen: &[NodeAnswers]) -> Coordinator {
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    let why_away = |seen: &NodeAnswers| given(&seen.standing.as_ref().ok()?.away);
    let mut members = status.nodes.iter().filter_map(|node| node.member.as_ref());
    let its_member = members.find(|member| member.control == status.coordinator_address);
    let itself = |seen: &&NodeAnswers| its_member.is_some_and(|member| member.id == seen.id);
    let unreached = seen.iter().filter(|seen| !itself(seen) && why_away(seen).is_some());
    Coordinator {
        kind: match status.coordinator() {
            CoordinatorKind::Node => "node",
            CoordinatorKind::Etcd => "etcd",
            CoordinatorKind::Unspecified => "unknown",
        },
        address: status.coordinator_address.clone(),
        generation: status.generation,
        away: given(&status.away).or_else(|| seen.iter().find(itself).and_then(why_away)),
        unreached_by: unreached.map(|seen| seen.id.clone()).collect(),
    }
}

fn node(
    said: &ClusterNode,
    owns: f64,
    seen: Option<&NodeAnswers>,
    change: Option<&ClusterChange>,
) -> NodeRow {
    let member = said.member.clone().unwrap_or_default();
    let (state, letter) = state(said.state());
    let described = seen.map(|seen| &seen.description);
    let standing = seen.and_then(|seen| seen.standing.as_ref().ok());
    NodeRow {
        node: member.id,
        state,
        letters: format!("{}{letter}", if said.announced { 'U' } else { 'D' }),
        announced: said.announced,
        weight: member.weight,
        owns,
        owned_bytes: said.owned_bytes,
        since: said.since,
        ring_version: standing.map_or(said.ring_version, |standing| standing.installed),
        control: member.control,
        host: member.host,
        zone: member.zone,
        deadline_seconds: said.deadline_ms.map(|ms| Duration::from_millis(ms).as_secs_f64()),
        why: described.and_then(|described| described.as_ref().err()).map(ToString::to_string),
        memory: described.and_then(|described| described.as_ref().ok()).map(|node| {
            let memory = node.memory.clone().unwrap_or_default();
            NodeMemory {
                budget_bytes: memory.budget_bytes,
                resident_bytes: memory.resident_bytes,
                filling_bytes: memory.filling_bytes,
                orphaned_bytes: memory.orphaned_bytes,
                ring_digest: format!("{:016x}", node.ring_digest),
            }
        }),
        progress: standing.and_then(|standing| standing.progress).map(|to_come| RemainingMoves {
            eta_seconds: change.and_then(|change| seconds_for(to_come.bytes_left, change)),
            settled: said.settled,
            gaps: said.gaps,
            to_come,
        }),
        extra_copies: standing.map(|standing| standing.extra_copies),
    }
}

/// The time that a target takes for `bytes`, if the change has a rate. All targets get equal parts
/// of the rate.
fn seconds_for(bytes: u64, change: &ClusterChange) -> Option<f64> {
    let rate = change.rate.filter(|_| !change.paused)?;
    Some(bytes as f64 * f64::from(change.receivers.max(1)) / rate.max(1) as f64)
}

fn change(said: ClusterChange, nodes: &[NodeRow]) -> Change {
    let left = || nodes.iter().filter_map(|node| Some(node.progress.as_ref()?.to_come.bytes_left));
    // The target with the most bytes left ends last.
    let eta_seconds = seconds_for(left().max().unwrap_or(0), &said);
    Change { bytes_left: left().sum(), eta_seconds, said }
}

fn weight(node: &ClusterNode) -> u64 {
    node.member.as_ref().map_or(0, |member| member.weight.into())
}

fn is_in_ring(state: NodeState) -> bool {
    matches!(state, NodeState::Active | NodeState::Draining | NodeState::Condemned)
}

/// A state as a word and as a letter.
fn state(state: NodeState) -> (&'static str, char) {
    match state {
        NodeState::Joining => ("joining", 'J'),
        NodeState::Active => ("active", 'A'),
        NodeState::Draining => ("draining", 'L'),
        NodeState::Down => ("down", 'O'),
        NodeState::Held => ("held", 'H'),
        NodeState::Condemned => ("condemned", 'C'),
        NodeState::Unspecified => ("unknown", '?'),
    }
}

impl StatusReport {
    /// How the nodes that answer disagree, if they do.
    fn disagreement(&self) -> Option<String> {
        let told = self.nodes.iter().filter_map(|node| {
            let digest = &node.memory.as_ref()?.ring_digest;
            (node.ring_version > 0).then_some((node, digest))
        });
        let told: Vec<_> = told.collect();
        let behind = told.iter().filter(|(node, _)| node.ring_version != self.ring_version);
        let behind: Vec<String> = behind
            .map(|(node, _)| format!("{} goes by ring {}", node.node, node.ring_version))
            .collect();
        if !behind.is_empty() {
            return Some(format!(
                "the committed ring is {}, but {}; reads go on, each node turns to it when it hears of it",
                self.ring_version,
                behind.join(", ")
            ));
        }
        let mut digests = told.iter().map(|(_, digest)| digest);
        let first = digests.next()?;
        digests.any(|digest| digest != first).then(|| {
            format!(
                "nodes place shards differently by the same ring {}: restart those of another version than the rest",
                self.ring_version
            )
        })
    }

    /// The warnings for an operator.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.braked {
            warnings.push(
                "more than a quarter of the ring is silent: nobody is removed on its own; bring the nodes back, or \
                 give them up with larder ring remove NODE.."
                    .to_owned(),
            );
        }
        if let Some(why) = &self.coordinator.away {
            warnings.push(format!(
                "the coordinator changes nothing ({why}): members stay as they are until it does; reads go on"
            ));
        } else if !self.coordinator.unreached_by.is_empty() {
            let nodes = self.coordinator.unreached_by.join(", ");
            warnings.push(format!("the coordinator is not reached by {nodes}"));
        }
        warnings.extend(self.disagreement());
        for node in &self.nodes {
            let gaps = node.progress.as_ref().map_or(0, |progress| progress.gaps);
            if gaps > 0 {
                warnings.push(format!("{} could not take {gaps} shards: it has no room, or the origin has them no more", node.node));
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
