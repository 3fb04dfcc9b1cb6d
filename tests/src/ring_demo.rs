//! The demo of a ring that changes: three nodes serve photographs from an S3 server, a fourth node
//! joins, and one of the first three drains.
//!
//! A reader takes batches over TCP without a pause and compares every row. The bytes that move are
//! compared with the plan of the cluster, and with the least that perfectly even rings would move.

mod reader;
mod report;

use std::process::Command;
use std::time::{Duration, Instant};

use larder_client::admin::{
    ClusterCommand, ClusterStatus, DrainNode, NodeState, Operator, PlanChangeRequest, PlanFigures,
};
use larder_client::{Cluster, Dataset, Loader, Sources};
use larder_origin::{Options, S3Server, demo_data};
use tempfile::TempDir;

use crate::living::{Keeper, LivingCluster, TOKEN};
use crate::node::{NodeProcess, binary};
use crate::{Etcd, interrupt, until};
use reader::{Read, Reader, loader, next_batch, p99};
pub use report::Report;
use report::{Change, Epoch};

const URI: &str = "s3://demo/images";
/// Samples in a file.
const FILE_SAMPLES: u64 = 512;
/// So many shards that the shares of the nodes come out even.
const SHARD_BYTES: &str = "4MiB";
/// Rows of a batch of the two whole epochs.
const BATCH_SIZE: u32 = 128;
/// The nodes of the ring at the start, after the join and after the drain.
const FOUNDERS: [usize; 3] = [0, 1, 2];
const WITH_NEWCOMER: [usize; 4] = [0, 1, 2, 3];
const WITHOUT_LEAVER: [usize; 3] = [0, 2, 3];
const NEWCOMER: &str = "d";
const LEAVER: &str = "b";

/// Reads at rest that the reads during a change are compared with, those before earlier changes
/// included. They are enough to meet delays that other work on the host causes.
const READS_AT_REST: usize = 15_000;
/// The least of these right before a change.
const READS_BEFORE: usize = 3000;
/// On a slow host a change begins after this time with fewer reads.
const REST_MAX: Duration = Duration::from_secs(20);

/// The metrics of a node that count bytes of shards from other nodes and from the origin.
const BYTES_READ: [&str; 2] = ["larder_peer_read_bytes_total", "larder_origin_bytes_total"];

/// A warm cluster with a reader. Fields drop in this order.
pub struct RingDemo {
    reader: Reader,
    /// The reads at rest so far.
    at_rest: Vec<Read>,
    loader: Loader,
    dataset: Dataset,
    operator: Operator,
    cluster: LivingCluster,
    server: S3Server,
    _dir: TempDir,
}

/// The state of the demo when a change began.
struct Start {
    at: Instant,
    bytes_read: u64,
    reads: usize,
}

impl RingDemo {
    /// Writes `samples` photographs, joins and drains a node, and reports what that cost. The
    /// cluster runs until the demo is dropped.
    ///
    /// # Panics
    /// When a byte is wrong, a sample is missing, or a step takes too long.
    #[must_use]
    pub fn show(samples: u64, seed: u64) -> (Self, Report) {
        let etcd = Etcd::find().map(|_| Etcd::start());
        let coordinator = if etcd.is_some() { "etcd" } else { "embedded" };
        eprintln!("writing {samples} photographs for an S3 server");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        let bytes = publish(&server, samples);
        eprintln!("starting nodes a, b and c, which agree through {coordinator}");
        let keeper = etcd.map_or(Keeper::FirstNode, Keeper::Etcd);
        // A node has room for more than the whole dataset, however the ring divides it.
        let memory = format!("{}MiB", bytes / 4 * 5 / (1 << 20) + 64);
        let founders = FOUNDERS.len();
        let cluster = LivingCluster::start_unhurried(keeper, founders, URI, &server.env(), &memory);
        let asked = Cluster::connect(&cluster.address()).expect("the nodes answer");
        let operator = Operator::new(asked, Some(TOKEN), "the demo".to_owned());
        let options = Dataset::options().cluster(cluster.address()).local(false);
        let dataset = options.open(URI).expect("the nodes open the dataset");
        eprintln!("reading {samples} samples in {} shards", dataset.manifest().shard_count());
        let mut loader = loader(&dataset, BATCH_SIZE, seed);
        let warm = epoch(&mut loader, &server, samples, 0);
        let (at_rest, reader) = (Vec::new(), Reader::start(&dataset, seed));
        let mut demo =
            Self { reader, at_rest, loader, dataset, operator, cluster, server, _dir: dir };
        let (rebalance, drain) = (demo.join(), demo.drain());
        let reads = demo.reader.end();
        let after = epoch(&mut demo.loader, &demo.server, samples, 1);
        (demo, Report::new(coordinator, [warm, after], &reads, rebalance, drain))
    }

    /// The lines that let a shell use the cluster.
    #[must_use]
    pub fn exports(&self) -> String {
        let own = [("LARDER_CLUSTER", self.cluster.address()), ("LARDER_TOKEN", TOKEN.to_owned())];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let all = self.server.env().into_iter().chain(own);
        all.map(|(name, value)| format!("  export {name}='{value}'\n")).collect()
    }

