//! All that the stand-in knows, under one mutex.
//!
//! The modules below it define the types that it holds. Other modules add methods to [`State`].
//! Thread rule: [`lock`] gives access; [`until`] waits on one condition variable that each finished
//! piece of work notifies.
//! Non-goals: behaviour of single calls.

pub(crate) mod blocks;
pub(crate) mod clock;
pub(crate) mod moves;
pub(crate) mod queue;
pub(crate) mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::codes::Code;
use crate::settings::Settings;
use blocks::{Block, Registration};
use clock::Clock;
use queue::{Event, Stream};

/// Mistakes that a report keeps; it counts the others.
const MISTAKES_MAX: usize = 100;

/// Access to the state.
pub(crate) type Held = MutexGuard<'static, State>;

/// The one driver of this process.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The process that called first. Its forked children must not use the driver.
    pub(crate) process: u32,
    pub(crate) settings: Settings,
    state: OnceLock<Mutex<State>>,
    /// Notified when work is done and when the device is lost.
    pub(crate) progress: Condvar,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// A mistake of the program.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) kind: &'static str,
    pub(crate) detail: String,
}

/// Sums for the report. `*_max` is a peak.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) copies: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) batched_copies: u64,
    pub(crate) pageable_bytes: u64,
    pub(crate) direct_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) context_waits: u64,
    pub(crate) device_bytes_max: usize,
    pub(crate) pinned_bytes_max: usize,
    pub(crate) registered_bytes_max: usize,
}

/// The primary context of a device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: u64,
    pub(crate) retained: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: &'static Settings,
    pub(crate) initialized: bool,
    /// The sticky error of a lost device.
    pub(crate) lost: Option<Code>,
    pub(crate) polls_after_loss: u64,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) counts: Counts,
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) mistakes_total: u64,
    /// By device.
    pub(crate) contexts: Vec<Context>,
    /// By handle. A destroyed stream stays until the host has waited for its work.
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    /// Device memory and page-locked memory, by address.
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) registrations: BTreeMap<u64, Registration>,
    /// Addresses and handles that were given back.
    pub(crate) retired: BTreeSet<u64>,
    /// Work that host code knows to be done. All host threads share this clock, because the
    /// stand-in cannot see their locks.
    pub(crate) host: Clock,
    last_handle: u64,
}

impl State {
    fn new(settings: &'static Settings) -> Self {
        let mut state = Self {
            settings,
            initialized: false,
            lost: None,
            polls_after_loss: 0,
            calls: BTreeMap::new(),
            counts: Counts::default(),
            mistakes: Vec::new(),
            mistakes_total: 0,
            contexts: Vec::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            blocks: BTreeMap::new(),
            registrations: BTreeMap::new(),
            retired: BTreeSet::new(),
            host: Clock::default(),
            last_handle: 0x1000,
        };
        for _ in 0..settings.devices {
            let context = Context { handle: state.new_handle(), retained: 0 };
            state.contexts.push(context);
        }
        state
    }

    /// A handle that no object had before. Default streams' handles are 0, 1 and 2.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.last_handle += 0x10;
        self.last_handle
    }

    /// Notes a mistake. After a loss no order can be judged, so nothing is noted.
    pub(crate) fn mistake(&mut self, kind: &'static str, detail: String) {
        if self.lost.is_some() && kind != crate::mistakes::POLLED_AFTER_LOSS {
            return;
        }
        self.mistakes_total += 1;
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(Mistake { kind, detail });
        }
    }

    /// Loses the device: `code` is the answer to all later work.
    pub(crate) fn lose(&mut self, code: Code) {
        self.lost.get_or_insert(code);
        driver().progress.notify_all();
        for stream in self.streams.values() {
            stream.wake.notify_all();
        }
    }
}

/// The driver; the first call reads the settings.
pub(crate) fn driver() -> &'static Driver {
    DRIVER.get_or_init(|| Driver {
        process: std::process::id(),
        settings: Settings::read(|name| std::env::var(name).ok()),
        state: OnceLock::new(),
        progress: Condvar::new(),
    })
}

/// The driver, if the program has called it.
pub(crate) fn used_driver() -> Option<&'static Driver> {
    DRIVER.get()
}

/// Locks the state. Must not be called in a forked child.
pub(crate) fn lock() -> Held {
    let driver = driver();
    let state = driver.state.get_or_init(|| Mutex::new(State::new(&driver.settings)));
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the next notification of `condition`.
pub(crate) fn wait(condition: &Condvar, state: Held) -> Held {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `ready` says so, or returns the error of a lost device.
pub(crate) fn until(mut state: Held, ready: impl Fn(&State) -> bool) -> Result<Held, Code> {
    loop {
        if let Some(code) = state.lost {
            return Err(code);
        }
        if ready(&state) {
            return Ok(state);
        }
        state = wait(&driver().progress, state);
    }
}
