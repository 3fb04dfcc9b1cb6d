//! Vector clocks: which work of which stream is known to be done.
//!
//! A [`Tick`] names one piece of work by its stream and its number there. A [`Clock`] maps each
//! stream to the last number that is ordered before the clock's owner. Streams, events and the host
//! have a clock each, and clocks join where CUDA orders one owner after another.
//! Thread rule: plain values under the state's mutex. Non-goals: real time.

use std::collections::BTreeMap;

/// One piece of work: the stream's handle and the number of the work in that stream, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) stream: u64,
    pub(crate) index: u64,
}

/// For each stream, the last work that is ordered before the owner of this clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    /// Orders the owner after everything that `other` has seen.
    pub(crate) fn join(&mut self, other: &Clock) {
        for (stream, index) in &other.0 {
            self.see(Tick { stream: *stream, index: *index });
        }
    }

    /// Orders the owner after `tick` and all earlier work of its stream.
    pub(crate) fn see(&mut self, tick: Tick) {
        let seen = self.0.entry(tick.stream).or_default();
        *seen = tick.index.max(*seen);
    }

    /// Tells whether the owner is ordered after `tick`.
    pub(crate) fn saw(&self, tick: Tick) -> bool {
        self.0.get(&tick.stream).is_some_and(|index| *index >= tick.index)
    }
}
