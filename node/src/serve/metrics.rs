//! The metrics of a node: every name, unit and label in one place.
//!
//! The data path records no metric. Counts are kept where they arise, and copied here on each
//! scrape. All metrics have the label `node`, because a process may hold several nodes.
//!
//! Thread rule: any thread. Non-goal: history, which Prometheus keeps.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::{Activity, Context};
use crate::LOG_LINES_DROPPED;
use crate::cache::{Counters, MemoryUsage};
use crate::clock;
use crate::cluster::Standing;

/// A metric: its name, its meaning, and a function that reads it.
type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);

const SERVED: &[Metric<Activity>] = &[
    ("larder_gathers_total", "gathers answered, failed ones included", |a| a.gathers.get()),
    ("larder_gathers_failed_total", "gathers that ended in an error", |a| a.gathers_failed.get()),
    ("larder_sent_bytes_total", "payload sent in bytes", |a| a.sent_bytes.get()),
    ("larder_peer_sent_bytes_total", "bytes of shards sent to other nodes", |a| a.peer_bytes.get()),
    ("larder_attaches_total", "descriptors handed out", |a| a.attaches.get()),
    ("larder_recalls_total", "times a client was asked to drop a map", |a| a.recalls.get()),
    ("larder_reaped_total", "clients whose leases ended with their process", |a| a.reaped.get()),
    ("larder_refused_total", "connections refused in their handshake", |a| a.refused.get()),
    ("larder_log_lines_dropped_total", "log lines that could not be written", |_| {
        LOG_LINES_DROPPED.load(Relaxed)
    }),
];

const FILLED: &[Metric<Counters>] = &[
    ("larder_fills_completed_total", "shards that became resident", |c| c.fills_completed.get()),
    ("larder_fills_failed_total", "shards that were given up", |c| c.fills_failed.get()),
    ("larder_fills_handed_over_total", "fills that outlived their worker", |c| {
        c.fills_handed_over.get()
    }),
    ("larder_origin_requests_total", "requests to the origin, retries included", |c| {
        c.origin_requests.get()
    }),
    ("larder_origin_retries_total", "requests to the origin that were retries", |c| {
        c.origin_retries.get()
    }),
    ("larder_origin_bytes_total", "bytes read from the origin", |c| c.origin_bytes.get()),
    ("larder_peer_read_bytes_total", "bytes of shards read from other nodes", |c| {
        c.peer_bytes.get()
    }),
    ("larder_rows_by_range_total", "rows read by range", |c| c.rows_by_range.get()),
    ("larder_prefetched_bytes_total", "bytes of shards fetched before a reader asked", |c| {
        c.prefetched_bytes.get()
    }),
    ("larder_prefetched_unread_bytes_total", "those of them that left before a read", |c| {
        c.prefetched_unread_bytes.get()
    }),
    ("larder_evicted_shards_total", "shards let go of", |c| c.evictions.get()),
    ("larder_evicted_bytes_total", "bytes of shards let go of", |c| c.evicted_bytes.get()),
    ("larder_corrupt_shards_total", "shards found corrupt in memory", |c| c.corrupt_shards.get()),
];

const GAUGES: &[Metric<Context>] = &[
    ("larder_leases", "shards held by clients on this host", |c| c.clients.leases()),
    ("larder_gathers_in_progress", "gathers being answered", |c| c.activity.gathering.get()),
    ("larder_plans", "jobs whose read plans are known", |c| {
        c.shared.plans.jobs(clock::now()).len() as u64
    }),
    ("larder_datasets_open", "datasets open", |c| c.shared.catalog.list().len() as u64),
    ("larder_ring_version", "version of the ring in use", |c| {
        c.shared.placements.load().ring().version()
    }),
    ("larder_memory_budget_bytes", "bytes that shards may take", |c| {
        c.shared.cache.usage().limit_bytes
    }),
    ("larder_retained_bytes", "bytes of an index that no shard holds yet, part of filling", |c| {
        c.shared.cache.retained().memory_bytes()
    }),
    ("larder_shards_max", "shards that there may be, since each is an open file", |c| {
        c.shared.cache.usage().shards_max as u64
    }),
];

