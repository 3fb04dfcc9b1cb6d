//! One fill in progress, and the readers that wait for it.
//!
//! ```text
//! Queued ──▶ Filling ──▶ Sealed
//!    │          │  (a filler that dies leaves it here, with the parts that are in)
//!    └──────────┴──────▶ Failed
//! ```
//!
//! A reader of a cold shard waits for the bytes it needs, not for the shard: once its part is in it
//! copies them out of the private extent. A shard whose checksum is pinned is the exception, and one that a peer
//! gives: its checksum covers the whole, so nothing of it is handed out before all of it was compared.
//!
//! Thread rule: readers are threads and block on a condition variable; fillers are tasks and only
//! ever hold the lock to change the state.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_base::{Error, ShardId};
use larder_extent::{Filling, Sealed};
use tokio_util::sync::CancellationToken;

/// One shard on its way into memory.
#[derive(Debug)]
pub struct Flight {
    id: ShardId,
    /// Nothing may be read before all of it was compared with the checksum that a manifest pins, or with what a peer has
    /// that gave some of the bytes.
    withheld: AtomicBool,
    attempts: AtomicU32,
    /// Used once somebody is in a hurry to have it.
    hurried: CancellationToken,
    /// The digest of all rows' checksums, as a peer says that gave some of the bytes.
    lent: Mutex<Option<u64>>,
    /// Threads that work on the memory of this flight and can't be stopped.
    workers: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    Queued,
    Filling(Arc<Filling>),
    Sealed(Arc<Sealed>),
    Failed(Arc<Error>),
}

/// While this lives, the bytes of a flight are not free. Dropped after the memory that it stands for.
#[derive(Debug)]
pub(crate) struct Working(Arc<Flight>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(1, Ordering::Release);
    }
}

/// What a wait for some bytes of a shard came to.
#[derive(Debug)]
pub enum Waited {
    /// The bytes are in: copy them. If the copy says that the extent was sealed meanwhile, wait again.
    Ready(Arc<Filling>),
    /// The whole shard is in.
    Sealed(Arc<Sealed>),
    /// The fill gave up.
    Failed(Arc<Error>),
    /// Not yet; the caller may wait again.
    TimedOut,
}

impl Flight {
    /// A flight for a shard that nobody waits for yet.
    pub(crate) fn new(id: ShardId) -> Self {
        Self {
            id,
            withheld: AtomicBool::new(false),
            attempts: AtomicU32::new(0),
            hurried: CancellationToken::new(),
            lent: Mutex::default(),
            workers: AtomicU32::new(0),
            state: Mutex::new(State::Queued),
            changed: Condvar::new(),
        }
    }

    /// A flight that is over before it began: for shards that can't be filled, or not so soon again.
    pub(crate) fn failed(id: ShardId, why: Arc<Error>) -> Self {
        let flight = Self::new(id);
        flight.fail(why);
        flight
    }

    /// The shard.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Nobody has begun to fill it.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(*self.lock(), State::Queued)
    }

    /// Waits until `range` of `region` (bytes, relative to the region) can be read, or the fill ends,
    /// or `timeout` has passed.
    #[must_use]
    pub fn wait(&self, region: usize, range: &Range<u64>, timeout: Duration) -> Waited {
        self.wait_until(timeout, |filling| filling.is_ready(region, range.clone()))
    }

    /// Waits until the fill ends, or `timeout` has passed.
    #[must_use]
    pub fn wait_for_all(&self, timeout: Duration) -> Waited {
        self.wait_until(timeout, |_| false)
    }

    fn wait_until(&self, timeout: Duration, ready: impl Fn(&Arc<Filling>) -> bool) -> Waited {
        // In this order: a part is withheld before it is in.
        let readable =
            |filling: &Arc<Filling>| ready(filling) && !self.withheld.load(Ordering::Acquire);
        let pending = |state: &mut State| match state {
            State::Queued => true,
            State::Filling(filling) => !readable(filling),
            State::Sealed(_) | State::Failed(_) => false,
        };
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, pending);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Sealed(sealed) => Waited::Sealed(Arc::clone(sealed)),
            State::Failed(why) => Waited::Failed(Arc::clone(why)),
            State::Filling(filling) if readable(filling) => Waited::Ready(Arc::clone(filling)),
            State::Filling(_) | State::Queued => Waited::TimedOut,
        }
    }

    /// From now on nothing more of it may be read before all of it is in and was compared.
    pub(crate) fn withhold(&self) {
        self.withheld.store(true, Ordering::Release);
    }

    /// Says that somebody waits for the shard, or soon will: it yields to nobody any more.
    pub(crate) fn hurry(&self) {
        self.hurried.cancel();
    }

    /// Whether somebody is in a hurry to have it.
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried.is_cancelled()
    }

    /// Waits until somebody is in a hurry to have it.
    pub(crate) async fn until_hurried(&self) {
        self.hurried.cancelled().await;
    }

    /// Counts one more try of the whole shard. Returns how many there were with it.
    pub(crate) fn begin_attempt(&self) -> u32 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How often the shard as a whole was tried.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Says that a thread takes, seals or gives back memory for this flight. Blocking work can't be
    /// stopped, so a filler that is may leave it behind: what it works on is taken, whatever the
    /// flight came to.
    pub(crate) fn work(self: &Arc<Self>) -> Working {
        self.workers.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(self))
    }

    /// Whether a thread still works on memory for this flight.
    pub(crate) fn is_worked_on(&self) -> bool {
        self.workers.load(Ordering::Acquire) > 0
    }

    /// Payload bytes that are in.
    #[must_use]
    pub fn bytes_ready(&self) -> u64 {
        let Some(filling) = self.begun() else { return 0 };
        let parts = filling.parts().iter();
        let ready = parts.filter(|part| filling.is_ready(part.region, part.range.clone()));
        ready.map(|part| part.range.end - part.range.start).sum()
    }

    /// The extent that an earlier filler began, with the parts that are in.
    pub(crate) fn begun(&self) -> Option<Arc<Filling>> {
        match &*self.lock() {
            State::Filling(filling) => Some(Arc::clone(filling)),
            State::Queued | State::Sealed(_) | State::Failed(_) => None,
        }
    }

    pub(crate) fn begin(&self, filling: Arc<Filling>) {
        self.change(State::Filling(filling));
    }

    /// Notes the digest that the shard is to have according to who gave a part of it; false if another
    /// was noted before.
    pub(crate) fn is_to_have(&self, digest: u64) -> bool {
        let mut noted = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        *noted.get_or_insert(digest) == digest
    }

    /// That digest, if anybody gave a part since the shard was begun.
    pub(crate) fn lent(&self) -> Option<u64> {
        *self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was filled; the next try begins anew.
    pub(crate) fn begin_again(&self) {
        *self.lent.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.change(State::Queued);
    }

    /// One more part is in.
    pub(crate) fn part_is_in(&self) {
        // Passing through the lock, so that no reader misses it between its look and its wait.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// The shard is in.
    pub(crate) fn seal(&self, sealed: Arc<Sealed>) {
        self.change(State::Sealed(sealed));
    }

    /// Ends the flight. Returns the extent that was being filled, whose memory others may still read.
    pub(crate) fn fail(&self, why: Arc<Error>) -> Option<Arc<Filling>> {
        match self.change(State::Failed(why)) {
            State::Filling(filling) => Some(filling),
            State::Queued | State::Sealed(_) | State::Failed(_) => None,
        }
    }

    fn change(&self, next: State) -> State {
        let before = std::mem::replace(&mut *self.lock(), next);
        self.changed.notify_all();
        before
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
