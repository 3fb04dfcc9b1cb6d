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

mod find;
mod in_flight;
mod job;
mod leaf;
mod lease;
mod manifest;
mod queue;
mod reaper;
mod retained;
mod show;
mod state;
mod unreported;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_base::{Error, ErrorKind, ShardId, SnapshotId, limits};
use larder_dataset::{BlockRead, BlocksRead, FillPlan, Get, Leaf, Manifest, RegionPlan};
use larder_extent::{ExtentError, ExtentLayout, PartSpec, Region};
use larder_store::{Budget, FillPermit, Foreseen, KeepWhatYouHave, Outcome};

use crate::clock;
use crate::dataset::Dataset;
use manifest::Admission;
use reaper::{Reaper, Reclaimable};
use state::{CacheState, Discarded};
use unreported::UnreportedReads;

pub(crate) use find::{Awaited, FoundShard};
pub(crate) use in_flight::Working;
pub(crate) use in_flight::{InFlightFill, Waited, WantedRow};
pub(crate) use job::{FillJob, GaveUp};
pub(crate) use larder_store::HolderId;
pub(crate) use lease::Leased;
pub(crate) use queue::Priority;
pub(crate) use queue::{Pushed, Queue, Queued};
pub(crate) use retained::{BytesHere, FoundRange, IndexReads, Retained};
pub(crate) use show::{Counter, Counters, Inventory, MemoryUsage};
pub(crate) use state::{FailedRead, Failure};

/// Datasets that one connection counts as using, the latest ones it asked for: the training and
/// validation sets of a job, with room to spare.
const CONNECTION_DATASETS_MAX: usize = 16;

/// Shards that wait for a fill, over all priorities. Each is a small entry. A request that finds
/// the queue full gets "resource exhausted" and reads by range or elsewhere.
const FILL_QUEUE_MAX: usize = 4_096;

/// The unit of eviction. The shards of a snapshot are one group, and the leaves of its manifest are
/// another. The manifest itself is a third, which stays while the dataset is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EvictionGroup {
    /// The shards of a snapshot.
    Shards(SnapshotId),
    /// The leaves of a snapshot's manifest.
    Leaves(SnapshotId),
    /// The manifest of a snapshot.
    Manifest(SnapshotId),
}

/// Called with a shard that its holders must release, outside all locks.
pub(crate) type Recall = Box<dyn Fn(ShardId) + Send + Sync>;

/// Called with a shard that was evicted, outside all locks.
pub(crate) type OnEvicted = Box<dyn Fn(ShardId) + Send + Sync>;

/// The shards of this node.
pub(crate) struct Cache {
    state: Mutex<CacheState>,
    /// Wakes a worker, since it may find a fill.
    ready: tokio::sync::Notify,
    reaper: Reaper,
    recall: OnceLock<Recall>,
    on_evicted: OnceLock<OnEvicted>,
    counters: Arc<Counters>,
    unreported: UnreportedReads,
    retained: Arc<Retained>,
}

