//! Waits in Rust while Python continues. Ctrl-C ends such a wait. Also the [`Lock`] for values that
//! Python threads share.
//!
//! Python handles signals on the main thread, between two steps of the interpreter. A main thread
//! that waits in Rust would handle none. So its work runs on another thread, and the main thread
//! checks for signals every [`LOOK_UP`]. Other threads do their work themselves. A read that
//! checks a token in its waits needs no other thread ([`reading`]).

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use larder_client::{CancelToken, Error, ErrorKind};
use pyo3::{intern, prelude::*};

use crate::{error::OrRaise, warnings};

/// The interval at which a waiting main thread checks for signals.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(50);

/// Runs `work` without the interpreter, and returns its result. If a signal handler raises
/// (Ctrl-C), its exception is returned at once. The token then cancels the work, and its result is
/// dropped.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&CancelToken) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread(py)? {
        let done = py.detach(|| work(&CancelToken::never()));
        warnings::hand_over(py)?;
        return done.or_raise(py);
    }
    watched(py, move |cancel, _| work(cancel), |(): ()| Ok(()))
}

/// As [`interruptible`], but on this thread, which saves the price of another: for reads that take
/// microseconds or end soon after they are cancelled. Returns only after the work has ended.
pub(crate) fn reading<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&CancelToken) -> Result<T, Error> + Send,
) -> PyResult<T> {
    // Only the main thread handles signals. In another thread this does nothing.
    let cancel = CancelToken::watching(|| {
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(signal) => {
                signal.restore(py);
                true
            }
        })
    });
    let done = py.detach(|| work(&cancel));
    PyErr::take(py).map_or(Ok(()), Err)?;
    warnings::hand_over(py)?;
    done.or_raise(py)
}

/// A message of the work.
enum Message<P, T> {
    Progress(P),
    Done(Result<T, Error>),
}

/// Messages under way. Beyond that, a slow watcher blocks the work.
const MESSAGES_MAX: usize = 16;

/// The function by which the work reports its progress.
type Say<'a, P> = &'a (dyn Fn(P) + Send + Sync);

/// As [`interruptible`], but always on another thread. `watch` gets each report of progress, on the
/// calling thread. An error of `watch` is returned at once and cancels the work.
pub(crate) fn watched<P: Send + 'static, T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&CancelToken, Say<'_, P>) -> Result<T, Error> + Send + 'static,
    watch: impl FnMut(P) -> PyResult<()>,
) -> PyResult<T> {
    let (say, said) = sync_channel(MESSAGES_MAX);
    let cancel = CancelToken::new();
    let given = cancel.clone();
    let thread = thread::Builder::new().name("larder-call".to_owned());
    let started = thread.spawn(move || {
        // After an interrupt the receiver is gone, and sending fails.
        let done = work(&given, &|progress| drop(say.send(Message::Progress(progress))));
        drop(say.send(Message::Done(done)));
    });
    started.map_err(no_thread).or_raise(py)?;
    let done = listen(py, said, watch);
    // Unless it was interrupted, the work has ended.
    cancel.cancel();
    done
}

/// Receives messages until the work is done, or until the interpreter raises.
fn listen<P: Send, T: Send>(
    py: Python<'_>,
    mut said: Receiver<Message<P, T>>,
    mut watch: impl FnMut(P) -> PyResult<()>,
) -> PyResult<T> {
    loop {
        let said = &mut said;
        let message = py.detach(move || said.recv_timeout(LOOK_UP));
        warnings::hand_over(py)?;
        match message {
            Ok(Message::Done(outcome)) => return outcome.or_raise(py),
            Ok(Message::Progress(progress)) => watch(progress)?,
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                let defect = Error::new(ErrorKind::Internal, "a call of the library panicked")
                    .hint("please report it, with what was printed on standard error");
                return Err(defect).or_raise(py);
            }
        }
    }
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::ResourceExhausted, "cannot start a thread")
        .with_source(error)
        .hint("raise the limit on threads (ulimit -u)")
}

/// Whether this is the thread that Python handles signals on.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    Ok(main.is(&threading.call_method0(intern!(py, "current_thread"))?))
}

/// A value that several threads may change, behind a lock that is never held while Python runs.
///
/// A thread that waits for this lock stays attached to the interpreter. With a GIL no other thread
/// is attached then. Without a GIL, a thread that collects garbage or forks waits until all other
/// threads stop. So a holder that needed the interpreter, even to raise, would wait for ever. Work
/// under the lock must therefore be [`Send`], which objects of the interpreter are not, and must
/// take microseconds.
///
/// A fork happens while all threads of the interpreter are stopped. A stopped thread does not hold
/// the lock, so the child finds it free.
pub(crate) struct Lock<T> {
    value: Mutex<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Mutex::new(value) }
    }

    /// Runs `work` on the value. It should return the values that it takes out, so that they are
    /// dropped without the lock.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R + Send) -> R {
        work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
