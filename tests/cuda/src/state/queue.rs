//! Streams and events: the queues of work and the clocks that the state keeps for them.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, OnceLock};
use std::time::Instant;

use super::clock::{Clock, Tick};
use super::moves::{Fill, Move};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Legacy,
    /// The per-thread default stream of one thread.
    PerThread(std::thread::ThreadId),
    Blocking,
    NonBlocking,
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// The context's device.
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    pub(crate) destroyed: bool,
    /// Wakes the thread when there is a task.
    pub(crate) wake: Arc<Condvar>,
    pub(crate) clock: Clock,
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) queue: VecDeque<Task>,
    /// Ticks that the next task must wait for.
    pub(crate) waits: Vec<Tick>,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) after: Vec<Tick>,
    pub(crate) work: Work,
}

/// The time at which an event was reached.
pub(crate) type Stamp = Arc<OnceLock<Instant>>;
/// A host function: `CUhostFn`.
pub(crate) type HostFunction = extern "C" fn(*mut c_void);

#[derive(Debug)]
pub(crate) enum Work {
    Copy {
        call: &'static str,
        moves: Vec<Move>,
    },
    Fill(Fill),
    Stamp(Stamp),
    /// The address is the host function's argument. The clock is the stream's at this task.
    Host {
        function: HostFunction,
        argument: usize,
        clock: Clock,
    },
    /// Only waits.
    Wait,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) device: usize,
    pub(crate) timed: bool,
    pub(crate) recorded: Option<Recorded>,
}

/// The last record of an event.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) tick: Tick,
    pub(crate) clock: Clock,
    pub(crate) stamp: Stamp,
}

impl Stream {
    /// The newest work.
    pub(crate) fn last(&self, handle: u64) -> Tick {
        Tick { stream: handle, index: self.submitted }
    }
}
