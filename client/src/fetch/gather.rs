//! A gather of rows that are not mapped: asks nodes in rounds until all rows are in.
//!
//! ```text
//!   work ──assign──▶ jobs by node ──exchange──▶ rows in the batch
//!    ▲                    │ no node left             │
//!    │                    ▼                          │ a node failed, hung up, or said "again"
//!    │                 origin                        │
//!    └──── missing rows ◀──────────────────────────────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use larder_base::{Advice, ErrorKind, limits};

use super::{
    Leaves, Target,
    failure_policy::{FailurePolicy, Verdict},
    lanes::{Event, Lane, Lanes, Wait},
    node::Node,
    origin::Fallback,
    session::{Routes, Session},
    sources::{Gathered, Hop},
};
use crate::{
    Error,
    deadline::Deadline,
    local::Socket,
    process,
    remote::{Failure, Job, Wanted},
    runtime,
};

/// A node that works on a request gives a sign of life more often than this.
const LATELY: Duration = Duration::from_secs(1);

/// The rows that go to each node, by its index in the ring.
type JobsByNode = BTreeMap<usize, Vec<Job>>;

#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) target: &'a Arc<Target>,
    pub(super) session: &'a Session,
    pub(super) fallback: &'a Fallback,
    pub(super) leaves: &'a Leaves,
}

/// A gather in progress.
pub(super) struct Gathering<'a, 'b> {
    means: Means<'a>,
    wanted: Wanted<'a, 'b>,
    deadline: Deadline,
    gathered: Gathered,
    /// Rows still missing that no request in flight covers.
    work: Vec<Job>,
    /// By node. Reset when the ring changes.
    policy: Vec<FailurePolicy>,
    /// The reason to wait before the next round.
    again: Option<Error>,
    /// A node reported that the origin's bytes differ from those that the snapshot pins. Stays set
    /// for the whole gather, even if that node fails later.
    lost: Option<Error>,
    /// The last failure of a node.
    last: Option<Error>,
    tries: u32,
    begun: Instant,
}

impl<'a, 'b> Gathering<'a, 'b> {
    pub(super) fn new(means: Means<'a>, wanted: Wanted<'a, 'b>, deadline: Deadline) -> Self {
        Self {
            means,
            wanted,
            deadline,
            gathered: Gathered::default(),
            work: Vec::new(),
            policy: Vec::new(),
            again: None,
            lost: None,
            last: None,
            tries: 0,
            begun: process::now(),
        }
    }

    /// Adds the rows at these places to the work, for all tensors.
    pub(super) fn want(&mut self, at: Vec<u32>, verify: bool) {
        if !at.is_empty() {
            self.work.push(Job { slots: 0..self.wanted.tensors.len(), at, verify });
        }
    }

    /// Runs until every row is in the batch.
    pub(super) fn run(mut self) -> Result<Gathered, Error> {
        // Without the runtime, every node and the origin would seem unreachable.
        runtime::start()?;
        let wanted: u64 = self.work.iter().map(|job| job.at.len() as u64).sum();
        while !self.work.is_empty() {
            self.deadline.cancel().check()?;
            let orphans = match self.means.session.routes(self.means.target) {
                Some(routes) => self.ask_nodes(&routes)?,
                None => std::mem::take(&mut self.work),
            };
            match &self.lost {
                // If a node found bytes damaged, the origin is not read instead. The snapshot may
                // have no row checksums, so that damage would pass unnoticed here.
                Some(error) if !orphans.is_empty() => {
                    self.work.extend(orphans);
                    self.again = Some(error.clone());
                }
                _ => {
                    for job in orphans {
                        self.ask_origin(job)?;
                    }
                }
            }
            if let Some(error) = self.again.take() {
                self.pause(error)?;
            }
        }
        // A row counts once, though its tensors may come in several requests.
        let sources = &mut self.gathered.sources;
        sources.rows_origin = sources.rows_origin.min(wanted);
        sources.rows_remote = wanted - sources.rows_origin;
        sources.copies = self.wanted.copies;
        Ok(self.gathered)
    }

