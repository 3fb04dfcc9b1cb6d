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
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use larder_client::{CancelToken, Error, ErrorKind, Progress, RowsWait};
use pyo3::{intern, prelude::*};

use crate::{error::OrRaise, warnings};

/// The interval at which a waiting main thread checks for signals.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(50);

/// A shorter wait for rows has no progress: the nodes are not asked for it.
const LOOKED_AFTER: Duration = Duration::from_secs(1);

/// The least time from one look at the progress to the next.
const TOLD_EVERY: Duration = Duration::from_millis(500);

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
    reporting(py, Reports::to(None), "", move |cancel, _| work(cancel))
}

/// As [`interruptible`], but on this thread, which saves the price of another: for reads that take
/// microseconds or end soon after they are cancelled. Returns only after the work has ended. A long
/// read is followed by `follow`, and its progress goes to `report`.
pub(crate) fn reading<T: Send>(
    py: Python<'_>,
    report: Option<Py<PyAny>>,
    follow: impl Fn() -> RowsWait + Send + Sync + 'static,
    work: impl FnOnce(&CancelToken) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let followed = Arc::new(Mutex::new((Reports::to(report), None)));
    let watched = Arc::clone(&followed);
    // Only the main thread handles signals. In another thread the check does nothing.
    let cancel = CancelToken::watching(move || {
        Python::attach(|py| {
            let (reports, wait) = &mut *watched.lock().unwrap_or_else(PoisonError::into_inner);
            let looked = reports.look(py, || wait.get_or_insert_with(&follow).progress());
            let looked = looked.and_then(|()| warnings::hand_over(py));
            match looked.and_then(|()| py.check_signals()) {
                Ok(()) => false,
                Err(raised) => {
                    raised.restore(py);
                    true
                }
            }
        })
    });
    let done = py.detach(|| work(&cancel));
    let raised = PyErr::take(py);
    followed.lock().unwrap_or_else(PoisonError::into_inner).0.end(py)?;
    raised.map_or(Ok(()), Err)?;
    warnings::hand_over(py)?;
    done.or_raise(py)
}

/// The progress of one wait, on its way to Python.
pub(crate) struct Reports {
    /// Called with the seconds waited so far, and the values of a `larder.Progress` or None at the
    /// end. Absent if nothing is to be shown.
    report: Option<Py<PyAny>>,
    begun: Instant,
    told: Option<Instant>,
}

impl Reports {
    pub(crate) fn to(report: Option<Py<PyAny>>) -> Self {
        Self { report, begun: now(), told: None }
    }

    /// Tells the present progress, once the wait is long and not more often than
    /// [`TOLD_EVERY`].
    pub(crate) fn look(
        &mut self,
        py: Python<'_>,
        progress: impl FnOnce() -> Option<Progress>,
    ) -> PyResult<()> {
        let is_due = self.begun.elapsed() >= LOOKED_AFTER
            && self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        match &self.report {
            Some(_) if is_due => progress().map_or(Ok(()), |progress| self.tell(py, &progress)),
            _ => Ok(()),
        }
    }

    fn tell(&mut self, py: Python<'_>, progress: &Progress) -> PyResult<()> {
        let Some(report) = &self.report else { return Ok(()) };
        self.told = Some(now());
        let Progress { what, done, total, unit, note, .. } = progress;
        let (left, text) = (progress.seconds_left(), progress.to_string());
        let facts = (*what, *done, *total, *unit, left, note.as_str(), text);
        report.call1(py, (self.begun.elapsed().as_secs_f64(), facts)).map(drop)
    }

    /// The wait is over.
    pub(crate) fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        match (&self.report, self.told.take()) {
            (Some(report), Some(_)) => {
                report.call1(py, (self.begun.elapsed().as_secs_f64(), py.None())).map(drop)
            }
            _ => Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a wait is, for people")]
fn now() -> Instant {
    Instant::now()
}

/// A message of the work.
enum Message<T> {
    Progress(Progress),
    Done(Result<T, Error>),
}

/// Messages under way. Beyond that, a slow watcher blocks the work.
const MESSAGES_MAX: usize = 16;

/// The function by which the work reports its progress.
pub(crate) type Say = Arc<dyn Fn(Progress) + Send + Sync>;

/// As [`interruptible`], but always on another thread. The progress of the work goes to `reports`.
/// Before the work says anything, its progress is that it does `what`. An error of a report is
/// returned at once and cancels the work.
pub(crate) fn reporting<T: Send + 'static>(
    py: Python<'_>,
    mut reports: Reports,
    what: &'static str,
    work: impl FnOnce(&CancelToken, Say) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (say, said) = sync_channel(MESSAGES_MAX);
    let cancel = CancelToken::new();
    let given = cancel.clone();
    let thread = thread::Builder::new().name("larder-call".to_owned());
    let started = thread.spawn(move || {
        // After an interrupt the receiver is gone, and sending fails.
        let progress = say.clone();
        let report = Arc::new(move |step| drop(progress.send(Message::Progress(step))));
        let done = work(&given, report);
        drop(say.send(Message::Done(done)));
    });
    started.map_err(no_thread).or_raise(py)?;
    let done = listen(py, said, &mut reports, Progress::of(what));
    // Unless it was interrupted, the work has ended.
    cancel.cancel();
    reports.end(py)?;
    done
}

/// Receives messages until the work is done, or until the interpreter raises.
fn listen<T: Send>(
    py: Python<'_>,
    mut said: Receiver<Message<T>>,
    reports: &mut Reports,
    mut latest: Progress,
) -> PyResult<T> {
    loop {
        let said = &mut said;
        let message = py.detach(move || said.recv_timeout(LOOK_UP));
        warnings::hand_over(py)?;
        match message {
            Ok(Message::Done(outcome)) => return outcome.or_raise(py),
            Ok(Message::Progress(progress)) => {
                latest = progress;
                reports.tell(py, &latest)?;
            }
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                reports.look(py, || Some(latest.clone()))?;
            }
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
