//! Waiting in Rust while Python goes on, and so that Ctrl-C ends it.
//!
//! Signals are handled by the main thread, between two steps of the interpreter. A main thread that
//! waits in here would handle none: so what it waits for runs on a thread of its own, and it looks
//! up every [`LOOK_UP`]. Other threads wait themselves.

use std::{
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use larder_client::{Error, ErrorKind};
use pyo3::{intern, prelude::*};

use crate::error::OrRaise;

/// How long a waiting main thread does not look for signals.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(50);

/// What `work` comes to, done without the interpreter. When a signal handler raises (Ctrl-C), its
/// exception is returned at once; the work then ends by itself, and what it comes to is dropped.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread(py)? {
        return py.detach(work).or_raise(py);
    }
    let (done, mut outcome) = sync_channel(1);
    let thread = thread::Builder::new().name("larder-call".to_owned());
    let started = thread.spawn(move || {
        // Nobody listens any more after an interrupt.
        let _ = done.send(work());
    });
    started
        .map_err(|error| {
            Error::new(ErrorKind::ResourceExhausted, "cannot start a thread")
                .with_source(error)
                .hint("raise the limit on threads (ulimit -u)")
        })
        .or_raise(py)?;
    loop {
        let outcome = &mut outcome;
        match py.detach(move || outcome.recv_timeout(LOOK_UP)) {
            Ok(outcome) => return outcome.or_raise(py),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                let defect = Error::new(ErrorKind::Internal, "a call of the library panicked")
                    .hint("please report it, with what was printed on standard error");
                return Err(defect).or_raise(py);
            }
        }
    }
}

/// Whether this is the thread that Python handles signals on.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    Ok(main.is(&threading.call_method0(intern!(py, "current_thread"))?))
}
