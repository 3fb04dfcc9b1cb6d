//! The first fills of a dataset that this node has just indexed: shards of which the index has read
//! most bytes.
//!
//! They take the bytes from memory ([`Retained`](crate::cache::Retained)). A fill frees the
//! bytes that it used, so that memory for the data and one shard is enough.
//!
//! Thread rule: async. Non-goals: shards of other owners, and shards that few bytes are here of.
//! Readers ask for these, as for any other.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::runtime::Handle;
use tokio::time;

use super::{Brought, ObjectRange, Reader, bring};
use crate::cache::{Cache, IndexReads, Priority, ShardPlan, extent_bytes};
use crate::catalog::leaves::Leaves;
use crate::cluster::Placements;
use crate::dataset::Dataset;

/// Shards that are filled at once if memory has room. A fill takes all its memory at its begin, so
/// otherwise it is one.
const FILLS_AT_ONCE: usize = 2;

/// Shards one after the other that are not filled, after which no others are looked at: a scan
/// retains bytes from the first file on.
const MISSES_MAX: u32 = 64;

/// Time for all of them. From memory a shard takes a tenth of a second.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Fills the first shards of a dataset.
pub(crate) struct FirstFills {
    pub(crate) cache: Arc<Cache>,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) placements: Arc<ArcSwap<Placements>>,
    /// The name of this node.
    pub(crate) node_id: String,
    pub(crate) runtime: Handle,
}

impl FirstFills {
    /// Begins to fill the shards that this node owns, and drops `reads` at the end. Waits for the
    /// end if memory lacks room for the dataset beside the retained bytes: readers' requests would
    /// take the room of these.
    pub(crate) fn begin(
        self: Arc<Self>,
        dataset: Arc<Dataset>,
        reads: Arc<IndexReads>,
    ) -> BoxFuture<'static, ()> {
        let has_room = self.free_bytes() >= dataset.manifest().total_bytes();
        let (fills, at_once) = (Arc::clone(&self), if has_room { FILLS_AT_ONCE } else { 1 });
        let filling = async move {
            let filled = time::timeout(TIMEOUT, fills.fill_all(&dataset, at_once)).await;
            if filled.is_err() {
                tracing::info!(dataset = %dataset.uri(), "the first fills took too long");
            }
            drop(reads);
        };
        let filling = self.runtime.spawn(filling);
        let end = async move {
            if !has_room {
                // A panic is in the log, and readers ask for the shards.
                let _ = filling.await;
            }
        };
        end.boxed()
    }

    async fn fill_all(&self, dataset: &Arc<Dataset>, at_once: usize) {
        let placements = self.placements.load_full();
        let (manifest, snapshot) = (dataset.manifest(), dataset.snapshot());
        let is_own =
            |&shard: &u32| placements.gives(snapshot, manifest.shard(shard).id, &self.node_id);
        let own = (0..manifest.shard_count()).filter(is_own);
        let fills = stream::iter(own.map(|shard| self.fill(dataset, shard)));
        let (mut fills, mut misses) = (fills.buffered(at_once), 0);
        while misses < MISSES_MAX
            && let Some(filled) = fills.next().await
        {
            misses = if filled { 0 } else { misses + 1 };
        }
    }

    /// Fills a shard if most of its bytes are here, and there is room that needs no eviction.
    /// Returns whether it did.
    async fn fill(&self, dataset: &Arc<Dataset>, shard: u32) -> bool {
        let room = self.free_bytes() + self.cache.retained().memory_bytes();
        if extent_bytes(dataset.manifest(), shard) > room
            || !self.is_mostly_here(dataset, shard).await
        {
            return false;
        }
        let brought = bring(&self.cache, &self.leaves, dataset, shard, Priority::Prefetch).await;
        brought == Brought::Here
    }

    async fn is_mostly_here(&self, dataset: &Arc<Dataset>, shard: u32) -> bool {
        if self.cache.retained().is_empty() {
            return false;
        }
        let manifest = dataset.manifest();
        let Ok(leaf) = self.leaves.get(dataset, manifest.leaf_of(shard)).await else {
            return false;
        };
        let Ok(plan) = ShardPlan::new(manifest, &leaf, shard) else { return false };
        let gets = plan.gets.iter().map(|get| (get.object, get.range.clone()));
        let blocks = plan.blocks.iter().map(|read| (read.object, read.range.clone()));
        let (mut all, mut missing) = (0, 0);
        for (object, range) in gets.chain(blocks) {
            all += range.end - range.start;
            missing += self.reader.missing_bytes(&ObjectRange { leaf: &leaf, object, range });
        }
        missing < all / 2
    }

    fn free_bytes(&self) -> u64 {
        let usage = self.cache.usage();
        let used = usage.resident.bytes + usage.filling.bytes + usage.orphaned.bytes;
        usage.limit_bytes.saturating_sub(used)
    }
}
