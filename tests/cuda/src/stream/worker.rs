//! The thread of a stream: it takes tasks in order and runs them.
//!
//! The first task waits until its ticks are done. After each task the thread notifies the state's
//! condition variable. On a lost device tasks end without a run.
//! Thread rule: takes a task under the state's mutex and runs it outside of it.
//! Non-goals: deciding on which events a task waits.

use std::sync::{Condvar, PoisonError};
use std::time::Instant;

use super::IS_STREAM;
use crate::mistakes;
use crate::state::moves::Move;
use crate::state::queue::{Stream, Work};
use crate::state::{Held, State, driver, lock, wait};

/// Ends the process when a stream's thread panics. Its waiters would wait for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// The thread of a stream.
pub(super) fn run(handle: u64, wake: &Condvar) {
    let _guard = AbortOnPanic;
    IS_STREAM.set(true);
    let mut state = lock();
    while let Some(stream) = state.streams.get(&handle) {
        let Some(task) = stream.queue.front() else {
            if stream.destroyed {
                state.forget_stream(handle);
                return;
            }
            state = wait(wake, state);
            continue;
        };
        if state.lost.is_none() && !task.after.iter().all(|tick| state.done(*tick)) {
            state = wait(&driver().progress, state);
            continue;
        }
        let task = state.streams.get_mut(&handle).and_then(|stream| stream.queue.pop_front());
        let Some(task) = task else { continue };
        let failed;
        (state, failed) = perform(state, &task.work);
        state.finish(handle, &task.work, failed);
        driver().progress.notify_all();
    }
}

/// Runs work without the mutex. On a lost device the work is dropped.
fn perform(mut state: Held, work: &Work) -> (Held, Option<std::io::Error>) {
    let delay = state.settings.delay;
    if matches!(work, Work::Copy { .. }) && !delay.is_zero() {
        let healthy = |state: &mut State| state.lost.is_none();
        state = driver()
            .progress
            .wait_timeout_while(state, delay, healthy)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    if state.lost.is_some() {
        return (state, None);
    }
    if let Work::Host { clock, .. } = work {
        state.host.join(clock);
    }
    drop(state);
    let done = match work {
        Work::Copy { moves, .. } => moves.iter().try_for_each(Move::run),
        Work::Fill(fill) => {
            fill.run();
            Ok(())
        }
        Work::Stamp(stamp) => {
            stamp.get_or_init(now);
            Ok(())
        }
        Work::Host { function, argument, .. } => {
            function(std::ptr::with_exposed_provenance_mut(*argument));
            Ok(())
        }
        Work::Wait => Ok(()),
    };
    (lock(), done.err())
}

#[expect(clippy::disallowed_methods, reason = "events carry the time at which a stream met them")]
fn now() -> Instant {
    Instant::now()
}

impl State {
    /// Forgets a destroyed stream if the host has waited for all its work.
    fn forget_stream(&mut self, handle: u64) {
        let seen = |stream: &Stream| stream.submitted == 0 || self.host.saw(stream.last(handle));
        if self.streams.get(&handle).is_some_and(seen) {
            self.streams.remove(&handle);
        }
    }

    fn finish(&mut self, handle: u64, work: &Work, failed: Option<std::io::Error>) {
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.completed += 1;
        }
        if let Work::Copy { call, moves } = work {
            moves.iter().for_each(Move::release);
            if let Some(error) = failed {
                let stream = self.stream_name(handle);
                let detail =
                    format!("a copy that {call} queued on {stream} found no pages: {error}");
                self.mistake(mistakes::UNMAPPED, detail);
            }
        }
    }
}
