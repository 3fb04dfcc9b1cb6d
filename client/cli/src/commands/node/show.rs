//! `larder node show`.

mod page;

use std::time::Duration;

use clap::Args;
use larder_client::{
    ErrorKind,
    admin::{Answer, FillFailure, NodeDescription, ShardCounts},
};
use serde::Serialize;

use super::snapshot_hex;
use crate::{
    context::Context,
    error::{Exit, Failure},
};

/// Shows one node: memory, load, counters, and the latest fills that gave up, with the reasons.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its name on the ring; see larder node ls
    node: String,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    node: String,
    control: String,
    boot_id: String,
    version: String,
    host: String,
    data: String,
    socket: String,
    draining: bool,
    uptime_seconds: f64,
    ring_version: u64,
    ring_digest: String,
    protocol_versions: [u32; 2],
    origins: Vec<String>,
    memory: Memory,
    load: Load,
    counters: Counters,
    shards: Shards,
    failures: Failures,
}

#[derive(Debug, Serialize)]
struct Memory {
    budget_bytes: u64,
    budget_source: String,
    resident_bytes: u64,
    filling_bytes: u64,
    orphaned_bytes: u64,
    page_size_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Load {
    data_connections: u32,
    socket_connections: u32,
    leases: u64,
    gathers: u32,
    fills_running: u32,
    fills_queued: u32,
    tickets: u32,
}

#[derive(Debug, Serialize)]
struct Counters {
    gathers: u64,
    rows_memory: u64,
    rows_origin: u64,
    sent_bytes: u64,
    attaches: u64,
    recalls: u64,
    fills_started: u64,
    fills_completed: u64,
    fills_failed: u64,
    origin_requests: u64,
    origin_bytes: u64,
    origin_retries: u64,
    evicted_shards: u64,
    evicted_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Shards {
    queued: u64,
    filling: u64,
    resident: u64,
    orphaned: u64,
}

#[derive(Debug, Serialize)]
struct Failures {
    /// Since the start of the node.
    total: u64,
    latest: Vec<GaveUp>,
}

#[derive(Debug, Serialize)]
struct GaveUp {
    shard: u32,
    snapshot: String,
    object: String,
    offset: u64,
    bytes: u64,
    kind: String,
    message: String,
    tries: u32,
    age_seconds: f64,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let cluster = context.cluster()?;
    let progress = context.progress(&format!("asking {}", arguments.node));
    let said = pick(cluster.describe(), &arguments.node)?;
    let shards = pick(cluster.shards(None), &arguments.node)?;
    let failures = pick(cluster.failures(), &arguments.node)?;
    drop(progress);
    let control = cluster.members().into_iter().find(|member| member.id == arguments.node);
    let control = control.map(|member| member.control).unwrap_or_default();
    context.output.print(&report(control, said, shards, failures))
}

/// The answer of the node with this name.
fn pick<T>(answers: Vec<Answer<T>>, node: &str) -> Result<T, Failure> {
    let names: Vec<_> = answers.iter().map(|answer| answer.member.id.clone()).collect();
    match answers.into_iter().find(|answer| answer.member.id == node) {
        Some(found) => Ok(found.answer?),
        None => Err(Failure::new(Exit::NotFound, format!("there is no node '{node}'"))
            .hint(format!("the ring has: {}", names.join(", ")))),
    }
}

fn report(
    control: String,
    said: NodeDescription,
    shards: ShardCounts,
    (latest, total): (Vec<FillFailure>, u64),
) -> NodeReport {
    let memory = said.memory.unwrap_or_default();
    let load = said.load.unwrap_or_default();
    NodeReport {
        node: said.node_id,
        control,
        boot_id: snapshot_hex(&said.boot_id),
        version: said.version,
        host: said.host,
        data: said.data_address,
        socket: said.socket_path,
        draining: said.draining,
        uptime_seconds: Duration::from_millis(said.uptime_ms).as_secs_f64(),
        ring_version: said.ring_version,
        ring_digest: format!("{:016x}", said.ring_digest),
        protocol_versions: [said.protocol_version_min, said.protocol_version_max],
        origins: said.origins,
        memory: Memory {
            budget_bytes: memory.budget_bytes,
            budget_source: memory.budget_source,
            resident_bytes: memory.resident_bytes,
            filling_bytes: memory.filling_bytes,
            orphaned_bytes: memory.orphaned_bytes,
            page_size_bytes: memory.page_size_bytes,
        },
        load: Load {
            data_connections: load.data_connections,
            socket_connections: load.socket_connections,
            leases: load.leases,
            gathers: load.gathers,
            fills_running: load.fills_running,
            fills_queued: load.fills_queued,
            tickets: load.tickets,
        },
        counters: counters(said.counters.unwrap_or_default()),
        shards: Shards {
            queued: shards.queued,
            filling: shards.filling,
            resident: shards.resident,
            orphaned: shards.orphaned,
        },
        failures: Failures { total, latest: latest.into_iter().map(gave_up).collect() },
    }
}

fn counters(said: larder_client::admin::Counters) -> Counters {
    Counters {
        gathers: said.gathers,
        rows_memory: said.rows_memory,
        rows_origin: said.rows_origin,
        sent_bytes: said.sent_bytes,
        attaches: said.attaches,
        recalls: said.recalls,
        fills_started: said.fills_started,
        fills_completed: said.fills_completed,
        fills_failed: said.fills_failed,
        origin_requests: said.origin_requests,
        origin_bytes: said.origin_bytes,
        origin_retries: said.origin_retries,
        evicted_shards: said.evicted_shards,
        evicted_bytes: said.evicted_bytes,
    }
}

fn gave_up(failure: FillFailure) -> GaveUp {
    let kind = u16::try_from(failure.kind).ok().and_then(ErrorKind::from_number);
    GaveUp {
        shard: failure.shard,
        snapshot: snapshot_hex(&failure.snapshot),
        object: failure.object,
        offset: failure.offset,
        bytes: failure.bytes,
        kind: kind.map_or("unknown", ErrorKind::name).to_owned(),
        message: failure.message,
        tries: failure.tries,
        age_seconds: Duration::from_millis(failure.age_ms).as_secs_f64(),
    }
}
