//! The connections of one gather. Requests go out on all of them, then frames are read from each
//! connection that has one. Reports events; `gather` decides what to do.

use std::{
    collections::VecDeque,
    io,
    os::fd::AsFd,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use larder_base::limits;
use larder_wire::data::GatherEnd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::node::Node;
use crate::{
    deadline::CancelToken,
    process,
    remote::{ConnectionSlot, Failure, Job, Progress, Received, Wanted},
};

/// A connection with a request on it, and the requests to follow.
pub(super) struct Lane {
    index: usize,
    node: Arc<Node>,
    slot: ConnectionSlot,
    /// The first is in progress if `asked`.
    jobs: VecDeque<Job>,
    asked: bool,
    progress: Progress,
    /// The time of the node's last frame.
    heard: Instant,
    /// The time of the last rows, or of the request.
    moved: Instant,
    longest: Wait,
}

/// The time until rows arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) waited: Duration,
    /// The place in the batch of the first row that was waited for.
    pub(super) at: u32,
}

/// The outcome of a request.
pub(super) enum Event {
    /// It was answered in full.
    Answered {
        node: usize,
        /// Rows that the node had to read from the origin.
        rows_origin: u64,
        origin_bytes: u64,
        /// The version of the node's ring.
        ring_version: u64,
        /// The longest wait within the answer.
        longest: Wait,
    },
    /// The node has no rows yet, and says that it lives.
    Alive { node: usize },
    /// It failed, and its connection is closed.
    Failed(Box<Lane>, Failure),
}

impl Lane {
    /// Creates a lane over a slot, connected or not. `jobs` is not empty, and no job is.
    pub(super) fn new(index: usize, node: Arc<Node>, slot: ConnectionSlot, jobs: Vec<Job>) -> Self {
        let (progress, now) = (Progress::default(), process::now());
        let longest = Wait { waited: Duration::ZERO, at: jobs[0].at[0] };
        let (jobs, asked) = (jobs.into(), false);
        Self { index, node, slot, jobs, asked, progress, heard: now, moved: now, longest }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether the connection had served before.
    pub(super) fn is_used(&self) -> bool {
        self.slot.is_connected() && self.slot.is_used()
    }

    /// The longest wait so far, including the current one.
    pub(super) fn longest(&self) -> Wait {
        let waited = process::now().saturating_duration_since(self.moved);
        match self.jobs.front() {
            Some(job) if waited > self.longest.waited => {
                Wait { waited, at: job.at[self.progress.rows] }
            }
            _ => self.longest,
        }
    }

    /// The missing rows, and the slot, which others may wait for.
    pub(super) fn into_rest(self) -> (impl Iterator<Item = Job>, ConnectionSlot) {
        let mut jobs = self.jobs.into_iter();
        let first = jobs.next().map(|job| job.rest(self.progress));
        (first.into_iter().flatten().chain(jobs), self.slot)
    }

    fn connect(&mut self, cancel: &CancelToken) -> Result<(), Failure> {
        if self.slot.is_connected() {
            return Ok(());
        }
        self.node.connect(cancel).map(|connection| self.slot.set(connection))
    }

    fn ask(
        &mut self,
        wanted: &Wanted<'_, '_>,
        cancel: &CancelToken,
        longest: Duration,
    ) -> Result<(), Failure> {
        let Some(job) = self.jobs.front() else {
            return Ok(());
        };
        self.progress = Progress::default();
        self.heard = process::now();
        self.moved = self.heard;
        self.longest = Wait { waited: Duration::ZERO, at: job.at[0] };
        self.asked = true;
        self.slot.ask(wanted, job, cancel, longest)
    }

    /// Reads one frame. Returns an event at the end of an answer.
    fn receive(&mut self, wanted: &mut Wanted<'_, '_>) -> Result<Option<Event>, Failure> {
        let Some(job) = self.jobs.front() else {
            return Ok(None);
        };
        let first = job.at[self.progress.rows];
        let received = self.slot.receive(job, &mut self.progress, wanted)?;
        self.heard = process::now();
        match received {
            Received::Alive => Ok(Some(Event::Alive { node: self.index })),
            Received::Rows => {
                let waited = self.heard - self.moved;
                if waited > self.longest.waited {
                    self.longest = Wait { waited, at: first };
                }
                self.moved = self.heard;
                Ok(None)
            }
            Received::End(end) => {
                let rows_origin = end.rows_origin.min(job.at.len() as u64);
                let (node, longest) = (self.index, self.longest);
                self.jobs.pop_front();
                self.asked = false;
                let GatherEnd { ring_version, origin_bytes, .. } = end;
                let answered =
                    Event::Answered { node, rows_origin, origin_bytes, ring_version, longest };
                Ok(Some(answered))
            }
        }
    }
}

/// The lanes of one gather.
pub(super) struct Lanes<'a> {
    lanes: Vec<Lane>,
    cancel: &'a CancelToken,
    longest: Duration,
}