    /// Runs one round with the nodes. Returns the work that no node can do.
    fn ask_nodes(&mut self, routes: &Routes) -> Result<Vec<Job>, Error> {
        let (begun, queued) = (process::now(), self.gathered.sources.wait_queue);
        let before = std::mem::replace(&mut self.wanted.ring_version, routes.router.ring_version());
        if self.wanted.ring_version != before || self.policy.len() != routes.nodes.len() {
            self.policy = vec![FailurePolicy::default(); routes.nodes.len()];
        }
        let (plan, orphans) = self.assign(routes);
        self.open(routes, &plan)?;
        self.open_lenders(routes, &plan);
        let cancel = self.deadline.cancel().clone();
        // Other readers may wait this long for a fill, and the user may allow longer.
        let longest = limits::FILL_DEADLINE.max(self.means.target.options.patience);
        let mut lanes = Lanes::new(&cancel, longest);
        self.start(routes, plan, &mut lanes, true)?;
        let mut origin_until = begun;
        while let Some(event) = lanes.next(&mut self.wanted) {
            match event {
                Event::Answered { node, rows_origin, origin_bytes, ring_version, longest } => {
                    let read = &mut self.gathered.sources.node_origin_bytes;
                    *read = read.saturating_add(origin_bytes);
                    self.answered(routes, node, rows_origin, longest);
                    self.heard_of_ring(routes, node, ring_version);
                    if rows_origin > 0 {
                        origin_until = process::now();
                    }
                }
                Event::Alive { node } => {
                    let id = &routes.nodes[node].member.id;
                    let why = format_args!("node {id} is still bringing them");
                    // A program that follows the fills knows that.
                    if !self.means.target.is_followed() {
                        self.means.target.tell_wait(self.begun, why);
                    }
                }
                Event::Failed(lane, failure) => {
                    self.lane_failed(routes, *lane, &failure)?;
                    // Asking another silent node takes time, while frames of the others wait. So
                    // ask only if all others answered recently.
                    let others_well = match failure {
                        Failure::Silent => lanes.all_heard_since(process::now() - LATELY),
                        _ => true,
                    };
                    if !lanes.is_empty() && others_well && self.again.is_none() {
                        let (plan, no_node) = self.assign(routes);
                        self.work.extend(no_node);
                        self.start(routes, plan, &mut lanes, false)?;
                    }
                }
            }
        }
        self.count_round(begun, origin_until, queued);
        Ok(orphans)
    }

    /// Divides the time of a round among its hops. `queued` is the earlier time in queues.
    fn count_round(&mut self, begun: Instant, origin_until: Instant, queued: Duration) {
        let sources = &mut self.gathered.sources;
        let queued = sources.wait_queue - queued;
        let round = (process::now() - begun).saturating_sub(queued);
        let origin = (origin_until - begun).saturating_sub(queued).min(round);
        sources.wait_node_origin += origin;
        sources.wait_nodes += round - origin;
    }

    /// Divides the work among the nodes. Also returns the work that no node can do.
    fn assign(&mut self, routes: &Routes) -> (JobsByNode, Vec<Job>) {
        let nodes = routes.nodes.iter().zip(&self.policy);
        let usable: Vec<bool> =
            nodes.map(|(node, policy)| node.member.health.is_up() && !policy.out).collect();
        let (mut plan, mut orphans) = (JobsByNode::new(), Vec::new());
        for job in std::mem::take(&mut self.work) {
            let mut at_node = vec![Vec::new(); routes.nodes.len()];
            let mut at_none = Vec::new();
            for &at in &job.at {
                let shard = self.shard(at);
                let id = || self.means.target.manifest.shard(shard).id;
                match routes.router.pick(shard, id, &usable) {
                    Some(node) => at_node[node].push(at),
                    None => at_none.push(at),
                }
            }
            for (node, at) in at_node.into_iter().enumerate() {
                for at in at.chunks(limits::GATHER_ROWS_MAX as usize) {
                    let job = Job { slots: job.slots.clone(), at: at.to_vec(), verify: job.verify };
                    plan.entry(node).or_default().push(job);
                }
            }
            if !at_none.is_empty() {
                orphans.push(Job { at: at_none, ..job });
            }
        }
        (plan, orphans)
    }

    fn shard(&self, at: u32) -> u32 {
        self.wanted.rows[at as usize].shard
    }

    /// Opens the dataset on all planned nodes without an open dataset, at once.
    fn open(&mut self, routes: &Routes, plan: &JobsByNode) -> Result<(), Error> {
        let new: Vec<usize> =
            plan.keys().copied().filter(|&node| !routes.nodes[node].is_open()).collect();
        if new.is_empty() {
            return Ok(());
        }
        let Means { target, session, .. } = self.means;
        let opened = join_all(
            new.iter()
                .map(async |&node| routes.nodes[node].open_soon(target, &session.slots).await),
        );
        let opened = runtime::block_on(self.deadline.cancel().unless(opened))??;
        for (node, opened) in new.into_iter().zip(opened) {
            if let Err(failure) = opened {
                self.node_failed(routes, node, &failure, false)?;
            }
        }
        Ok(())
    }

    /// Opens the dataset on nodes of this host that get no request but whose shards could be
    /// mapped. Does not wait.
    fn open_lenders(&self, routes: &Routes, plan: &JobsByNode) {
        let Means { target, session, .. } = self.means;
        if !routes.are_lenders_new() {
            return;
        }
        let rows = plan.values().flatten().flat_map(|job| &job.at);
        let lenders = rows.filter_map(|&at| self.mappable_owner(routes, self.shard(at)));
        for mappable_owner in lenders.collect::<BTreeSet<_>>() {
            routes.nodes[mappable_owner].open_to_map(target, &session.slots);
        }
    }

