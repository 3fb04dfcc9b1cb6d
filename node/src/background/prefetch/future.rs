//! The plans, the shards and the memory of a node, as `larder-foresight` takes them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use larder_base::{ShardId, SnapshotId};
use larder_foresight::{Evidence, InMemory, Looked, Otherwise, Outlook, OwnShard, Reads};
use larder_store::HeldShard;

use crate::cache::{Inventory, extent_bytes};
use crate::catalog::Catalog;
use crate::cluster::{Cluster, Placements};
use crate::dataset::Dataset;
use crate::plans::ReadJob;
use crate::shared::Shared;

/// Uses of shards that a node looks ahead, in 16 MiB. Later ones count as later than all.
const FORESEEN_USES_MAX: usize = 1_000_000;

/// The state of the node at a computation.
pub(super) struct Situation {
    placements: Arc<Placements>,
    node_id: String,
    /// Shards move. Those pulled for the next ring stay.
    is_changing: bool,
    memory: Inventory,
}

/// The state that computations share.
#[derive(Debug, Default)]
pub(super) struct Future {
    owned: HashMap<SnapshotId, Owned>,
    outlook: Outlook<ShardId>,
    evidence: Evidence<SnapshotId, ShardId>,
}

/// The shards of a snapshot that this node owns.
#[derive(Debug)]
struct Owned {
    placements: Arc<Placements>,
    dataset: Arc<Dataset>,
    shards: Vec<OwnShard<ShardId>>,
}

impl Situation {
    pub(super) fn of(shared: &Shared) -> Self {
        let standing = shared.cluster.as_ref().map(Cluster::standing);
        let record = standing.as_ref().and_then(|standing| standing.record.as_ref());
        Self {
            placements: shared.placements.load_full(),
            node_id: shared.config.node_id.clone(),
            is_changing: record
                .is_some_and(|record| record.change.is_some() || record.settling.is_some()),
            memory: shared.cache.inventory(),
        }
    }
}

impl Future {
    /// Notes a shard that was fetched ahead.
    pub(super) fn fetched(&mut self, dataset: &Dataset, shard: u32) {
        self.evidence.fetched(dataset.manifest().shard(shard).id, dataset.snapshot());
    }

    /// Judges by what was read whether jobs follow their plans. Returns the snapshots whose plans
    /// are set aside, and those of them that are news.
    pub(super) fn judge(
        &mut self,
        jobs: &[ReadJob],
        situation: &Situation,
        now: Instant,
    ) -> (HashSet<SnapshotId>, Vec<SnapshotId>) {
        let held = situation.memory.held.iter();
        let was_read = held.map(|held| (held.id, held.was_used || held.is_leased)).collect();
        let news = self.evidence.judge(jobs, &was_read, now);
        (self.evidence.set_aside().collect(), news)
    }

    /// Computes what to do now. Also returns the datasets that its fetches count.
    pub(super) fn look(
        &mut self,
        catalog: &Catalog,
        jobs: &[ReadJob],
        situation: &Situation,
        now: Instant,
    ) -> (Looked<ShardId>, Vec<Arc<Dataset>>) {
        self.learn_owned(catalog, jobs, situation);
        let reads = |(snapshot, owned): (&SnapshotId, &Owned)| {
            let plans = jobs.iter().filter(|job| job.snapshot == *snapshot);
            (Arc::clone(&owned.dataset), plans.map(ReadJob::plan).collect::<Vec<_>>())
        };
        let (datasets, plans): (Vec<_>, Vec<_>) = self.owned.iter().map(reads).unzip();
        let shards = self.owned.values().map(|owned| &*owned.shards);
        let reads = shards.zip(plans).map(|(shards, plans)| Reads { shards, plans });
        let reads: Vec<Reads<'_, ShardId>> = reads.collect();
        let Inventory { limit_bytes, mapped_orphan_bytes, held, .. } = &situation.memory;
        let memory = limit_bytes.saturating_sub(*mapped_orphan_bytes);
        let memory = memory.min(self.bytes_of_shards(situation.memory.shards_max));
        let held = held.iter().map(|held| in_memory(held, &datasets, situation.is_changing));
        let looked = self.outlook.look(memory, FORESEEN_USES_MAX, &reads, held, now);
        (looked, datasets)
    }

    /// Returns the bytes of so many planned shards, by their mean.
    fn bytes_of_shards(&self, count: usize) -> u64 {
        let planned = || self.owned.values().flat_map(|owned| owned.shards.iter());
        let bytes: u64 = planned().map(|shard| shard.bytes).sum();
        bytes.div_ceil(planned().count().max(1) as u64).saturating_mul(count as u64)
    }

    /// Learns which shards of the planned snapshots this node owns.
    fn learn_owned(&mut self, catalog: &Catalog, jobs: &[ReadJob], situation: &Situation) {
        let planned: HashSet<SnapshotId> = jobs.iter().map(|job| job.snapshot).collect();
        self.owned.retain(|snapshot, owned| {
            planned.contains(snapshot) && Arc::ptr_eq(&owned.placements, &situation.placements)
        });
        for snapshot in planned {
            if !self.owned.contains_key(&snapshot)
                && let Some(dataset) = catalog.get(snapshot)
            {
                self.owned.insert(snapshot, Owned::of(dataset, situation));
            }
        }
    }
}

impl Owned {
    fn of(dataset: Arc<Dataset>, situation: &Situation) -> Self {
        let (placements, manifest) = (Arc::clone(&situation.placements), dataset.manifest());
        let own = placements.ring().index(&situation.node_id);
        let placement = placements.of(dataset.snapshot());
        let own_shard = |number| {
            let id = manifest.shard(number).id;
            let is_own = Some(usize::from(placement.owners(id)[0])) == own;
            is_own.then(|| OwnShard { id, number, bytes: extent_bytes(manifest, number) })
        };
        let shards = (0..manifest.shard_count()).filter_map(own_shard).collect();
        Self { placements, dataset, shards }
    }
}

/// Describes a shard in memory. A replica of planned data that another node owns is spare, unless
/// it may have come for the next ring.
fn in_memory(
    held: &HeldShard<ShardId>,
    planned: &[Arc<Dataset>],
    is_changing: bool,
) -> InMemory<ShardId> {
    let is_planned = || planned.iter().any(|dataset| dataset.find_shard(held.id).is_some());
    let otherwise = match held.is_idle {
        true => Otherwise::IsIdle,
        false if !is_changing && !held.is_filling && is_planned() => Otherwise::IsSpare,
        false => Otherwise::Stays,
    };
    let HeldShard { id, bytes, is_leased, last_used, .. } = *held;
    InMemory { id, bytes, is_mapped: is_leased, last_used, otherwise }
}