impl<'a> Lanes<'a> {
    /// Creates an empty set that runs until `cancel` is cancelled. A node that sends no rows for
    /// `longest` counts as silent, even if it sends other frames.
    pub(super) fn new(cancel: &'a CancelToken, longest: Duration) -> Self {
        Self { lanes: Vec::new(), cancel, longest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Connects lanes side by side where needed, and sends their first requests. Returns the lanes
    /// that failed.
    pub(super) fn start(
        &mut self,
        wanted: &Wanted<'_, '_>,
        mut started: Vec<Lane>,
    ) -> Vec<(Lane, Failure)> {
        let connected = connect_all(&mut started, self.cancel);
        let mut failed = Vec::new();
        for (mut lane, connected) in started.into_iter().zip(connected) {
            match connected.and_then(|()| lane.ask(wanted, self.cancel, self.longest)) {
                Ok(()) => self.lanes.push(lane),
                Err(failure) => failed.push((lane, failure)),
            }
        }
        failed
    }

    /// Reads frames until a request was answered or failed. `None` if no lane is left.
    pub(super) fn next(&mut self, wanted: &mut Wanted<'_, '_>) -> Option<Event> {
        while !self.lanes.is_empty() {
            let (index, received) = match self.next_ready(wanted) {
                Ok(index) => (index, self.lanes[index].receive(wanted)),
                Err((index, failure)) => (index, Err(failure)),
            };
            let event = match received {
                Ok(event) => event,
                Err(failure) => {
                    let lane = Box::new(self.lanes.swap_remove(index));
                    return Some(Event::Failed(lane, failure));
                }
            };
            if self.lanes[index].jobs.is_empty() {
                drop(self.lanes.swap_remove(index));
            } else {
                // Served last from now on, so that no node waits for another's whole stream.
                self.lanes.rotate_left(index + 1);
            }
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// A lane that has a frame, that can't be asked, or that was silent for too long. A single lane
    /// is read without polling, because its socket has the same timeout.
    fn next_ready(&mut self, wanted: &Wanted<'_, '_>) -> Result<usize, (usize, Failure)> {
        for (index, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| !lane.asked) {
            lane.ask(wanted, self.cancel, self.longest).map_err(|failure| (index, failure))?;
        }
        loop {
            if self.cancel.is_cancelled() {
                return Err((0, Failure::Broken("the call was cancelled".to_owned())));
            }
            if self.lanes.len() == 1 {
                return Ok(0);
            }
            let (oldest, heard) = self.oldest();
            let silent_at = heard + limits::OWNER_SILENT_TIMEOUT;
            let left = silent_at.saturating_duration_since(process::now());
            let slice = left.min(limits::CANCEL_CHECK_INTERVAL);
            let timeout = PollTimeout::try_from(slice.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            if let Some(index) = self.poll(timeout) {
                // Lanes before it had no frame, so they are next in turn.
                self.lanes.rotate_left(index);
                return Ok(0);
            }
            if process::now() >= silent_at {
                return Err((oldest, Failure::Silent));
            }
        }
    }

    /// Whether every node sent a frame since `when`, so that none will soon count as silent.
    pub(super) fn all_heard_since(&self, when: Instant) -> bool {
        self.lanes.iter().all(|lane| lane.heard >= when)
    }

    fn oldest(&self) -> (usize, Instant) {
        let heard = self.lanes.iter().map(|lane| lane.heard).enumerate();
        heard.min_by_key(|&(_, heard)| heard).expect("asked only while there are lanes")
    }

    /// The first lane that is readable or broken.
    fn poll(&self, timeout: PollTimeout) -> Option<usize> {
        let buffered = self.lanes.iter().any(|lane| lane.slot.has_buffered());
        let timeout = if buffered { PollTimeout::ZERO } else { timeout };
        let polled = |lane| PollFd::new(lane, PollFlags::POLLIN);
        let mut fds: Vec<PollFd<'_>> =
            self.lanes.iter().map(|lane| polled(lane.slot.as_fd())).collect();
        // An interrupted poll reports no lane as ready.
        let ready = poll(&mut fds, timeout).unwrap_or(0);
        let mut lanes = self.lanes.iter().zip(&fds);
        lanes.position(|(lane, fd)| {
            lane.slot.has_buffered() || (ready > 0 && fd.any().unwrap_or(true))
        })
    }
}

/// Connects lanes. Uses a thread for each of several, so that dead hosts cost one timeout together.
/// A lane whose thread can't be started counts as broken.
fn connect_all(lanes: &mut [Lane], cancel: &CancelToken) -> Vec<Result<(), Failure>> {
    if lanes.iter().filter(|lane| !lane.slot.is_connected()).count() < 2 {
        return lanes.iter_mut().map(|lane| lane.connect(cancel)).collect();
    }
    thread::scope(|scope| {
        let start = |lane| {
            let connect = move || Lane::connect(lane, cancel);
            thread::Builder::new().spawn_scoped(scope, connect)
        };
        let threads: Vec<_> = lanes.iter_mut().map(start).collect();
        let panicked = |_| Err(Failure::Broken("connecting panicked".to_owned()));
        let refused = |why| Failure::Broken(format!("no thread to connect: {why}"));
        let join = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
            thread.map_err(refused)?.join().unwrap_or_else(panicked)
        };
        threads.into_iter().map(join).collect()
    })
}
