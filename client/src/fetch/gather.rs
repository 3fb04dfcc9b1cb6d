//! One gather that needs more than what is mapped: rounds of asking nodes, until all rows are in.
//!
//! ```text
//!   work ──assign──▶ jobs by node ──exchange──▶ rows in the batch
//!    ▲                    │ no node left             │
//!    │                    ▼                          │ a node failed, broke off, or said "again"
//!    │                 origin                        │
//!    └──── what did not come ◀───────────────────────┘
//! ```

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use larder_wire::{Advice, ErrorKind, data::RowRef, limits};

use super::{
    Fetcher, Sources,
    lanes::{Lane, Lanes},
    session::{Routes, Session},
};
use crate::{
    Error, process,
    remote::{Batch, Failure, Job},
    runtime,
};

/// Nodes at work on a request give a sign of life more often than this.
const LATELY: Duration = Duration::from_secs(1);

/// The rows that go to each node, by its index in the ring.
pub(super) type Plan = BTreeMap<usize, Vec<Job>>;

/// A gather in progress.
pub(super) struct Gathering<'a, 'b> {
    pub(super) fetcher: &'a Fetcher,
    session: &'a Session,
    pub(super) rows: &'a [RowRef],
    pub(super) tensors: &'a [u16],
    pub(super) batch: Batch<'a, 'b>,
    sources: &'a mut Sources,
    /// When patience ends.
    deadline: Instant,
    /// What is to be fetched and on its way to no node.
    work: Vec<Job>,
    /// By node, as long as the ring is the same.
    strikes: Vec<Strikes>,
    /// Why to wait before the next round.
    again: Option<Error>,
    /// A node said that bytes of the origin are not those the snapshot pins.
    lost: Option<Error>,
    /// The last thing that went wrong with a node.
    last: Option<Error>,
    tries: u32,
}

/// What a node did wrong in this gather.
#[derive(Debug, Clone, Copy, Default)]
struct Strikes {
    /// It is asked for nothing more.
    out: bool,
    /// A connection from before broke: it was allowed that once.
    broke: bool,
    /// It did not know us, and was told.
    reopened: bool,
    /// It sent a damaged row.
    corrupt: bool,
}

impl<'a, 'b> Gathering<'a, 'b> {
    pub(super) fn new(
        fetcher: &'a Fetcher,
        session: &'a Session,
        rows: &'a [RowRef],
        tensors: &'a [u16],
        batch: Batch<'a, 'b>,
        sources: &'a mut Sources,
    ) -> Self {
        let deadline = process::now() + fetcher.options.patience;
        let (work, strikes) = (Vec::new(), Vec::new());
        let (again, lost, last, tries) = (None, None, None, 0);
        Self {
            fetcher,
            session,
            rows,
            tensors,
            batch,
            sources,
            deadline,
            work,
            strikes,
            again,
            lost,
            last,
            tries,
        }
    }

    /// Adds the rows at these places to the work, for all tensors.
    pub(super) fn want(&mut self, at: Vec<u32>, verify: bool) {
        if !at.is_empty() {
            self.work.push(Job { slots: 0..self.tensors.len(), at, verify });
        }
    }

