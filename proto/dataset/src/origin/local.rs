//! Limits the number of simultaneous calls to the local file system, even if their callers give up.
//!
//! A call to an unreachable network file system returns only when the file system is back. Until
//! then its thread is lost, even if its caller has given up. So a call keeps its permit until it
//! has returned. A caller that finds all permits taken for long gets an error. The threads are
//! those of the runtime, which has many more than there are permits, so other blocking work goes
//! on.
//!
//! Thread rule: cheap to clone and to share; methods are async and need tokio's time. Non-goal:
//! ending a call that hangs, because the system offers no way to.

use std::{
    pin::pin,
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{self, JoinHandle},
    time::timeout,
};

use super::OriginError;
use crate::OriginUri;

/// Calls to the local file system at once, including those that hang. Enough to keep a fast disk or
/// a network file system busy; few beside the 512 threads on which a runtime may block.
const LOCAL_CALLS_MAX: usize = 64;

/// A call that waits for its turn fails if [`LOCAL_CALLS_MAX`] calls are under way and none has
/// returned for this long. Shorter than a node waits for the first byte of a read.
const LOCAL_TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time until the caller gives up on a call. A slow network file system takes some seconds to look
/// at as many files as are listed together.
const LOCAL_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a call to the local file system returned nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unanswered(String);

impl Unanswered {
    pub(super) fn into_error(self, object: &OriginUri) -> OriginError {
        OriginError::Failed { object: object.clone(), why: self.0 }
    }
}

impl From<Unanswered> for object_store::Error {
    fn from(why: Unanswered) -> Self {
        Self::Generic { store: "LocalFileSystem", source: Box::new(why) }
    }
}

/// The permits, and the timeouts for a permit and for a call.
#[derive(Clone, Debug)]
pub(super) struct LocalCalls {
    calls: usize,
    permits: Arc<Semaphore>,
    /// Number of calls that have returned.
    returned: Arc<AtomicU64>,
    turn_timeout: Duration,
    call_timeout: Duration,
}

/// The permit for one call, returned by the call itself.
struct CallPermit {
    returned: Arc<AtomicU64>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.returned.fetch_add(1, Relaxed);
    }
}

impl LocalCalls {
    /// Returns the limit that the whole process shares.
    pub(super) fn of_process() -> Self {
        static KNOWN: Mutex<Option<(u32, LocalCalls)>> = Mutex::new(None);
        let own = || Self::new(LOCAL_CALLS_MAX, LOCAL_TURN_TIMEOUT, LOCAL_CALL_TIMEOUT);
        // A forked child has none of the threads of its parent's calls. It may also inherit the
        // lock in the locked state; then it makes another limit.
        let Ok(mut known) = KNOWN.try_lock() else { return own() };
        match &*known {
            Some((process, calls)) if *process == process::id() => calls.clone(),
            _ => known.insert((process::id(), own())).1.clone(),
        }
    }

    pub(super) fn new(calls: usize, turn_timeout: Duration, call_timeout: Duration) -> Self {
        let (permits, returned) = (Arc::new(Semaphore::new(calls)), Arc::default());
        Self { calls, permits, returned, turn_timeout, call_timeout }
    }

    /// Runs blocking work on a blocking thread, after it got a permit.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        object: &OriginUri,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let turn = self.turn(object).await?;
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        self.outcome(object, task::spawn_blocking(work)).await
    }

    /// Runs async work that finds its own blocking thread, after it got a permit.
    pub(super) async fn run_async<T: Send + 'static>(
        &self,
        object: &OriginUri,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Unanswered> {
        let turn = self.turn(object).await?;
        // A task of its own, which goes on if its caller gives up.
        let work = async move {
            let done = work.await;
            drop(turn);
            done
        };
        self.outcome(object, task::spawn(work)).await
    }

    /// Waits for a permit, for as long as calls return.
    async fn turn(&self, object: &OriginUri) -> Result<CallPermit, Unanswered> {
        let mut permit = pin!(Arc::clone(&self.permits).acquire_owned());
        loop {
            let before = self.returned.load(Relaxed);
            if let Ok(permit) = timeout(self.turn_timeout, &mut permit).await {
                let permit = permit.expect("the semaphore is never closed");
                return Ok(CallPermit { returned: Arc::clone(&self.returned), _permit: permit });
            }
            if self.returned.load(Relaxed) == before {
                return Err(Unanswered(format!(
                    "{} calls to local files are under way, and none has returned for {} s: is the \
                     file system of /{} there?",
                    self.calls,
                    self.turn_timeout.as_secs(),
                    object.path()
                )));
            }
        }
    }

    async fn outcome<T>(&self, object: &OriginUri, call: JoinHandle<T>) -> Result<T, Unanswered> {
        let returned = timeout(self.call_timeout, call).await.map_err(|_| {
            Unanswered(format!(
                "a call to the file system has not returned for {} s: is that of /{} there?",
                self.call_timeout.as_secs(),
                object.path()
            ))
        })?;
        // It panicked, or the runtime ends.
        returned.map_err(|died| Unanswered(died.to_string()))
    }
}

#[cfg(test)]
mod tests;