    /// Sends the jobs of each node. With `wait`, waits for connections in use. Otherwise jobs that
    /// can't be sent at once return to the work.
    fn start(
        &mut self,
        routes: &Routes,
        plan: JobsByNode,
        lanes: &mut Lanes<'_>,
        wait: bool,
    ) -> Result<(), Error> {
        let (mut started, mut busy) = (Vec::new(), false);
        for (index, jobs) in plan {
            let node = &routes.nodes[index];
            self.ask_for_maps(routes, node, &jobs);
            let slot = match node.pool.try_take() {
                _ if !node.is_open() => None,
                None if wait => {
                    let begun = process::now();
                    let slot = node.pool.take(&self.deadline);
                    busy |= slot.is_none();
                    let (waited, shard) = (process::now() - begun, self.shard(jobs[0].at[0]));
                    self.gathered.sources.wait_queue += waited;
                    self.gathered.note(Hop::Queue, waited, shard, Some(&node.member.id));
                    // The previous user may have found the node silent. One such wait is enough.
                    slot.filter(|_| node.member.health.is_up())
                }
                slot => slot,
            };
            match slot {
                Some(slot) => started.push(Lane::new(index, node.clone(), slot, jobs)),
                None => self.work.extend(jobs),
            }
        }
        // If a node was passed over, the next node or the origin is still to be asked.
        if busy && started.is_empty() {
            self.deadline.cancel().check()?;
            let busy = Error::new(ErrorKind::ResourceExhausted, "all connections are in use")
                .hint("read in fewer threads at a time, or with more deadline");
            return Err(self.last.take().unwrap_or(busy));
        }
        for (lane, failure) in lanes.start(&self.wanted, started) {
            self.lane_failed(routes, lane, &failure)?;
        }
        Ok(())
    }

    /// Asks for maps of these rows' shards, so that later reads find them mapped. Asks the owner on
    /// this host, or without one the node that is asked for the rows.
    fn ask_for_maps(&self, routes: &Routes, asked: &Node, jobs: &[Job]) {
        if asked.socket().is_none() && !routes.router.has_lenders() {
            return;
        }
        let (now, slots) = (process::uptime(), &self.means.session.slots);
        let mut claimed = BTreeMap::<_, (&Socket, Vec<u32>)>::new();
        for shard in jobs.iter().flat_map(|job| &job.at).map(|&at| self.shard(at)) {
            let mappable_owner = self.mappable_owner(routes, shard);
            let node = mappable_owner.map_or(asked, |index| &routes.nodes[index]);
            if let Some(socket) = node.socket().filter(|_| slots.claim(shard, now)) {
                claimed.entry(mappable_owner).or_insert((socket, Vec::new())).1.push(shard);
            }
        }
        claimed.into_values().for_each(|(socket, shards)| socket.ask(&shards));
    }

    /// The owner of a shard on this host, if it is healthy.
    fn mappable_owner(&self, routes: &Routes, shard: u32) -> Option<usize> {
        let mappable_owner =
            routes.router.mappable_owner(shard, || self.means.target.manifest.shard(shard).id);
        let is_well =
            |node: &usize| routes.nodes[*node].member.health.is_up() && !self.policy[*node].out;
        mappable_owner.filter(is_well)
    }

    /// Counts an answer, and its rows that the node had to read from the origin.
    fn answered(&mut self, routes: &Routes, node: usize, rows_origin: u64, longest: Wait) {
        let member = &routes.nodes[node].member;
        member.health.succeed();
        if let Some(cluster) = &self.means.target.cluster {
            cluster.report_service();
        }
        let hop = if rows_origin > 0 { Hop::NodeOrigin } else { Hop::Network };
        let shard = self.shard(longest.at);
        self.gathered.note(hop, longest.waited, shard, Some(&member.id));
        let rows = &mut self.gathered.sources.rows_origin;
        *rows = rows.saturating_add(rows_origin);
    }

    /// Learns a newer ring from the node that has it.
    fn heard_of_ring(&self, routes: &Routes, node: usize, version: u64) {
        if let Some(cluster) = self.means.target.cluster.as_ref()
            && version > self.wanted.ring_version
        {
            cluster.heard_of_ring(version, &routes.nodes[node].member);
        }
    }

