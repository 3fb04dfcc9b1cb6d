//! SIGINT and SIGTERM end a program in order: it unwinds at its next wait, so that everything that
//! it started is dropped.

use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

static CAME: AtomicBool = AtomicBool::new(false);

/// Watches for the signals. A program calls it first: threads that it starts later leave the
/// signals to the watcher. The second signal ends the program at once.
///
/// # Panics
/// When the signals can't be blocked.
pub fn watch() {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block().expect("signals that exist can be blocked");
    panic::set_hook(Box::new(tell));
    thread::spawn(move || {
        let _ = signals.wait();
        CAME.store(true, Relaxed);
        let _ = signals.wait();
        std::process::exit(130);
    });
}

/// Whether a signal came.
#[must_use]
pub fn came() -> bool {
    CAME.load(Relaxed)
}

/// Unwinds if a signal came.
pub fn check() {
    if came() {
        panic::resume_unwind(Box::new("interrupted"));
    }
}

/// The signal also ends the processes that the program asks, so later panics say nothing.
fn tell(info: &PanicHookInfo<'_>) {
    if !came() {
        let place = info.location().map(|place| format!(" ({place})")).unwrap_or_default();
        eprintln!("error: {}{place}", info.payload_as_str().unwrap_or("a panic"));
    }
}
