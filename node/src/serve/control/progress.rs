//! Progress of the work that clients wait for: opening a dataset, and filling its shards.

use std::collections::HashMap;

use larder_base::{Error, ErrorKind, ShardId, limits};
use larder_dataset::IndexProgress;
use larder_store::{ShardState, ShardView};
use larder_wire::control::{
    FillProgress, GetFillProgressRequest, GetOpenProgressRequest, OpenProgress, OpenStep,
    snapshot_id,
};

use super::open::named;
use crate::cache::EvictionGroup;
use crate::serve::Context;

/// Most bytes of a store's trouble.
const TROUBLE_BYTES_MAX: usize = 512;

pub(super) fn of_opening(
    context: &Context,
    request: &GetOpenProgressRequest,
) -> Result<OpenProgress, Error> {
    let (dataset, manifest) = named(&request.uri, &request.manifest_uri)?;
    let (step, trouble) = context.shared.catalog.open_progress(&dataset, manifest.as_ref())?;
    let (step, done, total) = match step {
        Some(IndexProgress::Listed { objects }) => (OpenStep::Listing, objects, None),
        Some(IndexProgress::Headers { done, total }) => (OpenStep::Headers, done, Some(total)),
        Some(IndexProgress::Offsets { done, total }) => (OpenStep::Offsets, done, Some(total)),
        Some(IndexProgress::Publishing) => (OpenStep::Publishing, 0, None),
        // Nodes pin no checksums and index no keys.
        _ => (OpenStep::Unspecified, 0, None),
    };
    let mut trouble = trouble.unwrap_or_default();
    trouble.truncate(trouble.floor_char_boundary(TROUBLE_BYTES_MAX));
    Ok(OpenProgress { step: step.into(), done, total, trouble })
}

/// Walks over all shards of this node.
pub(super) fn of_fills(
    context: &Context,
    request: &GetFillProgressRequest,
) -> Result<FillProgress, Error> {
    if request.shards.len() > limits::PAGE_ENTRIES_MAX as usize {
        let most = limits::PAGE_ENTRIES_MAX;
        let message = format!("at most {most} shards may be asked about at once");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let dataset = context.shared.catalog.opened(snapshot_id(&request.snapshot)?)?;
    request.shards.iter().try_for_each(|&shard| dataset.check_shard(shard))?;
    let (cache, manifest) = (&context.shared.cache, dataset.manifest());
    let group = EvictionGroup::Shards(dataset.snapshot());
    let (flights, views) = (cache.flights(), cache.shards());
    let here = |view: &ShardView<ShardId, EvictionGroup>| match view.state {
        ShardState::Resident { .. } => view.bytes,
        ShardState::Filling { .. } => flights.get(&view.id).map_or(0, |fill| fill.bytes_ready()),
        ShardState::Orphaned { .. } => 0,
    };
    let views = views.iter().filter(|view| view.groups.contains(&group));
    let here: HashMap<ShardId, u64> = views.map(|view| (view.id, here(view))).collect();
    let missing = |&shard: &u32| {
        let shard = manifest.shard(shard);
        shard.bytes.saturating_sub(here.get(&shard.id).copied().unwrap_or(0))
    };
    Ok(FillProgress {
        here_bytes: here.values().sum(),
        budget_bytes: cache.usage().limit_bytes,
        missing_bytes: request.shards.iter().map(missing).collect(),
    })
}
