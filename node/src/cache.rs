//! The shell around [`larder_store::Store`]: one lock, and what must happen outside it.
//!
//! The store keeps the books; here the books meet memory. A shard that is admitted gets a [`Flight`]
//! and a place in the fill queue under the same lock, so that nobody sees one without the other.
//! What leaves the store goes to the reaper, which gives its bytes back to the budget only when the
//! kernel says that nobody maps them.
//!
//! Thread rule: the lock is held for microseconds, never across an await, and whatever comes out of
//! the store is dropped or woken after it. Non-goals: reading the origin (see [`crate::fill`]);
//! knowing connections (the unix server numbers its clients, [`HolderId`]).

mod books;
mod failures;
mod find;
mod in_use;
mod job;
mod lease;
mod manifest;
mod plan;
mod queue;
mod reaper;
mod reserve;
mod show;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_base::{Error, ErrorKind, ShardId, SnapshotId, limits};
use larder_store::{Budget, KeepWhatYouHave};

use crate::clock;
use crate::counters::Counters;
use books::{Books, Discarded};
use reaper::{Reaper, Remains};

pub(crate) use failures::Failures;
pub use failures::{Failure, Place};
pub use find::{Awaited, Found};
pub(crate) use in_use::InUse;
pub(crate) use job::{GaveUp, Job};
pub use larder_store::HolderId;
pub use lease::Leased;
pub(crate) use plan::ShardPlan;
pub use queue::Priority;
pub(crate) use queue::{Pushed, Queue, Queued};
pub use show::Usage;

/// What keeps or leaves together: the shards of a snapshot, and apart from them its manifest, which
/// stays for as long as the dataset is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The shards of a snapshot.
    Shards(SnapshotId),
    /// The manifest of a snapshot.
    Manifest(SnapshotId),
}

/// Called with a shard that its holders should let go of, outside all locks.
pub type Recall = Box<dyn Fn(ShardId) + Send + Sync>;

/// Called with a shard that has left the cache, outside all locks.
pub(crate) type OnEvicted = Box<dyn Fn(ShardId) + Send + Sync>;

/// The shards of this node.
pub struct Cache {
    books: Mutex<Books>,
    /// A permit for each fill in the queue.
    queued: tokio::sync::Semaphore,
    reaper: Reaper,
    recall: OnceLock<Recall>,
    on_evicted: OnceLock<OnEvicted>,
    counters: Arc<Counters>,
}

impl Cache {
    /// An empty cache, and the thread that frees what leaves it; the thread ends with the cache.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(budget: Budget, counters: Arc<Counters>) -> std::io::Result<Arc<Self>> {
        Self::start_with(budget, KeepWhatYouHave::default(), counters)
    }

    /// As [`start`](Self::start), with a say in what may be evicted.
    pub(crate) fn start_with(
        budget: Budget,
        policy: KeepWhatYouHave,
        counters: Arc<Counters>,
    ) -> std::io::Result<Arc<Self>> {
        let cache = Arc::new(Self {
            books: Mutex::new(Books::new(budget, policy)),
            queued: tokio::sync::Semaphore::new(0),
            reaper: Reaper::default(),
            recall: OnceLock::new(),
            on_evicted: OnceLock::new(),
            counters,
        });
        cache.reaper.start(Arc::downgrade(&cache))?;
        Ok(cache)
    }

    /// Says who is to be told when holders should let go of a shard. The first to say it is heard.
    pub fn on_recall(&self, recall: Recall) {
        let _ = self.recall.set(recall);
    }

    /// Says who is to be told when a shard has left. The first to say it is heard.
    pub(crate) fn on_evicted(&self, told: OnEvicted) {
        let _ = self.on_evicted.set(told);
    }

    /// Lets go of a shard that is not wanted here any more; says whether it is gone. While clients hold it
    /// they are asked to let go, and this is to be called again.
    pub(crate) fn let_go(&self, id: ShardId) -> bool {
        let evicted = self.lock().store.evict(id, clock::now());
        match evicted {
            Ok(evicted) => {
                self.bury(evicted);
                true
            }
            Err(larder_store::CannotEvict::Leased { .. }) => {
                self.recall(id);
                false
            }
            Err(larder_store::CannotEvict::NotResident) => true,
        }
    }

    /// Lets go of a shard whose bytes were found to be wrong: whoever asks next gets it filled
    /// anew. While somebody maps it, its rows are read from the origin instead.
    pub fn discard(&self, id: ShardId) {
        let discarded = self.lock().discard(id, clock::now());
        if let Discarded::Evicted(_) | Discarded::Condemned { news: true } = discarded {
            self.counters.corrupt_shards.add(1);
        }
        self.part_with(id, discarded);
    }

    /// Deals with a shard that is not handed out any more. Returns whether it is gone.
    fn part_with(&self, id: ShardId, discarded: Discarded) -> bool {
        match discarded {
            Discarded::Evicted(evicted) => self.bury(evicted),
            Discarded::Absent => {}
            Discarded::Condemned { news } => {
                if news {
                    self.recall(id);
                }
                return false;
            }
        }
        true
    }

    /// No fill begins or goes on after this; whoever waits for one is told.
    pub fn close(&self) {
        let why = Error::new(ErrorKind::Unavailable, "the node is stopping; ask the next one");
        let why = Arc::new(why);
        let waiting = {
            let mut books = self.lock();
            books.closed = Some(Arc::clone(&why));
            std::mem::replace(&mut books.queue, Queue::new(limits::FILL_QUEUE_MAX))
        };
        for queued in waiting.into_all() {
            self.abandon(queued.permit, &queued.flight, &why);
        }
    }

    fn recall(&self, id: ShardId) {
        if let Some(recall) = self.recall.get() {
            recall(id);
        }
    }

    /// Sees to it that an evicted shard's bytes return to the budget: at once if nobody has it
    /// mapped, else when the reaper finds so.
    fn bury(&self, evicted: books::EvictedShard) {
        self.counters.evictions.add(1);
        self.counters.evicted_bytes.add(evicted.handle.sealed.total_bytes());
        if let Some(told) = self.on_evicted.get() {
            told(evicted.id);
        }
        self.free(evicted.token, Remains::Sealed(evicted.handle.sealed));
    }

    fn free(&self, token: larder_store::OrphanToken, remains: Remains) {
        match remains.try_free() {
            Ok(()) => self.lock().store.freed(token),
            Err(remains) => self.reaper.add(token, remains),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // Each change of the books is complete before anything that could panic.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.reaper.stop();
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