impl Cache {
    /// Creates an empty cache, and starts the thread that frees evicted memory. The thread ends
    /// with the cache.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(budget: Budget, counters: Arc<Counters>) -> std::io::Result<Arc<Self>> {
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
            ready: tokio::sync::Notify::new(),
            reaper: Reaper::default(),
            recall: OnceLock::new(),
            on_evicted: OnceLock::new(),
            counters,
            unreported: UnreportedReads::default(),
            retained: Arc::default(),
        });
        cache.reaper.start(Arc::downgrade(&cache))?;
        Ok(cache)
    }

    /// Sets the function to call when holders must release a shard. Only the first call has an
    /// effect.
    pub(crate) fn on_recall(&self, recall: Recall) {
        let _ = self.recall.set(recall);
    }

    /// Sets the function to call when a shard was evicted. Only the first call has an effect.
    pub(crate) fn on_evicted(&self, told: OnEvicted) {
        let _ = self.on_evicted.set(told);
    }

    /// Returns what scans read and no shard holds yet.
    pub(crate) fn retained(&self) -> &Arc<Retained> {
        &self.retained
    }

    /// Returns the bytes that fills of these shards read from the origin. Each is returned once.
    pub(crate) fn take_origin_bytes(&self, shards: impl Iterator<Item = ShardId>) -> u64 {
        self.unreported.take(shards)
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

    /// Replaces the known future: which requests may take the room of which shards.
    pub(crate) fn foresee(&self, foreseen: Foreseen<ShardId>) {
        let before = self.lock().store.foresee(foreseen);
        drop(before);
    }

    /// Evicts a shard because its bytes are wrong. The next request fills it again. While a client
    /// maps it, its rows are read from the origin instead.
    pub(crate) fn discard(&self, id: ShardId) {
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
    pub(crate) fn close(&self) {
        let why = Error::new(ErrorKind::Unavailable, "the node is stopping; ask the next one");
        let why = Arc::new(why);
        let waiting = {
            let mut state = self.lock();
            state.closed = Some(Arc::clone(&why));
            std::mem::replace(&mut state.queue, Queue::new(FILL_QUEUE_MAX))
        };
        for queued in waiting.into_all() {
            self.abandon(queued.permit, &queued.flight, &why);
        }
        self.retained.clear();
    }

    /// Asks clients to release a shard that is to be evicted.
    pub(crate) fn recall(&self, id: ShardId) {
        if let Some(recall) = self.recall.get() {
            recall(id);
        }
    }

    /// Returns an evicted shard's bytes to the budget: at once if no process maps it, else through
    /// the reaper.
    fn bury(&self, evicted: state::EvictedShard) {
        self.counters.evictions.add(1);
        self.counters.evicted_bytes.add(evicted.handle.sealed.total_bytes());
        if evicted.handle.came_ahead && !evicted.was_used {
            self.counters.prefetched_unread_bytes.add(evicted.bytes);
        }
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

/// The layout and the reads of one shard. Part by part, the extent is filled by the reads, by rows
/// that are made, and then by the leaf.
#[derive(Debug)]
pub(crate) struct ShardPlan {
    pub(crate) layout: ExtentLayout,
    pub(crate) gets: Vec<Get>,
    pub(crate) blocks: Vec<BlocksRead>,
    /// The index of the first part of each read, then that of each read of blocks, and then that of
    /// the first inline tensor.
    pub(crate) firsts: Vec<usize>,
    /// The inline tensors whose regions have bytes.
    pub(crate) inline: Vec<usize>,
}

impl ShardPlan {
    /// Plans the fill of one shard.
    ///
    /// # Panics
    /// The dataset has no such shard, or the leaf does not have it.
    pub(crate) fn new(manifest: &Manifest, leaf: &Leaf, shard: u32) -> Result<Self, ExtentError> {
        let (layout, part_bytes) = (shard_layout(manifest, shard)?, limits::FILL_PART_BYTES);
        let FillPlan { gets, blocks, mut inline, .. } =
            manifest.fill_plan_in_pieces(leaf, shard, part_bytes, limits::FILL_PIECE_BYTES);
        inline.retain(|&tensor| layout.region_bytes(tensor) > 0);
        let counts = gets.iter().map(|get| get.parts.len());
        let counts = counts.chain(blocks.iter().map(|read| block_parts(read).count()));
        let next = |next: &mut usize, count| {
            *next += count;
            Some(*next)
        };
        let firsts = [0].into_iter().chain(counts.scan(0, next)).collect();
        Ok(Self { layout, gets, blocks, firsts, inline })
    }

    /// Returns the indices of the parts that a read of blocks makes.
    pub(crate) fn parts_of_blocks(&self, read: usize) -> std::ops::Range<usize> {
        let at = self.gets.len() + read;
        self.firsts[at]..self.firsts[at + 1]
    }

    /// Returns the index of the first part that the leaf fills.
    pub(crate) fn first_inline(&self) -> usize {
        self.firsts[self.gets.len() + self.blocks.len()]
    }

    /// Returns the parts of the extent, in the order of `firsts`.
    pub(crate) fn parts(&self) -> Vec<PartSpec> {
        let read = self.gets.iter().flat_map(|get| &get.parts);
        let read = read.map(|part| PartSpec { region: part.tensor, range: part.region.clone() });
        let whole =
            |&region: &usize| PartSpec { region, range: 0..self.layout.region_bytes(region) };
        let made = self.blocks.iter().flat_map(block_parts);
        read.chain(made).chain(self.inline.iter().map(whole)).collect()
    }
}

/// Returns the parts that a read of blocks makes.
fn block_parts(read: &BlocksRead) -> impl Iterator<Item = PartSpec> {
    let parts = |block: &BlockRead| {
        let region = block.tensor;
        let cut = block.parts(limits::FILL_PART_BYTES);
        cut.map(move |range| PartSpec { region, range })
    };
    read.blocks.iter().flat_map(parts)
}

/// Returns the bytes of the budget that a shard takes.
///
/// # Panics
/// The dataset has no such shard.
pub(crate) fn extent_bytes(manifest: &Manifest, shard: u32) -> u64 {
    let layout = shard_layout(manifest, shard);
    layout.map_or_else(|_| manifest.shard(shard).bytes, |layout| layout.total_bytes())
}

/// Returns the layout of a shard's extent.
///
/// # Panics
/// The dataset has no such shard.
pub(crate) fn shard_layout(manifest: &Manifest, shard: u32) -> Result<ExtentLayout, ExtentError> {
    let regions: Vec<_> = manifest.regions(shard).iter().map(region).collect();
    ExtentLayout::new(&regions)
}

/// Rows of different lengths have no stride. Their region is one run of bytes.
fn region(plan: &RegionPlan) -> Region {
    match plan.stride_bytes {
        0 => Region::Blocks { bytes: plan.bytes },
        stride_bytes => Region::Rows { rows: plan.rows, row_bytes: plan.row_bytes, stride_bytes },
    }
}

/// Maps an error of an extent to the error that crosses the wire. The caller is at fault, or the
/// kernel refused.
pub(crate) fn extent_error(error: ExtentError) -> Error {
    let kind = match error {
        ExtentError::Os { .. } => ErrorKind::ResourceExhausted,
        ExtentError::TooLarge { .. }
        | ExtentError::TooManyRegions { .. }
        | ExtentError::BadRegion { .. }
        | ExtentError::TooMuchHashing { .. } => ErrorKind::InvalidArgument,
        _ => ErrorKind::Internal,
    };
    let message = match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    Error::new(kind, message).with_source(error)
}

/// Bytes of the budget. Drop gives them back.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    cache: Arc<Cache>,
    bytes: u64,
    permit: Option<FillPermit<ShardId>>,
}

impl ReservedBytes {
    /// Returns how many bytes these are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Cache {
    /// Takes `bytes` of the budget. May evict shards.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no room.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<ReservedBytes, Error> {
        let (id, group) = reservation();
        let permit = match self.admit(id, group, bytes)? {
            Admission::Admitted(permit) => Some(permit),
            Admission::Resident(_) => None,
        };
        Ok(ReservedBytes { cache: Arc::clone(self), bytes, permit })
    }

    /// Takes `bytes` of the budget if they are free. Evicts nothing.
    fn reserve_free(self: &Arc<Self>, bytes: u64) -> Option<ReservedBytes> {
        let (id, group) = reservation();
        let mut state = self.lock();
        let budget = state.store.budget();
        if bytes > budget.free_bytes() || !budget.has_place() {
            return None;
        }
        let make = || Arc::new(InFlightFill::new(id));
        match state.store.request(id, group, bytes, clock::now(), make) {
            Outcome::Admitted { permit, .. } => {
                Some(ReservedBytes { cache: Arc::clone(self), bytes, permit: Some(permit) })
            }
            _ => unreachable!("there is room, and the name is new"),
        }
    }
}

/// Returns the name of reserved bytes. To the store they are a fill that never ends. Its random
/// name belongs to no shard.
fn reservation() -> (ShardId, EvictionGroup) {
    let mut name = [0; 32];
    fastrand::fill(&mut name);
    let snapshot = SnapshotId::from_bytes(name);
    (manifest::id_of(snapshot), EvictionGroup::Manifest(snapshot))
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let given_up = self.cache.lock().store.give_up(permit, clock::now());
        if let Ok(orphan) = given_up {
            self.cache.free(orphan.token, Reclaimable::Nothing);
        }
    }
}

