//! The time limit of a call, and its cancellation.
//!
//! Every wait of a call is cut into slices, and the call checks the token after each. So cancelling
//! is one store: no waiter must be found and woken, and a fork leaves no lock behind. An idle wait
//! costs about twenty wakeups a second.
//!
//! A token also says which of several reads is the first: the others ask nodes when it is answered.
//!
//! Non-goals: undoing cancelled work. A cancelled call leaves the same state as a failed one.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use larder_base::limits;

use crate::{Error, ErrorKind, process};

/// Cancels reads. They end with an error within about 0.1 s, or within 1 s if they wait for a host
/// that does not answer. Clones share the token.
#[derive(Clone, Default)]
pub struct CancelToken {
    /// Absent in a token that is never cancelled.
    shared: Option<Arc<DeadlineParts>>,
    place: ReadPlace,
}

/// The place of a read among those that began with it.
#[derive(Clone, Default)]
enum ReadPlace {
    #[default]
    Alone,
    First(Arc<FirstRead>),
    Behind(Arc<FirstRead>),
}

/// The first of several reads. A node sends rows as they are asked for, so the others ask it later.
#[derive(Default)]
pub(crate) struct FirstRead {
    is_answered: Mutex<bool>,
    answered: Condvar,
}

impl FirstRead {
    /// Lets the other reads ask.
    pub(crate) fn answered(&self) {
        *self.is_answered.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.answered.notify_all();
    }

    /// Lets the other reads ask when the guard is dropped, at the latest.
    pub(crate) fn answered_at_end(self: &Arc<Self>) -> AnsweredAtEnd {
        AnsweredAtEnd(Arc::clone(self))
    }

    fn is_answered(&self) -> bool {
        *self.is_answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, longest: Duration) {
        let is_answered = self.is_answered.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.answered.wait_timeout_while(is_answered, longest, |is_answered| !*is_answered));
    }
}

#[derive(Default)]
struct DeadlineParts {
    cancelled: AtomicBool,
    watch: Option<CancelWatch>,
}

struct CancelWatch {
    says_cancel: Box<dyn Fn() -> bool + Send + Sync>,
    /// The thread that made it, which alone calls it.
    thread: ThreadId,
    /// The time of its last call, in milliseconds of this process.
    called: AtomicU64,
}

/// Lets the reads behind the first one ask when it is dropped.
pub(crate) struct AnsweredAtEnd(Arc<FirstRead>);

impl Drop for AnsweredAtEnd {
    fn drop(&mut self) {
        self.0.answered();
    }
}

impl CancelWatch {
    /// Calls it, unless it was called lately or this is another thread.
    fn look(&self) -> bool {
        let now = process::uptime_millis();
        let since = now.saturating_sub(self.called.load(Relaxed));
        let is_due = u128::from(since) >= limits::CANCEL_CHECK_INTERVAL.as_millis();
        if !is_due || thread::current().id() != self.thread {
            return false;
        }
        self.called.store(now, Relaxed);
        (self.says_cancel)()
    }
}

impl CancelToken {
    /// Creates a token that can be cancelled once.
    pub fn new() -> Self {
        Self { shared: Some(Arc::default()), place: ReadPlace::Alone }
    }

    /// Creates a token that is also cancelled when `says_cancel` returns true. Checks of the token
    /// by this thread call it about twenty times a second, the first time after 50 ms.
    pub fn watching(says_cancel: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let called = AtomicU64::new(process::uptime_millis());
        let (says_cancel, thread) = (Box::new(says_cancel), thread::current().id());
        let watch = CancelWatch { says_cancel, thread, called };
        Self {
            shared: Some(Arc::new(DeadlineParts {
                watch: Some(watch),
                ..DeadlineParts::default()
            })),
            place: ReadPlace::Alone,
        }
    }

    /// A token for calls that always run to their end.
    pub const fn never() -> Self {
        Self { shared: None, place: ReadPlace::Alone }
    }

