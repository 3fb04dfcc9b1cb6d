//! Streams and events: queues of work, the threads that run it, and the order between them.
//!
//! [`State::push`] queues a [`Task`]. A task waits for the ticks that CUDA orders before it, and
//! the stream's clock joins theirs. The legacy default stream of a context waits for all work of
//! blocking streams, and blocking streams wait for it. An event is a tick and a copy of a clock.
//!
//! Thread rule: one thread per stream (`worker`). Queues are bounded: [`room`] waits before a call
//! queues work.
//! Non-goals: priorities, capture and graphs.

mod worker;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};

use crate::codes::{self, Code};
use crate::state::clock::{Clock, Tick};
use crate::state::queue::{Kind, Stream, Task, Work};
use crate::state::{Held, State, until};

/// Tasks that a stream queues; a call waits for room beyond.
const QUEUE_MAX: usize = 1024;

thread_local! {
    /// Set in stream threads: host functions must not call the driver.
    pub(crate) static IS_STREAM: Cell<bool> = const { Cell::new(false) };
}

impl State {
    /// Creates a stream and its thread.
    pub(crate) fn add_stream(&mut self, device: usize, kind: Kind) -> u64 {
        let (handle, wake) = (self.new_handle(), Arc::new(Condvar::new()));
        let stream = Stream {
            device,
            kind,
            destroyed: false,
            wake: Arc::clone(&wake),
            clock: Clock::default(),
            submitted: 0,
            completed: 0,
            queue: VecDeque::new(),
            waits: Vec::new(),
        };
        self.streams.insert(handle, stream);
        let thread = std::thread::Builder::new().name("standin-stream".to_owned());
        thread.spawn(move || worker::run(handle, &wake)).expect("a thread for a stream");
        handle
    }

    /// The stream that a handle of the driver means: 0 and 1 the legacy default stream of the
    /// current context, 2 the thread's default stream.
    pub(crate) fn stream(&mut self, call: &'static str, handle: u64) -> Result<u64, Code> {
        let device = self.current(call)?;
        let kind = match handle {
            0 | 1 => Kind::Legacy,
            2 => Kind::PerThread(std::thread::current().id()),
            _ => {
                let known = self.streams.get(&handle).is_some_and(|stream| !stream.destroyed);
                return known.then_some(handle).ok_or(codes::INVALID_HANDLE);
            }
        };
        let mut streams = self.streams.iter();
        let found = streams.find(|(_, stream)| stream.device == device && stream.kind == kind);
        Ok(found.map(|(id, _)| *id).unwrap_or_else(|| self.add_stream(device, kind)))
    }

    /// A stream's name in a mistake.
    pub(crate) fn stream_name(&self, handle: u64) -> String {
        match self.streams.get(&handle).map(|stream| stream.kind) {
            Some(Kind::Legacy) => "the legacy default stream".to_owned(),
            Some(Kind::PerThread(_)) => "a per-thread default stream".to_owned(),
            _ => format!("stream {handle:#x}"),
        }
    }

    /// Orders the next task of a stream after the work that CUDA's default-stream rules name and
    /// after all that the host has waited for.
    pub(crate) fn order(&mut self, handle: u64) {
        let Some(stream) = self.streams.get(&handle) else { return };
        let (device, kind) = (stream.device, stream.kind);
        let mut ticks = Vec::new();
        let mut clock = self.host.clone();
        for (id, other) in self.streams.iter().filter(|(_, other)| other.device == device) {
            let before = match kind {
                Kind::Legacy => other.kind != Kind::NonBlocking,
                Kind::PerThread(_) | Kind::Blocking => other.kind == Kind::Legacy,
                Kind::NonBlocking => false,
            };
            if before && *id != handle && other.submitted > 0 {
                ticks.push(other.last(*id));
                clock.join(&other.clock);
            }
        }
        self.order_after(handle, &ticks, &clock);
    }

    /// Orders the next task of a stream after `ticks`, and the stream's clock after `clock`.
    pub(crate) fn order_after(&mut self, handle: u64, ticks: &[Tick], clock: &Clock) {
        let Some(stream) = self.streams.get_mut(&handle) else { return };
        stream.waits.extend(ticks);
        stream.clock.join(clock);
    }

    /// The tick that the next task of a stream will get.
    pub(crate) fn next_tick(&self, handle: u64) -> Tick {
        let submitted = self.streams.get(&handle).map_or(0, |stream| stream.submitted);
        Tick { stream: handle, index: submitted + 1 }
    }

    /// Queues work after [`State::order`].
    pub(crate) fn push(&mut self, handle: u64, work: Work) -> Tick {
        let tick = self.next_tick(handle);
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.submitted = tick.index;
            stream.clock.see(tick);
            let after = std::mem::take(&mut stream.waits);
            stream.queue.push_back(Task { after, work });
            stream.wake.notify_one();
        }
        tick
    }

    pub(crate) fn done(&self, tick: Tick) -> bool {
        self.streams.get(&tick.stream).is_none_or(|stream| stream.completed >= tick.index)
    }

    /// The streams that a wait for `handle` waits for.
    pub(crate) fn covered(&self, handle: u64) -> Vec<u64> {
        let legacy = self.streams.get(&handle).filter(|stream| stream.kind == Kind::Legacy);
        let Some(device) = legacy.map(|stream| stream.device) else { return vec![handle] };
        let blocking =
            |stream: &Stream| stream.device == device && stream.kind != Kind::NonBlocking;
        self.streams.iter().filter(|(_, s)| blocking(s)).map(|(id, _)| *id).collect()
    }

    /// All streams of a device's context.
    pub(crate) fn streams_of(&self, device: usize) -> Vec<u64> {
        self.streams.iter().filter(|(_, s)| s.device == device).map(|(id, _)| *id).collect()
    }

    /// The newest work of the streams, and a clock that has seen it.
    pub(crate) fn newest(&self, streams: &[u64]) -> (Vec<Tick>, Clock) {
        let mut clock = Clock::default();
        let mut ticks = Vec::new();
        for handle in streams {
            if let Some(stream) = self.streams.get(handle) {
                ticks.push(stream.last(*handle));
                clock.join(&stream.clock);
            }
        }
        (ticks, clock)
    }

    /// Asks whether the streams are idle. If so, the host knows it from now on.
    pub(crate) fn query(&mut self, streams: &[u64]) -> Result<(), Code> {
        let (ticks, clock) = self.newest(streams);
        if !ticks.iter().all(|tick| self.done(*tick)) {
            return Err(codes::NOT_READY);
        }
        self.host.join(&clock);
        Ok(())
    }
}

/// Waits until a stream has room for a task.
pub(crate) fn room(state: Held, handle: u64) -> Result<Held, Code> {
    until(state, |state| state.streams.get(&handle).is_none_or(|s| s.queue.len() < QUEUE_MAX))
}

/// Waits for the newest work of the streams.
pub(crate) fn synchronize(state: Held, streams: &[u64]) -> Result<Held, Code> {
    let (ticks, clock) = state.newest(streams);
    let mut state = until(state, |state| ticks.iter().all(|tick| state.done(*tick)))?;
    state.host.join(&clock);
    Ok(state)
}
