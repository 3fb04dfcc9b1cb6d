//! Computes what a node should fetch and give up, from plans, its shards and its memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::{ShardId, SnapshotId, limits};
use larder_foresight::{Plan, Schedule, Shard, joined, schedule};
use larder_store::Foreseen;

use crate::cache::{Inventory, extent_bytes};
use crate::catalog::Catalog;
use crate::dataset::Dataset;
use crate::membership::{Cluster, Placements};
use crate::plans::ReadJob;
use crate::shared::Shared;

/// A client returns a recalled map within this time, unless a program still uses its rows.
const RECALL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a recall is remembered. Then a client that still maps the shard is asked again.
const RECALL_AGAIN: Duration = Duration::from_secs(10);

/// A shard to fetch.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) dataset: Arc<Dataset>,
    /// Its number in the dataset.
    pub(super) shard: u32,
    /// Its bytes in the budget.
    pub(super) bytes: u64,
    /// When it is needed, in milliseconds from the computation.
    pub(super) deadline: u64,
}

/// What follows from the plans.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) foreseen: Foreseen<ShardId>,
    /// The shards to fetch now, soonest first.
    pub(super) due: VecDeque<Due>,
    /// Shards given up that clients map.
    pub(super) recalled: Vec<ShardId>,
}

/// The state of the node at a computation.
pub(super) struct Situation {
    pub(super) placements: Arc<Placements>,
    pub(super) node_id: String,
    /// Shards move. Those pulled for the next ring stay.
    pub(super) is_changing: bool,
    pub(super) memory: Inventory,
}

/// What is kept from one computation to the next.
#[derive(Debug, Default)]
pub(super) struct Future {
    owned: HashMap<SnapshotId, Owned>,
    recalls: HashMap<ShardId, Instant>,
}

/// The shards of a snapshot that this node owns.
#[derive(Debug)]
struct Owned {
    placements: Arc<Placements>,
    dataset: Arc<Dataset>,
    /// Number in the snapshot, and bytes in the budget.
    shards: Vec<(u32, u64)>,
}

/// The shards of a computation. The index of a shard is its name for `larder-foresight`.
#[derive(Default)]
struct Table {
    shards: Vec<Shard>,
    ids: Vec<ShardId>,
    /// The snapshot and the number of each. `None`: it is only here.
    names: Vec<Option<(SnapshotId, u32)>>,
    index: HashMap<ShardId, u32>,
    /// Those that a client maps.
    leased: HashSet<u32>,
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
    /// Computes what to fetch and what to give up.
    pub(super) fn look(
        &mut self,
        catalog: &Catalog,
        jobs: &[ReadJob],
        situation: &Situation,
        now: Instant,
    ) -> Looked {
        self.learn_owned(catalog, jobs, situation);
        self.recalls.retain(|_, asked| now.saturating_duration_since(*asked) < RECALL_AGAIN);
        let mut table = Table::default();
        let indices: HashMap<SnapshotId, Vec<u32>> = self
            .owned
            .iter()
            .map(|(&snapshot, owned)| (snapshot, table.add_owned(snapshot, owned)))
            .collect();
        let memory = self.take_stock(&mut table, situation, now);
        let uses = jobs.iter().filter_map(|job| {
            let (indices, owned) = (indices.get(&job.snapshot)?, self.owned.get(&job.snapshot)?);
            let plan = Plan {
                passes: job.keys.orders().to_vec(),
                slowest: job.slowest,
                fastest: job.fastest,
                rate: job.rate,
            };
            let shards = owned.shards.iter().map(|&(number, _)| number);
            Some(plan.uses(indices.iter().copied().zip(shards)))
        });
        let uses = joined(uses, limits::FORESEEN_USES_MAX);
        let memory = memory.saturating_sub(self.reserve(jobs));
        let schedule = schedule(memory, &table.shards, &uses);
        self.looked(&table, &schedule, memory, now)
    }