/// The datasets that one connection has asked for. While this lives their shards are not evicted
/// for other datasets, and the datasets stay open. So a job that validates for an hour finds its
/// shards in the cache. When the connection ends, the shards count as just used.
#[derive(Debug)]
pub(crate) struct InUse {
    cache: Arc<Cache>,
    datasets: Vec<Arc<Dataset>>,
}

impl InUse {
    /// Creates an empty list.
    pub(crate) fn new(cache: &Arc<Cache>) -> Self {
        Self { cache: Arc::clone(cache), datasets: Vec::new() }
    }

    /// Notes a dataset that the connection asks for. A noted dataset costs only a comparison.
    pub(crate) fn note(&mut self, dataset: &Arc<Dataset>) {
        if self.datasets.iter().any(|noted| Arc::ptr_eq(noted, dataset)) {
            return;
        }
        let group = EvictionGroup::Shards(dataset.snapshot());
        self.cache.lock().store.open_group(group, clock::now());
        self.datasets.push(Arc::clone(dataset));
        if self.datasets.len() > CONNECTION_DATASETS_MAX {
            self.close(0);
        }
    }

    fn close(&mut self, index: usize) {
        let dataset = self.datasets.remove(index);
        let group = EvictionGroup::Shards(dataset.snapshot());
        self.cache.lock().store.close_group(group, clock::now());
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        while !self.datasets.is_empty() {
            self.close(self.datasets.len() - 1);
        }
    }
}
