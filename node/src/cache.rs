//! The shell around [`larder_store::Store`]: its one lock, and the work that must happen outside
//! the lock.
//!
//! The store keeps the accounts; this module connects them to memory. An admitted shard gets a
//! [`InFlightFill`] and a place in the fill queue under the same lock, so no thread sees one
//! without the other. An evicted shard goes to the reaper. The reaper returns its bytes to the
//! budget only when the kernel says that no process maps them.
//!
//! Thread rule: the lock is held for microseconds, never across an await. Handles that leave the
//! store are dropped or woken after it. Non-goals: reading the origin (see [`crate::fill`]), and
//! knowing connections (the unix server numbers its clients, [`HolderId`]).

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
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_base::{Error, ErrorKind, ShardId, SnapshotId, limits};
use larder_store::{Budget, KeepWhatYouHave};

use crate::clock;
use crate::counters::Counters;
use reaper::{Reaper, Reclaimable};
use state::{CacheState, Discarded};

pub(crate) use failures::Failures;
pub use failures::{FailedRead, Failure};
pub use find::{Awaited, Found};
pub(crate) use in_use::InUse;
pub(crate) use job::{GaveUp, Job};
pub use larder_store::HolderId;
pub use lease::Leased;
pub(crate) use plan::ShardPlan;
pub use queue::Priority;
pub(crate) use queue::{Pushed, Queue, Queued};
pub use show::Usage;

/// The unit of eviction. The shards of a snapshot are one group. Its manifest is another, which
/// stays while the dataset is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The shards of a snapshot.
    Shards(SnapshotId),
    /// The manifest of a snapshot.
    Manifest(SnapshotId),
}

/// Called with a shard that its holders must release, outside all locks.
pub type Recall = Box<dyn Fn(ShardId) + Send + Sync>;

/// Called with a shard that was evicted, outside all locks.
pub(crate) type OnEvicted = Box<dyn Fn(ShardId) + Send + Sync>;

/// The shards of this node.
pub struct Cache {
    state: Mutex<CacheState>,
    /// A permit for each fill in the queue.
    queued: tokio::sync::Semaphore,
    reaper: Reaper,
    recall: OnceLock<Recall>,
    on_evicted: OnceLock<OnEvicted>,
    counters: Arc<Counters>,
}

impl Cache {
    /// Creates an empty cache, and starts the thread that frees evicted memory. The thread ends
    /// with the cache.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(budget: Budget, counters: Arc<Counters>) -> std::io::Result<Arc<Self>> {
        Self::start_with(budget, KeepWhatYouHave::default(), counters)
    }

    /// As [`start`](Self::start), with a given eviction policy.
    pub(crate) fn start_with(
        budget: Budget,
        policy: KeepWhatYouHave,
        counters: Arc<Counters>,
    ) -> std::io::Result<Arc<Self>> {
        let cache = Arc::new(Self {
            state: Mutex::new(CacheState::new(budget, policy)),
            queued: tokio::sync::Semaphore::new(0),
            reaper: Reaper::default(),
            recall: OnceLock::new(),
            on_evicted: OnceLock::new(),
            counters,
        });
        cache.reaper.start(Arc::downgrade(&cache))?;
        Ok(cache)
    }

    /// Sets the function to call when holders must release a shard. Only the first call has an
    /// effect.
    pub fn on_recall(&self, recall: Recall) {
        let _ = self.recall.set(recall);
    }

    /// Sets the function to call when a shard was evicted. Only the first call has an effect.
    pub(crate) fn on_evicted(&self, told: OnEvicted) {
        let _ = self.on_evicted.set(told);
    }

    /// Evicts a shard. Returns true if it is gone. Asks clients that hold it to release it, and
    /// returns false; call this again then.
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

    /// Evicts a shard because its bytes are wrong. The next request fills it again. While a client
    /// maps it, its rows are read from the origin instead.
    pub fn discard(&self, id: ShardId) {
        let discarded = self.lock().discard(id, clock::now());
        if let Discarded::Evicted(_) | Discarded::Condemned { news: true } = discarded {
            self.counters.corrupt_shards.add(1);
        }
        self.part_with(id, discarded);
    }

    /// Finishes discarding a shard. Returns true if it is gone.
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

    /// Stops all fills and refuses new ones. Readers that wait are told.
    pub fn close(&self) {
        let why = Error::new(ErrorKind::Unavailable, "the node is stopping; ask the next one");
        let why = Arc::new(why);
        let waiting = {
            let mut state = self.lock();
            state.closed = Some(Arc::clone(&why));
            std::mem::replace(&mut state.queue, Queue::new(limits::FILL_QUEUE_MAX))
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

    /// Returns an evicted shard's bytes to the budget: at once if no process maps it, else through
    /// the reaper.
    fn bury(&self, evicted: state::EvictedShard) {
        self.counters.evictions.add(1);
        self.counters.evicted_bytes.add(evicted.handle.sealed.total_bytes());
        if let Some(told) = self.on_evicted.get() {
            told(evicted.id);
        }
        self.free(evicted.token, Reclaimable::Sealed(evicted.handle.sealed));
    }

    fn free(&self, token: larder_store::OrphanToken, remains: Reclaimable) {
        match remains.try_free() {
            Ok(()) => self.lock().store.freed(token),
            Err(remains) => self.reaper.add(token, remains),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // Each change of the cache state is complete before any code that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
