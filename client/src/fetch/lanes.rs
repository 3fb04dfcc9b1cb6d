//! The connections of one gather: requests go out on all of them, then frames are taken from
//! whichever has one.

use std::{collections::VecDeque, os::fd::AsFd, thread, time::Instant};

use larder_wire::limits;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{gather::Gathering, session::Routes};
use crate::{
    process,
    remote::{Failure, Job, Progress, Received, Slot},
};

/// A connection with a request on it, and those to follow.
pub(super) struct Lane {
    node: usize,
    slot: Slot,
    /// The first is being answered.
    jobs: VecDeque<Job>,
    progress: Progress,
    /// When the node last said something.
    heard: Instant,
}

impl Lane {
    pub(super) fn new(node: usize, slot: Slot, jobs: Vec<Job>) -> Self {
        let (progress, heard) = (Progress::default(), process::now());
        Self { node, slot, jobs: jobs.into(), progress, heard }
    }

    pub(super) fn node(&self) -> usize {
        self.node
    }

    /// Whether the connection had served before.
    pub(super) fn is_used(&self) -> bool {
        self.slot.is_connected() && self.slot.is_used()
    }

    /// What did not come.
    pub(super) fn into_rest(self) -> impl Iterator<Item = Job> {
        let mut jobs = self.jobs.into_iter();
        let first = jobs.next().map(|job| job.rest(self.progress));
        first.into_iter().flatten().chain(jobs)
    }

    fn ask(&mut self, gathering: &Gathering<'_, '_>) -> Result<(), Failure> {
        let Some(job) = self.jobs.front() else {
            return Ok(());
        };
        self.heard = process::now();
        self.progress = Progress::default();
        let snapshot = gathering.fetcher.manifest.snapshot();
        self.slot.ask(snapshot, job, gathering.rows, gathering.tensors)
    }

    /// Takes one frame. True when that was the last of the last job.
    fn receive(
        &mut self,
        gathering: &mut Gathering<'_, '_>,
        routes: &Routes,
    ) -> Result<bool, Failure> {
        let Some(job) = self.jobs.front() else {
            return Ok(true);
        };
        let received = self.slot.receive(job, &mut self.progress, &mut gathering.batch)?;
        self.heard = process::now();
        if let Received::End(end) = received {
            gathering.lane_finished(routes, self.node, end.rows_origin.min(job.at.len() as u64));
            self.jobs.pop_front();
            self.ask(gathering)?;
        }
        Ok(self.jobs.is_empty())
    }
}

/// The lanes of one gather.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Connects lanes that are not connected, side by side, and sends their first requests. The
    /// lanes that failed come back.
    pub(super) fn start(
        &mut self,
        gathering: &Gathering<'_, '_>,
        routes: &Routes,
        mut started: Vec<Lane>,
    ) -> Vec<(Lane, Failure)> {
        let connected = connect_all(routes, &mut started);
        let mut failed = Vec::new();
        for (mut lane, connected) in started.into_iter().zip(connected) {
            match connected.and_then(|()| lane.ask(gathering)) {
                Ok(()) => self.lanes.push(lane),
                Err(failure) => failed.push((lane, failure)),
            }
        }
        failed
    }

    /// Takes frames until a lane fails, which comes back, or all are done.
    pub(super) fn receive(
        &mut self,
        gathering: &mut Gathering<'_, '_>,
        routes: &Routes,
    ) -> Option<(Lane, Failure)> {
        while !self.lanes.is_empty() {
            let index = match self.next_ready() {
                Ok(index) => index,
                Err(silent) => return Some((self.lanes.swap_remove(silent), Failure::Silent)),
            };
            match self.lanes[index].receive(gathering, routes) {
                // Served last from now on, so that no node waits for another's whole stream.
                Ok(false) => self.lanes.rotate_left(index + 1),
                Ok(true) => drop(self.lanes.swap_remove(index)),
                Err(failure) => return Some((self.lanes.swap_remove(index), failure)),
            }
        }
        None
    }

    /// A lane that has a frame; or one that was silent for too long. A single lane is read without
    /// asking first: its socket has the same timeout.
    fn next_ready(&mut self) -> Result<usize, usize> {
        if self.lanes.len() == 1 {
            return Ok(0);
        }
        loop {
            let (oldest, heard) = self.oldest();
            let silent_at = heard + limits::OWNER_SILENT_TIMEOUT;
            let left = silent_at.saturating_duration_since(process::now());
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            if let Some(index) = self.poll(timeout) {
                // Lanes before it had nothing, so they are next in turn.
                self.lanes.rotate_left(index);
                return Ok(0);
            }
            if process::now() >= silent_at {
                return Err(oldest);
            }
        }
    }

    /// Whether every node said something since `when`: none is about to be found silent.
    pub(super) fn all_heard_since(&self, when: Instant) -> bool {
        self.lanes.iter().all(|lane| lane.heard >= when)
    }

    fn oldest(&self) -> (usize, Instant) {
        let heard = self.lanes.iter().map(|lane| lane.heard).enumerate();
        heard.min_by_key(|&(_, heard)| heard).expect("asked only while there are lanes")
    }

    /// The first lane with something to read, or that broke.
    fn poll(&self, timeout: PollTimeout) -> Option<usize> {
        let buffered = self.lanes.iter().any(|lane| lane.slot.has_buffered());
        let timeout = if buffered { PollTimeout::ZERO } else { timeout };
        let polled = |lane| PollFd::new(lane, PollFlags::POLLIN);
        let mut fds: Vec<PollFd<'_>> =
            self.lanes.iter().map(|lane| polled(lane.slot.as_fd())).collect();
        // An interrupted poll is one without news.
        let ready = poll(&mut fds, timeout).unwrap_or(0);
        let mut lanes = self.lanes.iter().zip(&fds);
        lanes.position(|(lane, fd)| {
            lane.slot.has_buffered() || (ready > 0 && fd.any().unwrap_or(true))
        })
    }
}

/// Connects what is not connected. Several at once each on a thread of its own, so that hosts that
/// are gone cost one timeout together.
fn connect_all(routes: &Routes, lanes: &mut [Lane]) -> Vec<Result<(), Failure>> {
    let connect = |lane: &mut Lane| {
        if lane.slot.is_connected() {
            return Ok(());
        }
        routes.nodes[lane.node].connect().map(|connection| lane.slot.set(connection))
    };
    if lanes.iter().filter(|lane| !lane.slot.is_connected()).count() < 2 {
        return lanes.iter_mut().map(connect).collect();
    }
    thread::scope(|scope| {
        let threads: Vec<_> =
            lanes.iter_mut().map(|lane| scope.spawn(move || connect(lane))).collect();
        let panicked = |_| Err(Failure::Broken("connecting panicked".to_owned()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}
