//! The hosts of shards and ranks. The ranks divide each global batch by them, so that each rank
//! reads as many rows as possible from the memory of its own host.
//!
//! Ranks with different tables would lose rows and repeat others. So one process makes one
//! [`Locality`] from its view of the cluster, and hands its bytes to all ranks. Two processes could
//! see different rings, because a ring may change. A locality stays fixed while a loader uses it.
//! If the cluster has changed meanwhile, reads are slower, but no row is lost.
//!
//! Thread rule: immutable. A clone costs a reference count. Non-goals: assigning rows to ranks (see
//! [`RankHosts`]), and sending the bytes to the ranks.

mod codec;
mod make;

use std::{fmt, sync::Arc};

use larder_base::SnapshotId;
use larder_dataset::Manifest;
use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind,
    sampler::{Draws, LocalityId, RankHosts},
};

/// In place of a host's number: no host with a rank.
const NOBODY: u16 = u16::MAX;

/// Ranks of a job that divides batches by locality: 16 bits number their hosts.
const LOCALITY_RANKS_MAX: usize = NOBODY as usize;

/// The division of global batches among ranks: see [`LoaderBuilder::locality`]. Created by
/// [`Dataset::locality`] and [`Mixture::locality`], in one process.
///
/// [`LoaderBuilder::locality`]: crate::LoaderBuilder::locality
/// [`Dataset::locality`]: crate::Dataset::locality
/// [`Mixture::locality`]: crate::Mixture::locality
#[derive(Clone, PartialEq, Eq)]
pub struct Locality {
    inner: Arc<LocalityParts>,
}

#[derive(PartialEq, Eq)]
struct LocalityParts {
    id: LocalityId,
    ranks: RankHosts,
    /// One for each snapshot.
    tables: Box<[ShardHosts]>,
}

/// The hosts of one snapshot's shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ShardHosts {
    snapshot: SnapshotId,
    /// The version of the ring that it was read from.
    ring_version: u64,
    /// The number of entries in `hosts` for each shard.
    per_shard: usize,
    /// The hosts of each shard in turn, padded with `u16::MAX`.
    hosts: Box<[u16]>,
}

impl Locality {
    fn new(ranks: RankHosts, tables: Vec<ShardHosts>) -> Self {
        let id = codec::id(&ranks, &tables);
        Self { inner: Arc::new(LocalityParts { id, ranks, tables: tables.into() }) }
    }

    /// A locality of ranks on these hosts. `holder` gives the host of each shard.
    #[cfg(test)]
    pub(crate) fn made_up(
        hosts: &[u16],
        manifests: &[&Manifest],
        holder: impl Fn(u32) -> u16,
    ) -> Self {
        let table = |manifest: &&Manifest| ShardHosts {
            snapshot: manifest.snapshot(),
            ring_version: 1,
            per_shard: 1,
            hosts: (0..manifest.shard_count()).map(&holder).collect(),
        };
        let ranks = RankHosts::new(hosts.iter().copied());
        Self::new(ranks, manifests.iter().map(table).collect())
    }

    /// Its name. Two localities have equal names exactly if they divide batches alike.
    pub fn id(&self) -> LocalityId {
        self.inner.id
    }

    /// The hosts of the ranks.
    pub fn ranks(&self) -> &RankHosts {
        &self.inner.ranks
    }

    /// The ring version that the placement of each snapshot was read from.
    pub fn snapshots(&self) -> impl ExactSizeIterator<Item = (SnapshotId, u64)> {
        self.inner.tables.iter().map(|table| (table.snapshot, table.ring_version))
    }

    /// The index of the table of a snapshot with `shards` shards.
    pub(crate) fn table(&self, snapshot: SnapshotId, shards: u32) -> Option<usize> {
        let is_it =
            |table: &ShardHosts| table.snapshot == snapshot && table.shards() == shards as usize;
        self.inner.tables.iter().position(is_it)
    }

    /// The numbers of the hosts that hold a shard. Numbers that match no host do not count.
    pub(crate) fn holders(&self, table: usize, shard: u32) -> &[u16] {
        let table = &self.inner.tables[table];
        &table.hosts[shard as usize * table.per_shard..][..table.per_shard]
    }
}

/// A locality, and the tables of a loader's datasets in it.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Divider {
    locality: Locality,
    /// The datasets, each with the index of its table.
    datasets: Box<[(Manifest, usize)]>,
}

impl Divider {
    /// # Errors
    /// `InvalidArgument` for a locality of another number of ranks, or of other snapshots.
    pub(in crate::loader) fn new<'a>(
        locality: Locality,
        world: u32,
        manifests: impl Iterator<Item = &'a Manifest>,
    ) -> Result<Self, Error> {
        let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what);
        let ranks = locality.ranks().world();
        if ranks != world {
            return Err(invalid(format!(
                "the locality is of {ranks} ranks, and there are {world}"
            ))
            .hint("make one of the hosts of all ranks"));
        }
        let find = |manifest: &Manifest| {
            let snapshot = manifest.snapshot();
            let table = locality.table(snapshot, manifest.shard_count()).ok_or_else(|| {
                invalid(format!("the locality does not know snapshot {snapshot}"))
                    .hint("make it from the dataset or mixture that is loaded")
            })?;
            Ok((manifest.clone(), table))
        };
        let datasets = manifests.map(find).collect::<Result<_, Error>>()?;
        Ok(Self { datasets, locality })
    }

    pub(in crate::loader) fn id(&self) -> LocalityId {
        self.locality.id()
    }

    fn ranks(&self) -> &RankHosts {
        self.locality.ranks()
    }

    /// The rows of a global batch that `rank` reads, in order.
    pub(in crate::loader) fn share(&self, batch: &Draws, rank: u32) -> Draws {
        let rows = u32::try_from(batch.len()).expect("ranks and their rows are limited");
        let division = self.ranks().divide(rows, |row| {
            let (dataset, sample) = batch.at(row as usize);
            let (manifest, table) = &self.datasets[dataset as usize];
            let row = manifest.locate(sample).expect("a declared sample");
            self.locality.holders(*table, row.shard)
        });
        batch.pick(&division.rows_of(rank))
    }
}

impl ShardHosts {
    fn shards(&self) -> usize {
        self.hosts.len() / self.per_shard
    }
}

impl fmt::Debug for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locality")
            .field("id", &format_args!("{}", self.id()))
            .field("ranks", &self.ranks().world())
            .field("snapshots", &self.snapshots().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
