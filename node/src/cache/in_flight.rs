//! One fill in progress, and the readers that wait for it.
//!
//! ```text
//! Queued ──▶ Filling ──▶ Sealed
//!    │          │  (a fill worker that dies leaves it here, with the parts that are in)
//!    └──────────┴──────▶ Failed
//! ```
//!
//! A reader of a cold shard waits for the bytes it needs, not for the shard. Once their part is in,
//! it copies them out of the private extent. There are two exceptions: a shard with a pinned
//! checksum, and a shard of which a peer gave a part. Their checksum covers the whole shard. So no
//! byte is handed out before the whole shard was compared.
//!
//! Thread rule: readers are threads and block on a condition variable. Fill workers are tasks, and
//! hold the lock only to change the state.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_base::{Error, ShardId};
use larder_extent::{Filling, Sealed};
use tokio_util::sync::CancellationToken;

use crate::dataset::bucket::{Need, Urgency};

/// Rows of one shard that readers wait for and no request has taken. With more of them, most of the
/// shard is wanted.
const WANTED_ROWS_MAX: usize = 512;

/// One shard on its way into memory.
#[derive(Debug)]
pub(crate) struct InFlightFill {
    id: ShardId,
    /// Set while no byte may be read before the whole shard is compared. It is compared with the
    /// checksum that a manifest pins, or with the digest of a peer that gave some of the bytes.
    withheld: AtomicBool,
    attempts: AtomicU32,
    /// Set once a reader waits for the shard.
    is_awaited: AtomicBool,
    /// Cancelled once a reader waits for the shard, or soon will.
    hurried: CancellationToken,
    urgency: Arc<Urgency>,
    /// The rows to request first, in the order in which their readers came.
    wanted: Mutex<VecDeque<WantedRow>>,
    /// The digest of all rows' checksums, as a peer says that gave some of the bytes.
    lent: Mutex<Option<u64>>,
    /// Threads that work on the memory of this flight. They can't be stopped.
    workers: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

/// A row that a reader waits for.
#[derive(Debug)]
pub(crate) struct WantedRow {
    /// The number of the reader, smaller for one that came earlier.
    pub(crate) reader: u64,
    /// The region that holds it.
    pub(crate) region: usize,
    /// Its bytes in the region.
    pub(crate) range: Range<u64>,
}

#[derive(Debug)]
enum State {
    Queued,
    Filling(Arc<Filling>),
    Sealed(Arc<Sealed>),
    Failed(Arc<Error>),
}

/// Keeps the bytes of a flight counted while it lives. Drop it after the memory that it stands for.
#[derive(Debug)]
pub(crate) struct Working(Arc<InFlightFill>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(1, Ordering::Release);
    }
}

/// The outcome of a wait for some bytes of a shard.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The bytes are in: copy them. If the copy reports a sealed extent, wait again.
    Ready(Arc<Filling>),
    /// The whole shard is in.
    Sealed(Arc<Sealed>),
    /// The fill gave up.
    Failed(Arc<Error>),
    /// Not yet; the caller may wait again.
    TimedOut,
}

impl InFlightFill {
    /// Creates a flight for a shard that no reader waits for yet.
    pub(crate) fn new(id: ShardId) -> Self {
        Self {
            id,
            withheld: AtomicBool::new(false),
            attempts: AtomicU32::new(0),
            is_awaited: AtomicBool::new(false),
            hurried: CancellationToken::new(),
            urgency: Arc::default(),
            wanted: Mutex::default(),
            lent: Mutex::default(),
            workers: AtomicU32::new(0),
            state: Mutex::new(State::Queued),
            changed: Condvar::new(),
        }
    }

    /// Creates a flight that has already failed, for shards that can't be filled or not so soon
    /// again.
    pub(crate) fn failed(id: ShardId, why: Arc<Error>) -> Self {
        let flight = Self::new(id);
        flight.fail(why);
        flight
    }