    /// Starts a node and follows it into the ring.
    fn join(&mut self) -> Change {
        self.until("the cluster has measured the dataset", |status| {
            let datasets = status.datasets.len();
            datasets > 0 && usize::try_from(status.datasets_measured) == Ok(datasets)
        });
        let start = self.rest();
        eprintln!("node {NEWCOMER} joins");
        self.cluster.add();
        // It waits for other nodes that may join with it, which leaves time for the plan.
        self.until("the new node waits", |status| {
            let joins = |state| state == NodeState::Joining;
            status.nodes.iter().any(|node| joins(node.state()) && node.announced)
        });
        let plan = PlanChangeRequest { add: vec![NEWCOMER.to_owned()], ..Default::default() };
        let figures = self.plan(&plan);
        self.finish(format!("{NEWCOMER} joins"), &start, &WITH_NEWCOMER, &figures)
    }

    /// Lets a node leave the ring, and stops it.
    fn drain(&mut self) -> Change {
        let plan = PlanChangeRequest { drain: vec![LEAVER.to_owned()], ..Default::default() };
        let figures = self.plan(&plan);
        let start = self.rest();
        eprintln!("node {LEAVER} drains");
        let drain = DrainNode { node_id: LEAVER.to_owned(), deadline_ms: None };
        self.operator.command(ClusterCommand::Drain(drain)).expect("the node begins to drain");
        let change = self.finish(format!("{LEAVER} drains"), &start, &WITHOUT_LEAVER, &figures);
        self.cluster.nodes[1].signal(nix::sys::signal::Signal::SIGTERM);
        change
    }

    /// Reads while nothing changes.
    fn rest(&mut self) -> Start {
        let begin = self.reader.count();
        let wanted = READS_AT_REST.saturating_sub(self.at_rest.len()).max(READS_BEFORE);
        eprintln!("reading {wanted} batches from a ring at rest");
        let end = now() + REST_MAX;
        until("the reader has read", || {
            let count = self.reader.count() - begin;
            count >= wanted || (count > 0 && now() >= end)
        });
        self.at_rest.extend(self.reader.since(begin));
        Start { at: now(), bytes_read: self.bytes_read(), reads: self.reader.count() }
    }

    /// Waits until exactly `members` are the ring and hold the shards that they own. Returns what
    /// the change cost.
    fn finish(
        &self,
        what: String,
        start: &Start,
        members: &[usize],
        figures: &PlanFigures,
    ) -> Change {
        // One status is cheap: asking every node again and again would slow the reads.
        self.until("the change is over", |status| {
            status.change.is_none() && status.nodes.len() == members.len()
        });
        self.cluster.until_ring(members);
        let (during, took) = (self.reader.since(start.reads), start.at.elapsed());
        let shards = usize::try_from(self.dataset.manifest().shard_count()).expect("few shards");
        self.cluster.until_owners_hold(members, shards);
        Change {
            what,
            seconds: took.as_secs_f64(),
            bytes_ideal: figures.bytes_ideal,
            bytes_planned: figures.bytes,
            bytes_moved: self.bytes_read() - start.bytes_read,
            reads: during.len(),
            reads_failed: during.iter().filter(|read| read.is_err()).count(),
            p99_before: p99(&self.at_rest),
            p99_during: p99(&during),
        }
    }

    /// Waits until the status of the cluster is as wanted.
    fn until(&self, what: &str, holds: impl Fn(&ClusterStatus) -> bool) {
        until(what, || self.operator.status().is_ok_and(|status| holds(&status)));
    }

    fn plan(&self, request: &PlanChangeRequest) -> PlanFigures {
        self.operator.plan(request).expect("the cluster plans").figures
    }

    /// Bytes of shards that all nodes together have read from each other and from the origin.
    fn bytes_read(&self) -> u64 {
        let of = |node: &NodeProcess| BYTES_READ.map(|name| node.metric(name)).iter().sum::<u64>();
        self.cluster.nodes.iter().map(of).sum()
    }
}

/// Writes the photographs into a bucket and indexes them. Returns the bytes of the files.
fn publish(server: &S3Server, samples: u64) -> u64 {
    let folder = server.create_bucket("demo").expect("a bucket").join("images");
    let written = demo_data::write(&folder, samples, FILE_SAMPLES).expect("files in our folder");
    let mut index = Command::new(binary("larder"));
    index.args(["dataset", "index", URI, "--shard-bytes", SHARD_BYTES, "-o", "json"]);
    let indexed = index.envs(server.env()).output().expect("larder starts");
    assert!(indexed.status.success(), "{}", String::from_utf8_lossy(&indexed.stderr));
    written.bytes
}

/// Reads and compares all samples once.
fn epoch(loader: &mut Loader, server: &S3Server, samples: u64, number: u64) -> Epoch {
    let (before, begun) = (server.counts(), now());
    let (mut seen, mut sources) = (Vec::new(), Sources::default());
    let mut batches = loader.epoch(number).expect("an epoch");
    while let Some(batch) = next_batch(&mut batches, interrupt::check) {
        let batch = batch.unwrap_or_else(|error| panic!("a batch of epoch {number}: {error}"));
        seen.extend_from_slice(batch.samples());
        sources += batch.sources();
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(batches);
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..samples), "a sample of epoch {number} is missing or came twice");
    assert_eq!(loader.digest(), loader.expected_digest(), "the digest of epoch {number}");
    let after = server.counts();
    Epoch {
        epoch: number + 1,
        samples,
        seconds,
        rows_local: sources.rows_local,
        rows_remote: sources.rows_remote,
        rows_origin: sources.rows_origin,
        origin_requests: after.requests - before.requests,
        origin_bytes: after.bytes_sent - before.bytes_sent,
    }
}

#[expect(clippy::disallowed_methods, reason = "the demo measures real time")]
fn now() -> Instant {
    Instant::now()
}