    /// Ends all reads with this token, now and later. Has no effect on a [never](Self::never)
    /// token.
    pub fn cancel(&self) {
        if let Some(shared) = &self.shared {
            shared.cancelled.store(true, Relaxed);
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        let Some(DeadlineParts { cancelled, watch }) = self.shared.as_deref() else { return false };
        if !cancelled.load(Relaxed) && watch.as_ref().is_some_and(CancelWatch::look) {
            self.cancel();
        }
        cancelled.load(Relaxed)
    }

    /// This token for the first read, or for one of the others.
    pub(crate) fn among(&self, first: &Arc<FirstRead>, is_first: bool) -> Self {
        let place = if is_first { ReadPlace::First } else { ReadPlace::Behind };
        Self { shared: self.shared.clone(), place: place(Arc::clone(first)) }
    }

    /// Waits until the first read is answered, if this is one of the others.
    ///
    /// # Errors
    /// The token was cancelled.
    pub(crate) fn follow(&self) -> Result<(), Error> {
        while let ReadPlace::Behind(first) = &self.place
            && !first.is_answered()
        {
            self.check()?;
            first.wait(limits::CANCEL_CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Notes that this read is answered.
    pub(crate) fn answered(&self) {
        if let ReadPlace::First(first) = &self.place {
            first.answered();
        }
    }

    /// # Errors
    /// The token was cancelled.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    /// Waits for `work`.
    ///
    /// # Errors
    /// The token was cancelled first.
    pub(crate) async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let until_cancelled = pin!(async {
            while !self.is_cancelled() {
                tokio::time::sleep(limits::CANCEL_CHECK_INTERVAL).await;
            }
        });
        match select(pin!(work), until_cancelled).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(cancelled()),
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cancelled = self.shared.as_ref().map(|shared| shared.cancelled.load(Relaxed));
        f.debug_struct("CancelToken").field("cancelled", &cancelled).finish_non_exhaustive()
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Internal, "the call was cancelled")
}

#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    deadline: Instant,
    cancel: CancelToken,
}

impl Deadline {
    /// Sets a deadline `time` from now.
    pub(crate) fn new(time: Duration, cancel: &CancelToken) -> Self {
        Self { deadline: process::after(time), cancel: cancel.clone() }
    }

    pub(crate) fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(process::now())
    }

    /// How long to wait before checking the token again. `None` at the deadline or after
    /// cancellation.
    pub(crate) fn slice(&self) -> Option<Duration> {
        let slice = self.left().min(limits::CANCEL_CHECK_INTERVAL);
        (!slice.is_zero() && !self.cancel.is_cancelled()).then_some(slice)
    }

    /// Sleeps for `time`, or until cancelled.
    pub(crate) fn sleep(&self, time: Duration) {
        let pause = Self::new(time, &self.cancel);
        while let Some(slice) = pause.slice() {
            thread::park_timeout(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::atomic::AtomicUsize,
    };

    use super::*;
    use crate::runtime;

    #[test]
    fn clones_share_cancellation_and_never_token_stays_uncancelled() {
        let (token, never) = (CancelToken::new(), CancelToken::never());
        let clone = token.clone();
        assert!(token.check().is_ok());
        clone.cancel();
        never.cancel();
        assert!(token.check().is_err() && never.check().is_ok());
    }

    #[test]
    fn other_reads_follow_the_first_until_they_are_cancelled() {
        let (token, first) = (CancelToken::new(), Arc::default());
        let [leads, follows] = [true, false].map(|is_first| token.among(&first, is_first));
        leads.follow().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| follows.follow());
            assert!(!first.is_answered());
            follows.answered();
            assert!(!first.is_answered(), "only the first read answers");
            leads.answered();
            waits.join().unwrap().unwrap();
        });
        let unanswered = token.among(&Arc::default(), false);
        token.cancel();
        assert!(unanswered.follow().is_err());
    }

    #[test]
    fn watching_token_is_cancelled_once_by_what_it_watches() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let token = CancelToken::watching(move || counted.fetch_add(1, Relaxed) == 1);
        assert!(!token.is_cancelled());
        while !token.clone().is_cancelled() {
            thread::park_timeout(Duration::from_millis(1));
        }
        assert!(token.is_cancelled());
        assert_eq!(asked.load(Relaxed), 2);
    }

    #[test]
    fn watching_token_watches_in_its_own_thread_only() {
        let token = CancelToken::watching(|| true);
        thread::park_timeout(2 * limits::CANCEL_CHECK_INTERVAL);
        thread::scope(|scope| scope.spawn(|| assert!(!token.is_cancelled())).join()).unwrap();
        while !token.is_cancelled() {
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn cancelled_token_ends_every_wait() {
        let token = CancelToken::new();
        assert_eq!(runtime::block_on(token.unless(ready(7))).unwrap().ok(), Some(7));
        let deadline = Deadline::new(Duration::from_secs(3600), &token);
        assert!(deadline.slice().is_some());
        token.cancel();
        assert!(runtime::block_on(token.unless(pending::<()>())).unwrap().is_err());
        assert_eq!(deadline.slice(), None);
        deadline.sleep(Duration::from_secs(3600));
    }

    #[test]
    fn longest_duration_makes_a_valid_deadline() {
        let deadline = Deadline::new(Duration::MAX, &CancelToken::never());
        assert!(deadline.left() > Duration::from_secs(86_400));
        assert!(deadline.slice().is_some());
    }

    #[test]
    fn deadline_of_zero_leaves_no_time() {
        let deadline = Deadline::new(Duration::ZERO, &CancelToken::never());
        assert_eq!((deadline.left(), deadline.slice()), (Duration::ZERO, None));
    }
}