    /// Returns the id of the shard.
    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    /// Returns true while no worker has begun to fill it.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(*self.lock(), State::Queued)
    }

    /// Waits until `range` of `region` (in bytes, relative to the region) is readable, the fill
    /// ends, or `timeout` has passed.
    pub(crate) fn wait(&self, region: usize, range: &Range<u64>, timeout: Duration) -> Waited {
        self.wait_until(timeout, |filling| filling.is_ready(region, range.clone()))
    }

    /// Waits until the fill ends, or `timeout` has passed.
    pub(crate) fn wait_for_all(&self, timeout: Duration) -> Waited {
        self.wait_until(timeout, |_| false)
    }

    fn wait_until(&self, timeout: Duration, ready: impl Fn(&Arc<Filling>) -> bool) -> Waited {
        // Keep this order: a part is withheld before it is marked as in.
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

    /// Notes that a reader waits for the shard.
    pub(crate) fn await_by_reader(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
        self.urgency.raise(Need::Reader);
    }

    /// Returns true if a reader waits for the shard, or did.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// Notes that a reader waits for the shard, or soon will. From now on its fill is not
    /// throttled.
    pub(crate) fn hurry(&self) {
        self.hurried.cancel();
        self.urgency.raise(Need::Soon);
    }

    /// Returns how urgent its requests are.
    pub(crate) fn urgency(&self) -> &Arc<Urgency> {
        &self.urgency
    }

    /// Notes that a reader waits for a row. It is requested before rows that no reader waits for.
    pub(crate) fn want(&self, row: WantedRow) {
        let is_missing = match &*self.lock() {
            State::Queued => true,
            State::Filling(filling) => !filling.is_ready(row.region, row.range.clone()),
            State::Sealed(_) | State::Failed(_) => false,
        };
        let mut wanted = self.wanted();
        if is_missing && wanted.len() < WANTED_ROWS_MAX {
            wanted.push_back(row);
            self.urgency.next_for(wanted.front().map(|first| first.reader));
        }
    }

    /// Returns the first of what `find` finds for the rows that readers wait for. Forgets the rows
    /// for which it finds nothing.
    pub(crate) fn next_wanted<T>(&self, find: impl Fn(&WantedRow) -> Option<T>) -> Option<T> {
        let mut wanted = self.wanted();
        let mut found = None;
        while let Some(first) = wanted.front() {
            found = find(first);
            if found.is_some() {
                break;
            }
            wanted.pop_front();
        }
        self.urgency.next_for(wanted.front().map(|first| first.reader));
        found
    }

    fn wanted(&self) -> MutexGuard<'_, VecDeque<WantedRow>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true once [`hurry`](Self::hurry) was called.
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried.is_cancelled()
    }

    /// Waits until [`hurry`](Self::hurry) is called.
    pub(crate) async fn until_hurried(&self) {
        self.hurried.cancelled().await;
    }

    /// Counts one more try of the whole shard. Returns the number of tries, this one included.
    pub(crate) fn begin_attempt(&self) -> u32 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how often the whole shard was tried.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Notes that a thread allocates, seals or frees memory for this flight. Blocking work can't be
    /// stopped, so a stopped fill may leave it behind. Its memory counts as taken, even after the
    /// flight has ended.
    pub(crate) fn work(self: &Arc<Self>) -> Working {
        self.workers.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(self))
    }

    /// Returns true while a thread works on memory of this flight.
    pub(crate) fn is_worked_on(&self) -> bool {
        self.workers.load(Ordering::Acquire) > 0
    }

    /// Returns the payload bytes that are in.
    pub(crate) fn bytes_ready(&self) -> u64 {
        let Some(filling) = self.begun() else { return 0 };
        let parts = filling.parts().iter();
        let ready = parts.filter(|part| filling.is_ready(part.region, part.range.clone()));
        ready.map(|part| part.range.end - part.range.start).sum()
    }

    /// Returns the extent that an earlier worker began, with the parts that are in.
    pub(crate) fn begun(&self) -> Option<Arc<Filling>> {
        match &*self.lock() {
            State::Filling(filling) => Some(Arc::clone(filling)),
            State::Queued | State::Sealed(_) | State::Failed(_) => None,
        }
    }

    pub(crate) fn begin(&self, filling: Arc<Filling>) {
        self.change(State::Filling(filling));
    }

    /// Notes the digest of the whole shard, as stated by the peer that gave a part. Returns false
    /// if another digest was noted before.
    pub(crate) fn note_digest(&self, digest: u64) -> bool {
        let mut noted = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        *noted.get_or_insert(digest) == digest
    }

    /// Returns the noted digest, if a peer gave a part since the shard was begun.
    pub(crate) fn lent(&self) -> Option<u64> {
        *self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards the filled bytes; the next try starts from nothing.
    pub(crate) fn begin_again(&self) {
        *self.lent.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.change(State::Queued);
    }

    /// Wakes the readers after more parts are in.
    pub(crate) fn parts_are_in(&self) {
        // Take the lock once. Otherwise a reader misses a part between its check and its wait.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// The shard is in.
    pub(crate) fn seal(&self, sealed: Arc<Sealed>) {
        self.change(State::Sealed(sealed));
    }

    /// Ends the flight as failed. Returns the unfinished extent. Readers may still read its memory.
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