    /// Returns the missing rows of a lane to the work. A cancelled gather counts no failure.
    fn lane_failed(&mut self, routes: &Routes, lane: Lane, failure: &Failure) -> Result<(), Error> {
        self.deadline.cancel().check()?;
        let (node, used, longest) = (lane.index(), lane.is_used(), lane.longest());
        let (shard, id) = (self.shard(longest.at), &routes.nodes[node].member.id);
        self.gathered.note(Hop::Network, longest.waited, shard, Some(id));
        let verify = matches!(failure, Failure::Corrupt { .. });
        let (rest, slot) = lane.into_rest();
        self.work.extend(rest.map(|job| Job { verify: job.verify || verify, ..job }));
        let judged = self.node_failed(routes, node, failure, used);
        // Dropped after the judgement: a reader that waits for the slot then checks the node's
        // health.
        drop(slot);
        judged
    }

    /// Reacts to a failure, in this gather and for others.
    fn node_failed(
        &mut self,
        routes: &Routes,
        index: usize,
        failure: &Failure,
        used: bool,
    ) -> Result<(), Error> {
        let node = &routes.nodes[index];
        let error = failure.to_error(&node.member.id);
        match self.policy[index].judge(failure, used) {
            Verdict::Fatal => {
                let target = self.means.target;
                return Err(match &target.cluster {
                    Some(cluster) => cluster.hint_at_credentials(error, target.manifest.uri()),
                    None => error,
                });
            }
            Verdict::Reconnect => node.pool.clear(),
            Verdict::Reopen => node.forget(),
            Verdict::Wait => self.again = Some(error),
            Verdict::Lost => self.lost = Some(error),
            Verdict::PassOver => self.last = Some(error),
            Verdict::Recheck => {
                metrics::counter!("larder_client_corrupt_rows").increment(1);
                tracing::warn!(%error, "asked again");
                self.last = Some(error);
            }
            Verdict::Down => {
                node.forget();
                if node.member.health.fail(process::uptime()) {
                    metrics::counter!("larder_client_nodes_passed_over").increment(1);
                    let cluster = self.means.target.cluster.as_ref();
                    // The node of this host is alone on its ring: `ask_origin` reports its loss.
                    let of_host = cluster.and_then(|cluster| cluster.host());
                    if of_host.is_none() && !node.is_blocked() {
                        tracing::warn!(%error, "the next node on the ring is asked");
                    }
                }
                self.last = Some(error);
            }
        }
        Ok(())
    }

    /// Reads a job from the origin. If that fails, the job returns to the work and is retried until
    /// the deadline. Nodes may be back by then.
    fn ask_origin(&mut self, job: Job) -> Result<(), Error> {
        let (begun, Means { target, fallback, leaves, .. }) = (process::now(), self.means);
        if let Some(cluster) = &target.cluster {
            cluster.report_outage(target.manifest.uri(), self.last.as_ref());
        }
        let cancel = self.deadline.cancel();
        let tell = || target.tell_wait(self.begun, "the origin is still being read");
        let read = fallback.read(leaves, &job, &mut self.wanted, cancel, &tell);
        self.gathered.sources.wait_origin += process::now() - begun;
        match read {
            Ok(longest) => {
                self.gathered.note(Hop::Origin, longest.waited, longest.shard, None);
                self.gathered.sources.rows_origin += job.at.len() as u64;
            }
            Err(error) if target.cluster.is_none() && error.advice() != Advice::Retry => {
                return Err(error);
            }
            Err(error) if matches!(error.kind(), ErrorKind::DataChanged | ErrorKind::DataLoss) => {
                return Err(error);
            }
            // Without file descriptors no node can be reached, however long the gather waits.
            Err(error) if !process::can_open_files(1) => {
                return Err(process::no_files_left().because(error));
            }
            Err(error) => {
                self.work.push(job);
                self.again = Some(match &self.last {
                    Some(last) => {
                        error.context(format!("no node answers ({last}), and the origin"))
                    }
                    None => error,
                });
            }
        }
        Ok(())
    }

    /// Waits before the next round, longer each time, with jitter. Afterwards the gather may ask
    /// nodes again that it had passed over.
    fn pause(&mut self, error: Error) -> Result<(), Error> {
        let longest = limits::RETRY_WAIT_MIN.saturating_mul(1 << self.tries.min(16));
        let wait = longest.min(limits::RETRY_WAIT_MAX).mul_f64(0.5 + 0.5 * fastrand::f64());
        if wait >= self.deadline.left() {
            let patience = self.means.target.options.patience;
            return Err(error.context(format!("gave up after {patience:?}")));
        }
        self.means.target.tell_wait(self.begun, &error);
        self.means.target.note_trouble(&error);
        tracing::debug!(%error, ?wait, "trying again");
        self.tries += 1;
        self.policy.iter_mut().for_each(FailurePolicy::forgive);
        let begun = process::now();
        self.deadline.sleep(wait);
        let waited = process::now() - begun;
        self.gathered.sources.wait_retries += waited;
        if let Some(job) = self.work.first() {
            self.gathered.note(Hop::Retry, waited, self.shard(job.at[0]), None);
        }
        Ok(())
    }
}