/// The gauges of a node in a cluster.
const AGREED: &[Metric<Standing>] = &[
    ("larder_cluster_nodes_announced", "nodes that say that they live", |s| s.alive.len() as u64),
    ("larder_cluster_coordinator_away", "1 while the coordinator does not answer or write", |s| {
        s.away.is_some().into()
    }),
    ("larder_cluster_braked", "1 while members are removed only by an operator", |s| {
        s.braked.into()
    }),
    ("larder_cluster_change_in_flight", "1 while shards move for a change of the ring", |s| {
        s.record.as_ref().is_some_and(|record| record.change.is_some()).into()
    }),
    ("larder_cluster_move_bytes_left", "bytes that the change in flight still brings here", |s| {
        s.progress.map_or(0, |progress| progress.bytes_left)
    }),
];

const ROWS: &str = "larder_rows_total";
const GIVEN_UP: &str = "larder_given_up_shards_total";
const MEMORY: &str = "larder_memory_bytes";
const SHARDS: &str = "larder_shards";
const CONNECTIONS: &str = "larder_connections";

/// Installs the process's recorder at the first call. Returns `None` if the process has another.
fn install_recorder() -> Option<&'static PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || {
        let handle = PrometheusBuilder::new().install_recorder().ok();
        describe();
        handle
    };
    HANDLE.get_or_init(install).as_ref()
}

fn describe() {
    SERVED.iter().for_each(|&(name, what, _)| describe_counter!(name, what));
    FILLED.iter().for_each(|&(name, what, _)| describe_counter!(name, what));
    describe_counter!(ROWS, "rows sent, by source: memory, or origin when they were waited for");
    describe_counter!(GIVEN_UP, "shards let go of for others that were needed sooner");
    describe_gauge!(MEMORY, "bytes that shards take, by state");
    describe_gauge!(SHARDS, "shards that take memory, by state");
    describe_gauge!(CONNECTIONS, "connections, by plane: data or socket");
    GAUGES.iter().for_each(|&(name, what, _)| describe_gauge!(name, what));
    AGREED.iter().for_each(|&(name, what, _)| describe_gauge!(name, what));
}

/// Renders all metrics in the Prometheus text format. Includes nodes of the same process that were
/// rendered before.
pub(crate) fn render(context: &Context) -> String {
    let Some(handle) = install_recorder() else {
        return "# the process has a recorder of its own\n".to_owned();
    };
    let node = context.shared.config.node_id.clone();
    let (served, filled) = (&context.activity, &*context.shared.counters);
    for (name, _, get) in SERVED {
        counter!(*name, "node" => node.clone()).absolute(get(served));
    }
    for (name, _, get) in FILLED {
        counter!(*name, "node" => node.clone()).absolute(get(filled));
    }
    let given_up = context.shared.cache.usage().given_up_count;
    counter!(GIVEN_UP, "node" => node.clone()).absolute(given_up);
    let rows = [("memory", &served.rows_memory), ("origin", &served.rows_origin)];
    for (source, rows) in rows {
        counter!(ROWS, "node" => node.clone(), "source" => source).absolute(rows.get());
    }
    record_memory(&node, &context.shared.cache.usage());
    let connections = [("data", &context.data), ("socket", &context.local)];
    for (plane, connections) in connections {
        let count = connections.count() as u64;
        gauge!(CONNECTIONS, "node" => node.clone(), "plane" => plane).set(number(count));
    }
    for (name, _, get) in GAUGES {
        gauge!(*name, "node" => node.clone()).set(number(get(context)));
    }
    if let Some(cluster) = &context.shared.cluster {
        let standing = cluster.standing();
        for (name, _, get) in AGREED {
            gauge!(*name, "node" => node.clone()).set(number(get(&standing)));
        }
    }
    handle.render()
}

fn record_memory(node: &str, usage: &MemoryUsage) {
    let states =
        [("resident", usage.resident), ("filling", usage.filling), ("orphaned", usage.orphaned)];
    for (state, tally) in states {
        let labels = [("node", node.to_owned()), ("state", state.to_owned())];
        gauge!(MEMORY, &labels).set(number(tally.bytes));
        gauge!(SHARDS, &labels).set(number(tally.shards as u64));
    }
}

/// Converts a count to a gauge value, exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "gauges are floating point")]
fn number(count: u64) -> f64 {
    count as f64
}
