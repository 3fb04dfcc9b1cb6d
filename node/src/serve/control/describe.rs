//! Describes a node at this moment.

use bytes::Bytes;
use larder_extent::PageSize;
use larder_wire::control::{Counters, Load, MemoryUse, NodeDescription, ReadJob as ReadJobMessage};
use larder_wire::data::PROTOCOL_VERSIONS;

use crate::cache::MemoryUsage;
use crate::clock;
use crate::plans::ReadJob;
use crate::serve::Context;
use crate::serve::control::saturated;

/// Jobs of read plans that a node lists.
const READ_JOBS_SHOWN_MAX: usize = 256;

pub(super) fn describe(context: &Context) -> NodeDescription {
    let shared = &context.shared;
    let usage = shared.cache.usage();
    let placements = shared.placements.load();
    let ring = placements.ring();
    let uptime = clock::now().saturating_duration_since(context.started);
    NodeDescription {
        node_id: shared.config.node_id.clone(),
        boot_id: Bytes::copy_from_slice(&shared.boot_id),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_address: context.data_address.clone(),
        socket_path: context.socket_path.display().to_string(),
        ring_version: ring.version(),
        ring_digest: placements.digest(),
        host: shared.config.host.clone(),
        protocol_version_min: u32::from(*PROTOCOL_VERSIONS.start()),
        protocol_version_max: u32::from(*PROTOCOL_VERSIONS.end()),
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        draining: context.stop.is_given() || shared.stopping.is_cancelled(),
        origins: shared.catalog.prefixes().iter().map(ToString::to_string).collect(),
        origin_faults: shared.origin_faults.load().to_vec(),
        memory: Some(memory(context, &usage)),
        counters: Some(counters(context, &usage)),
        load: Some(load(context, &usage)),
        read_jobs: read_jobs(context),
    }
}

fn read_jobs(context: &Context) -> Vec<ReadJobMessage> {
    let (jobs, open) = (context.shared.plans.jobs(clock::now()), context.shared.catalog.list());
    let uri = |snapshot| {
        let dataset = open.iter().find(|dataset| dataset.snapshot() == snapshot);
        dataset.map(|dataset| dataset.uri().to_string()).unwrap_or_default()
    };
    let shown = jobs.into_iter().take(READ_JOBS_SHOWN_MAX);
    let message = |job: ReadJob| ReadJobMessage {
        job: job.name.to_string(),
        snapshot: Bytes::copy_from_slice(job.snapshot.as_bytes()),
        uri: uri(job.snapshot),
        pass: job.pass,
        windows: job.keys.windows(),
        slowest_window: job.slowest,
        fastest_window: job.fastest,
        loaders: job.loaders,
        rate: job.rate,
        set_aside: context.shared.plans.is_set_aside(job.snapshot),
    };
    shown.map(message).collect()
}

fn memory(context: &Context, usage: &MemoryUsage) -> MemoryUse {
    let given = context.shared.config.memory.is_some();
    MemoryUse {
        budget_bytes: usage.limit_bytes,
        resident_bytes: usage.resident.bytes,
        filling_bytes: usage.filling.bytes,
        orphaned_bytes: usage.orphaned.bytes,
        page_size_bytes: usage.page_size.map_or(0, PageSize::bytes),
        budget_source: if given { "--memory" } else { "the host's or cgroup's memory" }.to_owned(),
    }
}

fn counters(context: &Context, usage: &MemoryUsage) -> Counters {
    let (served, fills) = (&context.activity, &context.shared.counters);
    Counters {
        rows_memory: served.rows_memory.get(),
        rows_origin: served.rows_origin.get(),
        gathers: served.gathers.get(),
        sent_bytes: served.sent_bytes.get(),
        attaches: served.attaches.get(),
        origin_requests: fills.origin_requests.get(),
        origin_bytes: fills.origin_bytes.get(),
        origin_retries: fills.origin_retries.get(),
        fills_started: fills.fills_completed.get() + fills.fills_failed.get() + running(usage),
        fills_completed: fills.fills_completed.get(),
        fills_failed: fills.fills_failed.get(),
        evicted_shards: fills.evictions.get(),
        evicted_bytes: fills.evicted_bytes.get(),
        recalls: served.recalls.get(),
        prefetched_bytes: fills.prefetched_bytes.get(),
        given_up_shards: usage.given_up_count,
    }
}

fn load(context: &Context, usage: &MemoryUsage) -> Load {
    Load {
        data_connections: saturated(context.data.count()),
        socket_connections: saturated(context.local.count()),
        leases: context.clients.leases(),
        gathers: saturated(context.activity.gathering.get()),
        fills_running: saturated(running(usage)),
        fills_queued: saturated(usage.queued),
        tickets: 1,
    }
}

/// Returns the number of fills that a worker has begun.
fn running(usage: &MemoryUsage) -> u64 {
    usage.filling.shards.saturating_sub(usage.queued) as u64
}