    /// Goes on until every row is in the batch.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let wanted: u64 = self.work.iter().map(|job| job.at.len() as u64).sum();
        while !self.work.is_empty() {
            let orphans = match self.session.routes(self.fetcher) {
                Some(routes) => self.ask_nodes(&routes)?,
                None => std::mem::take(&mut self.work),
            };
            match self.lost.take() {
                // What a node found damaged is not read past it: here no checksum would notice.
                Some(error) if !orphans.is_empty() => {
                    self.work.extend(orphans);
                    self.again = Some(error);
                }
                lost => {
                    self.lost = lost;
                    for job in orphans {
                        self.ask_origin(job)?;
                    }
                }
            }
            if let Some(error) = self.again.take() {
                self.pause(error)?;
            }
        }
        // A row counts once, though its tensors may have come in several requests.
        self.sources.rows_origin = self.sources.rows_origin.min(wanted);
        self.sources.rows_remote = wanted - self.sources.rows_origin;
        Ok(())
    }

    /// One round with the nodes. What no node is left for is returned.
    fn ask_nodes(&mut self, routes: &Routes) -> Result<Vec<Job>, Error> {
        let begun = process::now();
        if self.strikes.len() != routes.nodes.len() {
            self.strikes = vec![Strikes::default(); routes.nodes.len()];
        }
        let (plan, orphans) = self.assign(routes);
        self.open(routes, &plan)?;
        let mut lanes = Lanes::default();
        self.start(routes, plan, &mut lanes, true)?;
        while let Some((lane, failure)) = lanes.receive(self, routes) {
            self.lane_failed(routes, lane, &failure)?;
            // Asking a node that turns out to be silent too takes time, in which the others' frames
            // wait: done only when all others are known to be well.
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
        self.sources.wait_nodes += process::now() - begun;
        Ok(orphans)
    }

    /// Divides the work among the nodes. What no node can be asked for is returned beside.
    fn assign(&mut self, routes: &Routes) -> (Plan, Vec<Job>) {
        let nodes = routes.nodes.iter().zip(&self.strikes);
        let usable: Vec<bool> =
            nodes.map(|(node, strikes)| node.member.health.is_up() && !strikes.out).collect();
        let (mut plan, mut orphans) = (Plan::new(), Vec::new());
        for job in std::mem::take(&mut self.work) {
            let mut at_node = vec![Vec::new(); routes.nodes.len()];
            let mut at_none = Vec::new();
            for &at in &job.at {
                let shard = self.rows[at as usize].shard;
                let id = || self.fetcher.manifest.shard(shard).id;
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

    /// Opens the dataset on those nodes that were not asked for anything yet, all at once.
    fn open(&mut self, routes: &Routes, plan: &Plan) -> Result<(), Error> {
        let Some(cluster) = self.fetcher.cluster.as_deref() else {
            return Ok(());
        };
        let new: Vec<usize> =
            plan.keys().copied().filter(|&node| !routes.nodes[node].is_open()).collect();
        if new.is_empty() {
            return Ok(());
        }
        let patience = self.deadline.saturating_duration_since(process::now());
        let (fetcher, slots) = (self.fetcher, &self.session.slots);
        let opened = runtime::block_on(join_all(new.iter().map(async |&node| {
            let open = routes.nodes[node].open(cluster, fetcher, slots);
            tokio::time::timeout(patience, open).await
        })));
        for (node, opened) in new.into_iter().zip(opened) {
            let failure = match opened {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::PermissionDenied => Failure::Unwilling(error),
                    _ => Failure::Answer(error),
                },
                Err(_) => Failure::Silent,
            };
            self.node_failed(routes, node, &failure, false)?;
        }
        Ok(())
    }

    /// Sends the jobs of each node. With `wait`, waits for connections that others use; else what
    /// can't be sent at once goes back to the work.
    fn start(
        &mut self,
        routes: &Routes,
        plan: Plan,
        lanes: &mut Lanes,
        wait: bool,
    ) -> Result<(), Error> {
        let mut started = Vec::new();
        for (index, jobs) in plan {
            let node = &routes.nodes[index];
            self.ask_for_maps(routes, index, &jobs);
            let patience = self.deadline.saturating_duration_since(process::now());
            let slot = match node.is_open() {
                true if wait => node.pool.take(patience),
                true => node.pool.try_take(),
                false => None,
            };
            match slot {
                Some(slot) => started.push(Lane::new(index, slot, jobs)),
                None => self.work.extend(jobs),
            }
        }
        if wait && started.is_empty() && process::now() >= self.deadline {
            let busy = Error::new(ErrorKind::ResourceExhausted, "all connections are in use");
            return Err(self.last.take().unwrap_or(busy));
        }
        for (lane, failure) in lanes.start(self, routes, started) {
            self.lane_failed(routes, lane, &failure)?;
        }
        Ok(())
    }

    /// Asks the node for the shards of these rows, if it is on this host: the next time they are
    /// mapped.
    fn ask_for_maps(&self, routes: &Routes, node: usize, jobs: &[Job]) {
        let Some(socket) = routes.nodes[node].socket() else {
            return;
        };
        let now = process::uptime();
        let shards = jobs.iter().flat_map(|job| &job.at).map(|&at| self.rows[at as usize].shard);
        let claimed: Vec<u32> =
            shards.filter(|&shard| self.session.slots.claim(shard, now)).collect();
        if !claimed.is_empty() {
            socket.ask(&claimed);
        }
    }

    /// A row that came counts; a row that a node had to read from the origin counts as such.
    pub(super) fn lane_finished(&mut self, routes: &Routes, node: usize, rows_origin: u64) {
        routes.nodes[node].member.health.succeed();
        self.sources.rows_origin = self.sources.rows_origin.saturating_add(rows_origin);
    }

    /// Takes back what a lane did not deliver.
    fn lane_failed(&mut self, routes: &Routes, lane: Lane, failure: &Failure) -> Result<(), Error> {
        let (node, used) = (lane.node(), lane.is_used());
        let verify = matches!(failure, Failure::Corrupt { .. });
        let rest = lane.into_rest().map(|job| Job { verify: job.verify || verify, ..job });
        self.work.extend(rest);
        self.node_failed(routes, node, failure, used)
    }

    /// Decides what a failure means for the rest of this gather, and for others.
    fn node_failed(
        &mut self,
        routes: &Routes,
        index: usize,
        failure: &Failure,
        used: bool,
    ) -> Result<(), Error> {
        let (node, strikes) = (&routes.nodes[index], &mut self.strikes[index]);
        let error = failure.to_error(&node.member.id);
        let down = match failure {
            Failure::Broken(_) if used && !strikes.broke => {
                strikes.broke = true;
                node.pool.clear();
                return Ok(());
            }
            Failure::Broken(_) | Failure::Silent | Failure::Protocol(_) | Failure::Unwilling(_) => {
                true
            }
            Failure::Corrupt { .. } => {
                metrics::counter!("larder_client_corrupt_rows").increment(1);
                tracing::warn!(%error, "asked again");
                strikes.out = strikes.corrupt;
                strikes.corrupt = true;
                false
            }
            Failure::Answer(answer) => match (answer.kind(), answer.advice()) {
                (ErrorKind::Unauthenticated | ErrorKind::NotFound, _) if !strikes.reopened => {
                    strikes.reopened = true;
                    node.forget();
                    return Ok(());
                }
                (_, Advice::Retry) => {
                    self.again = Some(error);
                    return Ok(());
                }
                (ErrorKind::DataLoss, _) => {
                    strikes.out = true;
                    self.lost = Some(error);
                    return Ok(());
                }
                (kind, Advice::TryNextNode) => {
                    strikes.out = true;
                    kind == ErrorKind::Unavailable
                }
                (_, Advice::CallerFault | Advice::GiveUp) => return Err(error),
            },
        };
        if down {
            strikes.out = true;
            node.forget();
            if node.member.health.fail(process::uptime()) {
                metrics::counter!("larder_client_nodes_passed_over").increment(1);
                tracing::warn!(%error, "the next node on the ring is asked");
            }
        }
        self.last = Some(error);
        Ok(())
    }

    /// Reads a job from the origin. That failing too, it goes back to the work, to be tried again
    /// while patience lasts: nodes may be back by then.
    fn ask_origin(&mut self, job: Job) -> Result<(), Error> {
        let (begun, fetcher) = (process::now(), self.fetcher);
        if fetcher.cluster.is_some() {
            fetcher.fallback.warn(&fetcher.manifest, self.last.as_ref());
        }
        let read = fetcher.fallback.read(
            &fetcher.manifest,
            &job,
            self.rows,
            self.tensors,
            &mut self.batch,
        );
        self.sources.wait_origin += process::now() - begun;
        match read {
            Ok(()) => self.sources.rows_origin += job.at.len() as u64,
            Err(error) if fetcher.cluster.is_none() && error.advice() != Advice::Retry => {
                return Err(error);
            }
            Err(error) if error.kind() == ErrorKind::DataChanged => return Err(error),
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

    /// Waits before the next round, longer each time, with jitter. Nodes that were passed over in
    /// this gather may be asked again after it.
    fn pause(&mut self, error: Error) -> Result<(), Error> {
        let longest = limits::RETRY_WAIT_MIN.saturating_mul(1 << self.tries.min(16));
        let wait = longest.min(limits::RETRY_WAIT_MAX).mul_f64(0.5 + 0.5 * fastrand::f64());
        let begun = process::now();
        if begun + wait >= self.deadline {
            let patience = self.fetcher.options.patience;
            return Err(error.context(format!("gave up after {patience:?}")));
        }
        tracing::debug!(%error, ?wait, "trying again");
        self.tries += 1;
        for strikes in &mut self.strikes {
            *strikes = Strikes { corrupt: strikes.corrupt, ..Strikes::default() };
        }
        let mut now = begun;
        while now < begun + wait {
            thread::park_timeout(begun + wait - now);
            now = process::now();
        }
        self.sources.wait_retries += now - begun;
        Ok(())
    }
}
