//! Which rows of a global batch a rank reads, by where they are held. Pure: no rows, no threads.

use larder_dataset::Manifest;

use super::content::Samples;
use crate::{
    Error, ErrorKind, Locality,
    sampler::{LocalityId, RankHosts},
};

/// A locality, and where in it the datasets of a loader are found.
#[derive(Debug, Clone)]
pub(super) struct Divider {
    locality: Locality,
    /// Of each dataset, with the number of its table.
    datasets: Box<[(Manifest, usize)]>,
}

impl Divider {
    /// # Errors
    /// `InvalidArgument` for a locality of another number of ranks, or of other snapshots.
    pub(super) fn new<'a>(
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

    pub(super) fn id(&self) -> LocalityId {
        self.locality.id()
    }

    fn ranks(&self) -> &RankHosts {
        self.locality.ranks()
    }

    /// The rows of a global batch that `rank` reads, in its order.
    pub(super) fn share(&self, batch: &Samples, rank: u32) -> Samples {
        let rows = u32::try_from(batch.len()).expect("ranks and their rows are limited");
        let division = self.ranks().divide(rows, |row| {
            let row = row as usize;
            let dataset = batch.datasets.get(row).map_or(0, |&dataset| dataset as usize);
            let (manifest, table) = &self.datasets[dataset];
            let (shard, _) = manifest.locate(batch.samples[row]).expect("a declared sample");
            self.locality.holders(*table, shard)
        });
        batch.pick(&division.rows_of(rank))
    }
}
