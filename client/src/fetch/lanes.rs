//! The connections of one gather: requests go out on all of them, then frames are taken from
//! whichever has one. What comes of it is told as events; what they mean is decided in `gather`.

use std::{
    collections::VecDeque,
    os::fd::AsFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use larder_base::limits;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::node::Node;
use crate::{
    deadline::CancelToken,
    process,
    remote::{Failure, Job, Progress, Received, Slot, Wanted},
};

/// A connection with a request on it, and those to follow.
pub(super) struct Lane {
    /// Index of the node among the ring's members.
    index: usize,
    node: Arc<Node>,
    slot: Slot,
    /// The first is being answered, if it was asked.
    jobs: VecDeque<Job>,
    asked: bool,
    progress: Progress,
    /// When the node last said something.
    heard: Instant,
    /// When rows last came, or the request went out.
    moved: Instant,
    longest: Wait,
}

/// The time until something came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) waited: Duration,
    /// Where in the batch the first row stands of what was waited for.
    pub(super) at: u32,
}

/// What became of a request.
pub(super) enum Event {
    /// It was answered in full.
    Answered {
        /// Index of the node.
        node: usize,
        /// Rows that the node had to read from the origin.
        rows_origin: u64,
        /// The ring that the node has.
        ring_version: u64,
        /// The longest wait within the answer.
        longest: Wait,
    },
    /// It was not, and its connection is given up.
    Failed(Box<Lane>, Failure),
}

impl Lane {
    /// A lane over a slot that may still have to be connected. `jobs` are not empty, nor is any of
    /// them.
    pub(super) fn new(index: usize, node: Arc<Node>, slot: Slot, jobs: Vec<Job>) -> Self {
        let (progress, now) = (Progress::default(), process::now());
        let longest = Wait { waited: Duration::ZERO, at: jobs[0].at[0] };
        let (jobs, asked) = (jobs.into(), false);
        Self { index, node, slot, jobs, asked, progress, heard: now, moved: now, longest }
    }

    /// Index of its node.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Whether the connection had served before.
    pub(super) fn is_used(&self) -> bool {
        self.slot.is_connected() && self.slot.is_used()
    }

    /// The longest wait so far, that for what has not come included.
    pub(super) fn longest(&self) -> Wait {
        let waited = process::now().saturating_duration_since(self.moved);
        match self.jobs.front() {
            Some(job) if waited > self.longest.waited => {
                Wait { waited, at: job.at[self.progress.rows] }
            }
            _ => self.longest,
        }
    }

    /// What did not come, and the slot, for which others may wait.
    pub(super) fn into_rest(self) -> (impl Iterator<Item = Job>, Slot) {
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

    /// Sends the next request, if there is one.
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

    /// Takes one frame. An event when it was the last of an answer.
    fn receive(&mut self, wanted: &mut Wanted<'_, '_>) -> Result<Option<Event>, Failure> {
        let Some(job) = self.jobs.front() else {
            return Ok(None);
        };
        let first = job.at[self.progress.rows];
        let received = self.slot.receive(job, &mut self.progress, wanted)?;
        self.heard = process::now();
        match received {
            Received::Alive => Ok(None),
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
                let ring_version = end.ring_version;
                Ok(Some(Event::Answered { node, rows_origin, ring_version, longest }))
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
    /// None yet. They go on until `cancel` is used. A node that brings no rows for `longest` counts
    /// as silent, whatever signs of life it gives.
    pub(super) fn new(cancel: &'a CancelToken, longest: Duration) -> Self {
        Self { lanes: Vec::new(), cancel, longest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Connects lanes that are not connected, side by side, and sends their first requests. The
    /// lanes that failed come back.
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

    /// Takes frames until a request was answered or has failed; `None` when none is left.
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

    /// A lane that has a frame; or one that can't be asked or was silent for too long. A single
    /// lane is read without polling first: its socket has the same timeout.
    fn next_ready(&mut self, wanted: &Wanted<'_, '_>) -> Result<usize, (usize, Failure)> {
        for (index, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| !lane.asked) {
            lane.ask(wanted, self.cancel, self.longest).map_err(|failure| (index, failure))?;
        }
        loop {
            if self.cancel.is_cancelled() {
                return Err((0, Failure::Broken("it is not needed any more".to_owned())));
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
                // Lanes before it had nothing, so they are next in turn.
                self.lanes.rotate_left(index);
                return Ok(0);
            }
            if process::now() >= silent_at {
                return Err((oldest, Failure::Silent));
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
fn connect_all(lanes: &mut [Lane], cancel: &CancelToken) -> Vec<Result<(), Failure>> {
    if lanes.iter().filter(|lane| !lane.slot.is_connected()).count() < 2 {
        return lanes.iter_mut().map(|lane| lane.connect(cancel)).collect();
    }
    thread::scope(|scope| {
        let threads: Vec<_> =
            lanes.iter_mut().map(|lane| scope.spawn(move || lane.connect(cancel))).collect();
        let panicked = |_| Err(Failure::Broken("connecting panicked".to_owned()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}
