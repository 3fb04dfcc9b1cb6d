//! Memory under running copies, parked until the events of its copies are done.
//!
//! The program may leave a loop or drop a batch or an epoch while the device still copies. The
//! memory of such a copy goes to the lot. Each thread that takes memory sweeps the lot: it frees
//! all memory under finished copies. While anything is parked, a thread of the lot sweeps too, so a
//! program that stops using Larder gets its memory back.
//!
//! After the device was lost, and in a forked child, the lot frees nothing.
//!
//! Thread rule: any thread parks and sweeps. Memory is dropped after the lock is released.
//! Non-goals: making the program wait for the device.

use std::{
    any::Any,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use larder_extent::fork_count;

use super::{Driver, Event, planted};

/// How often the thread of a lot sweeps while memory is parked.
const LOOK: Duration = Duration::from_millis(5);

/// An idle thread of a lot ends after this.
const LINGER: Duration = Duration::from_millis(100);

pub(crate) struct Lot {
    driver: Arc<dyn Driver>,
    state: Mutex<State>,
    parked: Condvar,
    /// The [`fork_count`] of the process that created it.
    process: u32,
}

#[derive(Default)]
struct State {
    parked: Vec<Parked>,
    /// A thread sweeps.
    is_watched: bool,
}

struct Parked {
    until: Vec<Event>,
    held: Box<dyn Any + Send>,
}

impl Lot {
    pub(super) fn new(driver: Arc<dyn Driver>) -> Arc<Self> {
        let (state, parked) = (Mutex::default(), Condvar::new());
        Arc::new(Self { driver, state, parked, process: fork_count() })
    }

    /// Holds `held` until all events are done.
    pub(super) fn park(self: &Arc<Self>, mut until: Vec<Event>, held: impl Any + Send) {
        if !self.is_of_this_process() {
            return mem::forget(held);
        }
        if planted::is(planted::HOLD_NOTHING) {
            until.clear();
        }
        let mut state = self.lock();
        state.parked.push(Parked { until, held: Box::new(held) });
        let is_watched = mem::replace(&mut state.is_watched, true);
        drop(state);
        if is_watched {
            self.parked.notify_one();
        } else {
            self.watch();
        }
    }

    /// Frees memory under finished copies.
    pub(super) fn sweep(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut state = self.lock();
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        let mut index = 0;
        while index < state.parked.len() {
            match state.parked[index].is_done() {
                Ok(true) => done.push(state.parked.swap_remove(index)),
                Err(_) if self.driver.check().is_err() => {
                    lost.push(state.parked.swap_remove(index));
                }
                // An event that can't be queried now stays too.
                Ok(false) | Err(_) => index += 1,
            }
        }
        drop(state);
        mem::forget(lost);
        if self.driver.check().is_ok() { drop(done) } else { mem::forget(done) }
    }

    /// Sweeps again after a short wait. Returns whether memory was parked before.
    pub(super) fn sweep_once_more(&self) -> bool {
        if !self.is_of_this_process() || self.lock().parked.is_empty() {
            return false;
        }
        thread::park_timeout(Duration::from_millis(1));
        self.sweep();
        true
    }

    /// Whether this process created it. A forked child lacks its threads, and may find the lock
    /// held.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == fork_count()
    }

    /// Starts the sweeping thread, which keeps the lot alive while memory is parked.
    fn watch(self: &Arc<Self>) {
        let lot = Arc::clone(self);
        let thread = thread::Builder::new().name("larder-device".to_owned());
        let look = move || {
            lot.driver.adopt_thread();
            while lot.look() {}
        };
        if thread.spawn(look).is_err() {
            // Threads that take memory sweep instead.
            self.lock().is_watched = false;
        }
    }

    /// Sweeps once, and waits. Returns whether to sweep again.
    fn look(&self) -> bool {
        self.sweep();
        let state = self.lock();
        let pause = if state.parked.is_empty() { LINGER } else { LOOK };
        let waited = self.parked.wait_timeout(state, pause);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_watched = !(timeout.timed_out() && state.parked.is_empty());
        state.is_watched
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lot {
    fn drop(&mut self) {
        // The rest had no thread to sweep it, and its copies may still run.
        mem::forget(mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner)));
    }
}

impl Parked {
    fn is_done(&mut self) -> Result<bool, crate::Error> {
        while let Some(event) = self.until.last() {
            if !event.is_done()? {
                return Ok(false);
            }
            self.until.pop();
        }
        let _ = &self.held;
        Ok(true)
    }
}
