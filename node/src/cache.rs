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

mod lease;
mod reaper;
mod wanted;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_dataset::{ShardId, SnapshotId};
use larder_extent::Sealed;
use larder_store::{Budget, Outcome, Store};

use crate::catalog::Dataset;
use crate::fill::{Failure, Priority, Queue};
use crate::flight::Flight;

pub use larder_store::HolderId;
pub use lease::Leased;

/// What the cache has of one shard.
#[derive(Debug)]
pub enum Found {
    /// It is here.
    Resident(Arc<Sealed>),
    /// It is on its way, or its fill just gave up (then the flight says so at once).
    InFlight(Awaited),
    /// It is not here and will not be kept for now: read its rows by range.
    NotKept,
}

/// A flight that somebody waits for; while this lives, a filler that dies is replaced.
/// Derefs to [`Flight`].
#[derive(Debug)]
pub struct Awaited { /* flight, cache, waiter */ }
impl std::ops::Deref for Awaited { type Target = Flight; }

/// Who is told that a shard should be let go of: called with the shard's id, outside all locks.
pub type Recall = Box<dyn Fn(ShardId) + Send + Sync>;

pub struct Usage { pub limit_bytes: u64, pub resident: Tally, pub filling: Tally, pub orphaned: Tally, pub queued: usize }

impl Cache {
    pub fn find(self: &Arc<Self>, dataset: &Arc<Dataset>, shards: &[u32], priority: Priority) -> Vec<Found>;
    pub fn lease(self: &Arc<Self>, dataset: &Arc<Dataset>, shard: u32, holder: HolderId) -> Leased;
    // enum Leased { Granted(Arc<Sealed>), Pending(Arc<Flight>) /* .is_queued() */, NotKept, OverQuota(Error), Failed(Arc<Error>) }
    pub fn release(&self, holder: HolderId, id: ShardId) -> bool;
    pub fn release_all(&self, holder: HolderId) -> larder_store::Released<ShardId>;
    pub fn leased_by(&self, holder: HolderId) -> Option<larder_store::HolderView>;
    pub fn holders(&self) -> Vec<larder_store::HolderView>;
    pub fn discard(&self, id: ShardId);
    pub fn on_recall(&self, recall: Recall);   // once
    pub fn usage(&self) -> Usage;
    pub fn shards(&self) -> Vec<larder_store::ShardView<ShardId, Group>>;
    pub fn failures(&self) -> Vec<Failure>;
}
