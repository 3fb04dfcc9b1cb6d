//! How many bytes each member owns by the placements in use here, resident or not, over the datasets of the record that
//! are open here.
//!
//! Thread rule: walks over all shards; call on a blocking thread. What was counted is kept until the placements or those
//! datasets are others.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use larder_cluster::Record;
use larder_dataset::SnapshotId;

use crate::catalog::Dataset;
use crate::placements::Placements;
use crate::shared::Shared;

/// Who owns how much.
#[derive(Debug)]
pub(super) struct Owned {
    /// By member of the ring.
    pub(super) bytes: BTreeMap<String, u64>,
    /// The datasets that were counted, sorted.
    pub(super) snapshots: Vec<SnapshotId>,
    placements: Arc<Placements>,
}

/// The latest count.
#[derive(Debug, Default)]
pub(super) struct OwnedBytes(Mutex<Option<Arc<Owned>>>);

impl OwnedBytes {
    /// Who owns how much now. A dataset that the record does not know yet is in no plan, so it is not counted.
    pub(super) fn now(&self, shared: &Shared, record: &Record) -> Arc<Owned> {
        let (placements, mut open) = (shared.placements.load_full(), shared.catalog.list());
        let known: HashSet<_> = record.datasets.iter().map(|known| known.snapshot).collect();
        open.retain(|dataset| known.contains(&dataset.snapshot()));
        let snapshots: Vec<SnapshotId> = open.iter().map(|dataset| dataset.snapshot()).collect();
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*latest
            && Arc::ptr_eq(&known.placements, &placements)
            && known.snapshots == snapshots
        {
            return Arc::clone(known);
        }
        let bytes = count(&placements, &open);
        Arc::clone(latest.insert(Arc::new(Owned { bytes, snapshots, placements })))
    }
}

fn count(placements: &Placements, open: &[Arc<Dataset>]) -> BTreeMap<String, u64> {
    let members = placements.ring().members();
    let mut bytes = vec![0_u64; members.len()];
    let mut seen = HashSet::new();
    for dataset in open {
        let placement = placements.of(dataset.snapshot());
        let manifest = dataset.manifest();
        for shard in (0..manifest.shard_count()).map(|index| manifest.shard(index)) {
            // Snapshots share shards; a shard is owned once.
            if open.len() == 1 || seen.insert(shard.id) {
                let owners = placement.owners(shard.id);
                owners.iter().for_each(|&owner| bytes[usize::from(owner)] += shard.bytes);
            }
        }
    }
    members.iter().map(|member| member.id.clone()).zip(bytes).collect()
}
