//! Surveys the datasets in use: the replicas a node lacks, the room it owes, and the shards it can
//! spare.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use larder_base::{ShardId, SnapshotId};
use tokio::task;

use crate::cache::extent_bytes;
use crate::cluster::Placements;
use crate::dataset::Dataset;
use crate::shared::Shared;

/// At most this many missing shards are considered at once, which bounds the memory of a survey.
const LACKING_MAX: usize = 1 << 16;

/// The shards that a node could add or evict.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) lacking: HashMap<ShardId, Lacking>,
    /// The other owners of the missing shards, by index among the ring's members.
    pub(super) owners: BTreeSet<u16>,
    /// Bytes of the missing shards of which this node is the primary owner.
    pub(super) promised: u64,
    pub(super) spare: Vec<Spare>,
}

/// A shard that this node lacks and owns, but not as its primary owner.
#[derive(Debug, Clone)]
pub(super) struct Lacking {
    pub(super) dataset: Arc<Dataset>,
    pub(super) index: u32,
    /// Bytes of the budget that it takes.
    pub(super) bytes: u64,
}

/// A shard that is here, and of which another member is the primary owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spare {
    pub(super) id: ShardId,
    pub(super) snapshot: SnapshotId,
    /// Bytes of the budget that it takes.
    pub(super) bytes: u64,
    /// Its primary owner, by index among the ring's members.
    pub(super) first: u16,
    /// Whether this node is none of its owners. It made the copy while it stood in for one.
    pub(super) is_extra: bool,
}

impl Lacking {
    pub(super) fn id(&self) -> ShardId {
        self.dataset.manifest().shard(self.index).id
    }
}

impl Survey {
    /// Surveys the datasets in use. Returns `None` if the survey's thread ended.
    pub(super) async fn make(shared: &Arc<Shared>, placements: &Arc<Placements>) -> Option<Self> {
        let (shared, placements) = (Arc::clone(shared), Arc::clone(placements));
        let looking = task::spawn_blocking(move || {
            let mut here: HashSet<ShardId> = shared.cache.flights().into_keys().collect();
            here.extend(shared.cache.idle_times().into_iter().map(|(id, _)| id));
            Self::of(&shared.catalog.list_used(), &placements, &shared.config.node_id, &here)
        });
        looking.await.ok()
    }

    /// Surveys these datasets, for a node that holds `here`.
    fn of(
        open: &[Arc<Dataset>],
        placements: &Placements,
        own_id: &str,
        here: &HashSet<ShardId>,
    ) -> Self {
        let mut survey = Self::default();
        let Some(own) = placements.ring().index(own_id) else { return survey };
        let mut asked_first = HashSet::new();
        for dataset in open {
            let placement = placements.of(dataset.snapshot());
            for index in 0..dataset.manifest().shard_count() {
                let id = dataset.manifest().shard(index).id;
                let owners = placement.owners(id);
                let rank = owners.iter().position(|&owner| usize::from(owner) == own);
                match (rank, here.contains(&id)) {
                    (Some(0), is_here) => {
                        if asked_first.insert(id) && !is_here {
                            let bytes = extent_bytes(dataset.manifest(), index);
                            survey.promised = survey.promised.saturating_add(bytes);
                        }
                    }
                    (_, true) => {
                        let (snapshot, bytes) =
                            (dataset.snapshot(), extent_bytes(dataset.manifest(), index));
                        let (first, is_extra) = (owners[0], rank.is_none());
                        survey.spare.push(Spare { id, snapshot, bytes, first, is_extra });
                    }
                    (Some(_), false) if survey.lacking.len() < LACKING_MAX => {
                        let others = owners.iter().filter(|&&owner| usize::from(owner) != own);
                        survey.owners.extend(others);
                        let (dataset, bytes) =
                            (Arc::clone(dataset), extent_bytes(dataset.manifest(), index));
                        survey.lacking.insert(id, Lacking { dataset, index, bytes });
                    }
                    (_, false) => {}
                }
            }
        }
        // Another snapshot may name this node the primary owner of the same shard.
        survey.spare.retain(|spare| !asked_first.contains(&spare.id));
        // Another snapshot may name this node one of the owners.
        let replicas = survey.spare.iter().filter(|spare| !spare.is_extra).map(|spare| spare.id);
        let replicas: HashSet<ShardId> = replicas.collect();
        survey.spare.iter_mut().for_each(|spare| spare.is_extra &= !replicas.contains(&spare.id));
        survey
    }
}

#[cfg(test)]
mod tests {
    use larder_base::Ring;

    use super::*;
    use crate::testing::{CacheFixture, Folder, member};

    #[test]
    fn replica_owners_lack_one_copy_each_and_the_primary_none() {
        let folder = Folder::new(40, 1024, 4096, false);
        let fixture = CacheFixture::unmanned(&folder, 1 << 20);
        let open = [Arc::clone(&fixture.dataset)];
        let members = ["n1", "n2", "n3"].map(|id| member(id, &format!("{id}:1"))).to_vec();
        let ring = Ring::new(1, members).unwrap().with_replicas(2).unwrap();
        let placements = Placements::of_ring(Arc::new(ring));
        let manifest = fixture.dataset.manifest();
        let all: HashSet<ShardId> =
            (0..manifest.shard_count()).map(|index| manifest.shard(index).id).collect();
        assert_eq!(all.len(), 10);
        let (mut lacking, mut promised) = (HashSet::new(), 0);
        for (own, id) in (0..).zip(["n1", "n2", "n3"]) {
            let cold = Survey::of(&open, &placements, id, &HashSet::new());
            assert!(!cold.owners.contains(&own) && cold.spare.is_empty(), "nobody asks himself");
            assert!(cold.lacking.keys().all(|shard| lacking.insert(*shard)), "one copy each");
            promised += cold.promised;
            let warm = Survey::of(&open, &placements, id, &all);
            assert_eq!((warm.lacking.len(), warm.owners.len(), warm.promised), (0, 0, 0));
            let first = |spare: &Spare| placements.of(spare.snapshot).owners(spare.id)[0];
            assert!(
                warm.spare.iter().all(|spare| spare.first == first(spare) && spare.first != own)
            );
            // Spare are a replica it owns and a shard it does not own.
            let spare: HashSet<ShardId> = warm.spare.iter().map(|spare| spare.id).collect();
            assert!(cold.lacking.keys().all(|shard| spare.contains(shard)));
            let extra = |spare: &Spare| spare.is_extra != cold.lacking.contains_key(&spare.id);
            assert!(warm.spare.iter().all(extra), "a replica is owned, another copy is extra");
            let extent_bytes = CacheFixture::extent_bytes(&folder, 4);
            assert_eq!(10 - spare.len() as u64, cold.promised / extent_bytes);
        }
        assert_eq!((lacking, promised), (all.clone(), 10 * CacheFixture::extent_bytes(&folder, 4)));
        let stranger = Survey::of(&open, &placements, "n4", &all);
        assert_eq!((stranger.lacking.len(), stranger.spare.len(), stranger.promised), (0, 0, 0));
    }
}
