//! Runs the planner over all datasets that the record knows, from the placement in use.

use std::sync::Arc;

use larder_base::{Error, ErrorKind, SnapshotId};
use larder_coordinator::Coordinator;
use larder_dataset::{DatasetRef, OriginUri};
use larder_membership::{
    plan::{EvenPlanner, PlanBlobs, Planner, SizedShard, Task},
    record::DatasetRecord as Described,
};
use tokio::task;

use super::opener::Opener;
use crate::catalog::{Catalog, WantedDataset};
use crate::dataset::Dataset;
use crate::shared::Shared;

/// The inputs of plans.
pub(super) struct Planning {
    shared: Arc<Shared>,
    coordinator: Arc<dyn Coordinator>,
    opener: Opener,
}

impl Planning {
    pub(super) fn new(shared: &Arc<Shared>, coordinator: &Arc<dyn Coordinator>) -> Self {
        let (shared, coordinator) = (Arc::clone(shared), Arc::clone(coordinator));
        Self { shared, coordinator, opener: Opener::new() }
    }

    /// Plans a task over the `known` datasets. A dataset that can't be opened in time is left to
    /// the ring: it may be gone, and must not delay the change. The plan moves and drops none of
    /// its shards. Its new owners read shards from the old ones, or from the origin, on request.
    pub(super) async fn plan(
        &self,
        task: Task,
        mut known: Vec<Described>,
    ) -> Result<PlanBlobs, String> {
        known.sort_unstable_by_key(|described| described.snapshot);
        let placement = match task.placement {
            Some(blob) => {
                let bytes = self.coordinator.blob(blob).await.map_err(|why| why.to_string())?;
                Some(bytes.ok_or("the coordinator does not have the exceptions in place")?)
            }
            None => None,
        };
        self.open_all(&known).await;
        let open = known.iter().filter_map(|known| self.shared.catalog.get(known.snapshot));
        let snapshots: Vec<_> = open.map(|dataset| (dataset.snapshot(), sizes(&dataset))).collect();
        let left_out = known.len() - snapshots.len();
        if left_out > 0 {
            tracing::warn!("a plan is made without {left_out} datasets that are not open here");
        }
        let planner = EvenPlanner { snapshots };
        let planned = task::spawn_blocking(move || planner.plan(&task, placement.as_deref()));
        planned.await.map_err(|death| death.to_string())?
    }

    /// Opens the datasets that are not open yet.
    async fn open_all(&self, known: &[Described]) {
        let catalog = &self.shared.catalog;
        let missing = known.iter().filter(|described| catalog.get(described.snapshot).is_none());
        let openings = missing.cloned().map(|described| {
            let (shared, snapshot) = (Arc::clone(&self.shared), described.snapshot);
            let opening =
                async move { open(&shared.catalog, snapshot, Some(&described)).await.map(drop) };
            (snapshot, opening)
        });
        let openings: Vec<_> = openings.collect();
        self.opener.open_all(openings).await;
    }
}

fn sizes(dataset: &Dataset) -> Vec<SizedShard> {
    let manifest = dataset.manifest();
    let shards = (0..manifest.shard_count()).map(|shard| manifest.shard(shard));
    shards.map(|shard| SizedShard { id: shard.id, bytes: shard.bytes }).collect()
}

/// Describes a dataset for the record.
pub(super) fn described(dataset: &Dataset) -> Described {
    let manifest = dataset.manifest();
    Described {
        snapshot: dataset.snapshot(),
        uri: dataset.uri().to_string(),
        manifest: dataset.manifest_uri().to_string(),
        shards: manifest.shard_count().into(),
        bytes: manifest.total_bytes(),
    }
}

/// Returns the dataset with this snapshot. Opens it from its description if needed. `NotFound`
/// without one.
pub(super) async fn open(
    catalog: &Catalog,
    snapshot: SnapshotId,
    known: Option<&Described>,
) -> Result<Arc<Dataset>, Error> {
    if let Some(dataset) = catalog.get(snapshot) {
        return Ok(dataset);
    }
    let strange = |why: String| Error::new(ErrorKind::InvalidArgument, why);
    let forgotten = || {
        let why = format!("the record has no snapshot {snapshot}, and it is not open here");
        Error::new(ErrorKind::NotFound, why)
    };
    let known = known.ok_or_else(forgotten)?;
    let wanted = DatasetRef::parse(&format!("{}@{snapshot}", known.uri));
    let wanted = wanted.map_err(|why| strange(why.to_string()))?;
    let manifest = OriginUri::parse(&known.manifest).map_err(|why| strange(why.to_string()))?;
    let opened = catalog.open(&WantedDataset::by_node(wanted, Some(manifest))).await?;
    if opened.dataset.snapshot() == snapshot {
        return Ok(opened.dataset);
    }
    let message = format!("{} is another snapshot than {snapshot} by now", known.uri);
    Err(Error::new(ErrorKind::DataChanged, message))
}
