//! SIGINT and SIGTERM end the demo in order, so that it removes its files and stops its nodes.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::sys::signal::{SigSet, Signal};

use crate::error::{Exit, Failure};

static CAME: AtomicBool = AtomicBool::new(false);
const TICK: Duration = Duration::from_millis(50);

/// Watches for the signals. Runs before any thread starts: threads inherit the blocked signals. The
/// second signal ends the process at once.
pub(super) fn watch() -> Result<(), Failure> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    let failed = |error: String| Failure::new(Exit::Failed, "signals can't be watched").why(error);
    signals.thread_block().map_err(|error| failed(error.to_string()))?;
    let watch = move || {
        let _ = signals.wait();
        CAME.store(true, Relaxed);
        let _ = signals.wait();
        std::process::exit(130);
    };
    let thread = thread::Builder::new().name("larder-signals".to_owned()).spawn(watch);
    thread.map(drop).map_err(|error| failed(error.to_string()))
}

/// Fails once a signal came.
pub(super) fn check() -> Result<(), Failure> {
    if CAME.load(Relaxed) {
        return Err(Failure::new(Exit::Interrupted, "interrupted"));
    }
    Ok(())
}

/// Waits for a signal.
pub(super) fn wait() {
    while check().is_ok() {
        thread::park_timeout(TICK);
    }
}