    /// The room that fetches take until the shards given up for them have left: that of a window.
    /// Without it, a window that is entered would wait until clients returned maps of the last one.
    fn reserve(&self, jobs: &[ReadJob]) -> u64 {
        let window = |job: &ReadJob| {
            let shards = &self.owned.get(&job.snapshot)?.shards;
            let bytes: u64 = shards.iter().map(|&(_, bytes)| bytes).sum();
            Some(bytes / u64::from(job.keys.windows().max(1)))
        };
        jobs.iter().filter_map(window).max().unwrap_or(0)
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

    /// Notes which shards are here. Returns the memory for them: all but that of others which stay.
    fn take_stock(&self, table: &mut Table, situation: &Situation, now: Instant) -> u64 {
        let Inventory { limit_bytes, mapped_orphan_bytes, held, .. } = &situation.memory;
        let mut memory = limit_bytes.saturating_sub(*mapped_orphan_bytes);
        let is_named = |id| self.owned.values().any(|owned| owned.dataset.find_shard(id).is_some());
        for one in held {
            let known = table.index.get(&one.id).copied();
            // A replica that another node owns is used by nobody here: it leaves first.
            let is_spare = || !situation.is_changing && !one.is_filling && is_named(one.id);
            let index = match known {
                Some(index) => index,
                None if one.is_idle => continue,
                None if is_spare() => table.add(one.id, one.bytes, None),
                None => {
                    memory = memory.saturating_sub(one.bytes);
                    continue;
                }
            };
            // A shard that was leased again since then was returned.
            let asked = self.recalls.get(&one.id).filter(|asked| one.last_used <= **asked);
            let is_overdue =
                asked.is_some_and(|asked| now.saturating_duration_since(*asked) > RECALL_PATIENCE);
            let shard = &mut table.shards[index as usize];
            (shard.is_held, shard.is_locked) = (true, one.is_leased && is_overdue);
            if one.is_leased {
                table.leased.insert(index);
            }
        }
        memory
    }

    /// Translates a schedule for so much memory, and chooses the maps to recall.
    fn looked(&mut self, table: &Table, schedule: &Schedule, memory: u64, now: Instant) -> Looked {
        let mut looked = Looked::default();
        let bytes_of = |shard: u32| table.shards[shard as usize].bytes;
        let held = table.shards.iter().filter(|shard| shard.is_held).map(|shard| shard.bytes);
        let given_up = schedule.given_up.iter().map(|&shard| bytes_of(shard));
        let kept = held.sum::<u64>().saturating_sub(given_up.sum());
        let room = memory.saturating_sub(kept);
        let mut due_bytes = 0_u64;
        for fetch in &schedule.fetches {
            let shard = table.shards[fetch.shard as usize];
            let is_new = looked.foreseen.fetches.insert(table.ids[fetch.shard as usize]);
            if shard.is_held || !is_new || due_bytes.saturating_add(shard.bytes) > room {
                continue;
            }
            if let Some((snapshot, number)) = table.names[fetch.shard as usize] {
                let dataset = Arc::clone(&self.owned[&snapshot].dataset);
                let (bytes, deadline) = (shard.bytes, fetch.deadline);
                looked.due.push_back(Due { dataset, shard: number, bytes, deadline });
                due_bytes = due_bytes.saturating_add(bytes);
            }
        }
        // All of them, so that a reader who comes first finds room too.
        for shard in schedule.given_up.iter().filter(|shard| table.leased.contains(shard)) {
            let id = table.ids[*shard as usize];
            looked.recalled.push(id);
            self.recalls.entry(id).or_insert(now);
        }
        let given_up = schedule.given_up.iter().map(|&shard| table.ids[shard as usize]);
        looked.foreseen.given_up = given_up.collect();
        looked
    }
}

impl Owned {
    fn of(dataset: Arc<Dataset>, situation: &Situation) -> Self {
        let (placements, manifest) = (Arc::clone(&situation.placements), dataset.manifest());
        let own = placements.ring().index(&situation.node_id);
        let placement = placements.of(dataset.snapshot());
        let owns = |&shard: &u32| {
            let owner = placement.owners(manifest.shard(shard).id)[0];
            Some(usize::from(owner)) == own
        };
        let shards = (0..manifest.shard_count()).filter(owns);
        let shards = shards.map(|shard| (shard, extent_bytes(manifest, shard))).collect();
        Self { placements, dataset, shards }
    }
}

impl Table {
    /// Adds the shards of a snapshot. Returns the index of each. A shard of several snapshots has
    /// one index.
    fn add_owned(&mut self, snapshot: SnapshotId, owned: &Owned) -> Vec<u32> {
        let manifest = owned.dataset.manifest();
        let add = |&(number, bytes): &(u32, u64)| {
            let id = manifest.shard(number).id;
            let known = self.index.get(&id).copied();
            known.unwrap_or_else(|| self.add(id, bytes, Some((snapshot, number))))
        };
        owned.shards.iter().map(add).collect()
    }

    fn add(&mut self, id: ShardId, bytes: u64, name: Option<(SnapshotId, u32)>) -> u32 {
        let index = u32::try_from(self.shards.len()).expect("snapshots count shards in 32 bits");
        self.shards.push(Shard::absent(bytes));
        self.ids.push(id);
        self.names.push(name);
        self.index.insert(id, index);
        index
    }
}
