//! One change of the ring, begun and followed to its end while rows are read, and what it cost.

use std::time::{Duration, Instant};

use larder_client::{
    Dataset,
    admin::{ClusterCommand, DrainNode, PlanChangeRequest, PlanFigures},
};
use serde::Serialize;

use super::{
    members::Members,
    reader::{Reader, Reads},
    watch::Watch,
};
use crate::{commands::operator::failed, error::Failure, progress::Progress};

/// Reads at rest by which a change is judged, those before earlier changes included: enough to meet
/// what slows reads now and then without any change, as other work on the same host does.
const READS_AT_REST: usize = 15_000;
/// Of these right before a change.
const READS_BEFORE: usize = 3000;
/// Where reads are slow, the rest before a change ends then.
const REST_MAX: Duration = Duration::from_secs(20);

/// Who takes part in a change.
pub(super) struct Scene<'a> {
    pub(super) watch: &'a Watch<'a>,
    pub(super) progress: &'a Progress,
    pub(super) dataset: &'a Dataset,
    pub(super) reader: &'a Reader,
    /// The reads while nothing changed, so far.
    pub(super) at_rest: Reads,
}

/// What a change cost: exactly these names, for scripts. Times are in seconds.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    /// In words, for people.
    #[serde(skip)]
    pub(super) what: String,
    /// From when it was asked for until all nodes went by the new ring.
    pub(super) seconds: f64,
    /// What must move between perfectly even placements.
    pub(super) bytes_ideal: u64,
    /// What the cluster planned to move.
    pub(super) bytes_planned: u64,
    /// What nodes read from each other and from the origin meanwhile, and until each shard was in
    /// memory only once.
    pub(super) bytes_moved: u64,
    /// Batches fetched meanwhile, those that failed included.
    pub(super) reads: u64,
    pub(super) reads_failed: u64,
    /// What 99 of 100 batches took at most to be fetched: at rest, before this change and those
    /// before it, and meanwhile.
    pub(super) p99_before: Option<f64>,
    pub(super) p99_during: Option<f64>,
}

/// How things stood when a change began.
struct Start {
    at: Instant,
    bytes_read: u64,
}

impl Scene<'_> {
    /// Starts a node and follows it into the ring.
    pub(super) fn join(
        &mut self,
        members: &mut Members<'_>,
        name: &str,
    ) -> Result<Change, Failure> {
        self.watch.until_known()?;
        let start = self.start(members)?;
        self.progress
            .say(&format!("node {name} starts, and waits a while for others that may come"));
        members.add(name)?;
        // It waits for others that may come too: there is time to ask.
        self.watch.until_waiting(name)?;
        let plan = PlanChangeRequest { add: vec![name.to_owned()], ..Default::default() };
        let figures = self.watch.plan(&plan)?;
        self.finish(&start, members, &members.names(), &figures, format!("{name} joins"))
    }

    /// Lets a node leave the ring, and stops it when it has left.
    pub(super) fn drain(
        &mut self,
        members: &mut Members<'_>,
        name: &str,
    ) -> Result<Change, Failure> {
        let plan = PlanChangeRequest { drain: vec![name.to_owned()], ..Default::default() };
        let figures = self.watch.plan(&plan)?;
        let start = self.start(members)?;
        self.progress.say(&format!("node {name} drains"));
        let drain = DrainNode { node_id: name.to_owned(), deadline_ms: None };
        let begun = self.watch.operator.command(ClusterCommand::Drain(drain));
        begun.map_err(|error| failed(format!("{name} does not drain"), error))?;
        let mut stay = members.names();
        stay.retain(|member| *member != name);
        let change = self.finish(&start, members, &stay, &figures, format!("{name} drains"))?;
        members.stop(name);
        Ok(change)
    }

    /// Reads while nothing changes, as much as a change is judged by.
    fn start(&mut self, members: &Members<'_>) -> Result<Start, Failure> {
        // What came before is no rest: the reader's start, or another change.
        self.reader.take()?;
        let wanted = READS_AT_REST.saturating_sub(self.at_rest.count()).max(READS_BEFORE);
        let end = self.watch.context.now() + REST_MAX;
        self.watch.until("the reader gets on", || {
            let count = self.reader.count()?;
            self.progress.say(&format!("reading from a ring at rest: {count} of {wanted} batches"));
            Ok(count >= wanted || (count > 0 && self.watch.context.now() >= end))
        })?;
        self.at_rest.extend(self.reader.take()?);
        let bytes_read = members.bytes_read()?;
        Ok(Start { at: self.watch.context.now(), bytes_read })
    }

    /// Waits until just these are the ring, and says what that cost.
    fn finish(
        &self,
        start: &Start,
        members: &Members<'_>,
        ring: &[&str],
        figures: &PlanFigures,
        what: String,
    ) -> Result<Change, Failure> {
        self.watch.until_ring(ring)?;
        let (during, took) = (self.reader.take()?, self.watch.context.now() - start.at);
        self.progress.say("all nodes go by the new ring; waiting until old copies are dropped");
        self.until_moved(ring.len())?;
        let bytes_moved = members.bytes_read()?.saturating_sub(start.bytes_read);
        let seconds = |reads: &Reads| reads.p99().as_ref().map(Duration::as_secs_f64);
        Ok(Change {
            what,
            seconds: took.as_secs_f64(),
            bytes_ideal: figures.bytes_ideal,
            bytes_planned: figures.bytes,
            bytes_moved,
            reads: during.count() as u64,
            reads_failed: during.failed(),
            p99_before: seconds(&self.at_rest),
            p99_during: seconds(&during),
        })
    }

    /// Waits until each shard is where it belongs, by all of so many nodes, and old copies are
    /// dropped.
    fn until_moved(&self, nodes: usize) -> Result<(), Failure> {
        let shards = u64::from(self.dataset.manifest().shard_count());
        let cluster = self.dataset.cluster().expect("it was opened through the ring");
        self.watch.until("every shard is in memory just once", || {
            self.reader.count()?;
            let said = cluster.shards(Some(self.dataset.snapshot()));
            let resident = said.iter().filter_map(|said| Some(said.answer.as_ref().ok()?.resident));
            Ok(said.len() == nodes && resident.sum::<u64>() == shards)
        })
    }
}
