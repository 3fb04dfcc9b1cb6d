//! Counts the bytes that each member owns under the placements in use, resident or not. Covers the
//! datasets of the record that are open here.
//!
//! Thread rule: walks over all shards; call it on a blocking thread. A count is kept until the
//! placements or those datasets change.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use larder_base::SnapshotId;
use larder_membership::Record;

use crate::cluster::Placements;
use crate::dataset::Dataset;
use crate::shared::Shared;

/// The bytes that each member owns.
#[derive(Debug)]
pub(super) struct Owned {
    /// Bytes by member of the ring.
    pub(super) bytes: BTreeMap<String, u64>,
    /// The datasets that were counted, sorted.
    pub(super) snapshots: Vec<SnapshotId>,
    placements: Arc<Placements>,
}

impl Owned {
    /// Counts the bytes under other placements, over those of the same datasets that are still
    /// open.
    pub(super) fn by(&self, shared: &Shared, placements: &Placements) -> BTreeMap<String, u64> {
        let mut open = shared.catalog.list();
        open.retain(|dataset| self.snapshots.binary_search(&dataset.snapshot()).is_ok());
        count(placements, &open)
    }
}

/// The latest count.
#[derive(Debug, Default)]
pub(super) struct OwnedBytes(Mutex<Option<Arc<Owned>>>);

impl OwnedBytes {
    /// Returns the current count. A dataset that is not in the record yet is in no plan, so it is
    /// not counted.
    pub(super) fn now(&self, shared: &Shared, record: &Record) -> Arc<Owned> {
        self.over(shared.catalog.list(), shared.placements.load_full(), record)
    }

    /// Counts over the `open` datasets, sorted by snapshot.
    fn over(
        &self,
        mut open: Vec<Arc<Dataset>>,
        placements: Arc<Placements>,
        record: &Record,
    ) -> Arc<Owned> {
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
            // Snapshots share shards; each shard counts once.
            if open.len() == 1 || seen.insert(shard.id) {
                let owners = placement.owners(shard.id);
                owners.iter().for_each(|&owner| bytes[usize::from(owner)] += shard.bytes);
            }
        }
    }
    members.iter().map(|member| member.id.clone()).zip(bytes).collect()
}

#[cfg(test)]
mod tests {
    use larder_membership::record::DatasetRecord as Known;

    use super::*;
    use crate::testing::{CacheFixture, Folder, member, placed};

    const MIB: u64 = 1 << 20;

    fn known(dataset: &Dataset) -> Known {
        let (uri, manifest) = (dataset.uri().to_string(), dataset.manifest_uri().to_string());
        let shards = dataset.manifest().shard_count().into();
        Known { snapshot: dataset.snapshot(), uri, manifest, shards, bytes: bytes(dataset) }
    }

    /// Creates a record with these datasets.
    fn record<'a>(datasets: impl IntoIterator<Item = &'a Arc<Dataset>>) -> Record {
        let founded = Record::founded(
            [1; 16],
            member("a", "127.0.0.1:1"),
            larder_base::Scheme::one_replica(1),
        );
        let known: Vec<_> = datasets.into_iter().map(|dataset| known(dataset)).collect();
        founded.opened(&known).unwrap().record
    }

    fn bytes(dataset: &Dataset) -> u64 {
        let manifest = dataset.manifest();
        (0..manifest.shard_count()).map(|shard| manifest.shard(shard).bytes).sum()
    }

    #[test]
    fn each_shard_counts_once_over_the_open_datasets() {
        let (folder, other) =
            (Folder::new(4096, 64, 4096, true), Folder::new(512, 64, 4096, false));
        let [fixture, beside] = [&folder, &other].map(|folder| CacheFixture::unmanned(folder, MIB));
        // Of two snapshots of one folder, all shards but the last are the same.
        folder.damage();
        folder.index(4096, true);
        let shared = fixture.open(&folder);
        let other = &beside.dataset;
        let last = shared.manifest().shard(shared.manifest().shard_count() - 1);
        let mut open = vec![Arc::clone(&fixture.dataset), shared, Arc::clone(other)];
        open.sort_unstable_by_key(|dataset| dataset.snapshot());
        let members = ["a", "b", "c"].map(|id| member(id, &format!("{id}:1")));
        let placements = placed(1, members.to_vec()).load_full();
        let count = |owned: &OwnedBytes, record: &Record| {
            owned.over(open.clone(), Arc::clone(&placements), record)
        };

        let owned = OwnedBytes::default();
        // A record lists them in the order in which they were opened.
        let all = count(&owned, &record(open.iter().rev()));
        assert_eq!(all.snapshots, open.iter().map(|one| one.snapshot()).collect::<Vec<_>>());
        assert_eq!(
            all.bytes.values().sum::<u64>(),
            bytes(&fixture.dataset) + last.bytes + bytes(other)
        );
        assert!(Arc::ptr_eq(&all, &count(&owned, &record(&open))), "counted once");

        let without = count(&owned, &record(open.iter().filter(|one| !Arc::ptr_eq(one, other))));
        for (id, less) in &without.bytes {
            let manifest = other.manifest();
            let shards = (0..manifest.shard_count()).map(|shard| manifest.shard(shard));
            let gives = |id: &str, shard| placements.gives(other.snapshot(), shard, id);
            let own = shards.filter(|shard| gives(id, shard.id)).map(|shard| shard.bytes);
            assert_eq!(all.bytes[id] - less, own.sum::<u64>(), "{id}");
        }
    }
}
