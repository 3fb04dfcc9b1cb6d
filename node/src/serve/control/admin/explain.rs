//! Explains the placement of a shard and its state on this node.
//!
//! Thread rule: walks over the contents of the cache; call it on a blocking thread.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::ring::{Owners, place_of};
use larder_base::{Error, ErrorKind, Ring, ShardId, SnapshotId};
use larder_wire::control::explain_request::What;
use larder_wire::control::{ExplainRequest, Explanation, shard_id, snapshot_id};

use crate::cluster::Placements;
use crate::dataset::Dataset;
use crate::serve::Context;
use crate::serve::control::list;

/// The requested shard.
struct WantedShard {
    id: ShardId,
    /// Its snapshot, if known.
    snapshot: Option<SnapshotId>,
    /// Its dataset, if open here, and the index of the shard in it.
    open: Option<(Arc<Dataset>, u32)>,
}

pub(super) fn explain(context: &Context, request: &ExplainRequest) -> Result<Explanation, Error> {
    let wanted = find(context, request)?;
    let shared = &context.shared;
    let placements = shared.placements.load();
    let place = place_of(wanted.id);
    let ring = placements.ring();
    let previous = placements.previous();
    let failure = shared.cache.failures().into_iter().rev().find(|one| one.id == wanted.id);
    let explanation = Explanation {
        node_id: shared.config.node_id.clone(),
        snapshot: wanted
            .snapshot
            .map(|id| Bytes::copy_from_slice(id.as_bytes()))
            .unwrap_or_default(),
        shard_id: Bytes::copy_from_slice(wanted.id.as_bytes()),
        place,
        ring_version: ring.version(),
        owners: owners(&placements, &wanted),
        ring_owners: names(ring, &walked(&placements, &wanted)),
        previous_ring_version: previous.map_or(0, |previous| previous.ring().version()),
        previous_owners: previous.map(|previous| owners(previous, &wanted)).unwrap_or_default(),
        here: list::one_shard(context, wanted.id),
        failure: failure.as_ref().map(list::failure),
        evicted_shards: shared.counters.evictions.get(),
        ..Explanation::default()
    };
    Ok(match wanted.open {
        Some((dataset, index)) => with_facts(explanation, &dataset, index),
        None => explanation,
    })
}

fn with_facts(explanation: Explanation, dataset: &Dataset, index: u32) -> Explanation {
    let shard = dataset.manifest().shard(index);
    Explanation {
        uri: dataset.uri().to_string(),
        shard: index,
        first_sample: shard.first_sample,
        samples: shard.rows,
        bytes: shard.bytes,
        ..explanation
    }
}

fn find(context: &Context, request: &ExplainRequest) -> Result<WantedShard, Error> {
    let catalog = &context.shared.catalog;
    let named = match &request.snapshot[..] {
        [] => None,
        bytes => Some(snapshot_id(bytes)?),
    };
    match request.what.as_ref() {
        None => Err(Error::new(
            ErrorKind::InvalidArgument,
            "the request names neither shard nor sample",
        )),
        Some(What::Sample(sample)) => {
            let snapshot = named.ok_or_else(|| {
                let message = "a sample belongs to a snapshot: name that too";
                Error::new(ErrorKind::NotFound, message)
            })?;
            let dataset = catalog.opened(snapshot)?;
            let manifest = dataset.manifest();
            let row = manifest.locate(*sample).ok_or_else(|| {
                let message = format!(
                    "there is no sample {sample}; the last is {}",
                    manifest.samples().saturating_sub(1)
                );
                Error::new(ErrorKind::NotFound, message)
            })?;
            Ok(WantedShard {
                id: manifest.shard(row.shard).id,
                snapshot: named,
                open: Some((dataset, row.shard)),
            })
        }
        Some(What::ShardId(bytes)) => {
            let id = shard_id(bytes)?;
            let among = match named {
                Some(snapshot) => catalog.get(snapshot).into_iter().collect(),
                None => catalog.list(),
            };
            let index = |dataset: Arc<Dataset>| {
                let index = dataset.manifest().shard_index(id)?;
                Some((dataset, index))
            };
            let open = among.into_iter().find_map(index);
            let snapshot = named.or_else(|| Some(open.as_ref()?.0.snapshot()));
            Ok(WantedShard { id, snapshot, open })
        }
    }
}

/// Returns the names of the owners, exceptions included.
fn owners(placements: &Placements, wanted: &WantedShard) -> Vec<String> {
    let owners = match wanted.snapshot {
        Some(snapshot) => placements.of(snapshot).owners(wanted.id),
        None => placements.ring().owners_at(place_of(wanted.id), 1),
    };
    names(placements.ring(), &owners)
}

/// Returns the owners by the ring alone.
fn walked(placements: &Placements, wanted: &WantedShard) -> Owners {
    let replicas = wanted.snapshot.map_or(1, |snapshot| placements.of(snapshot).replicas());
    placements.ring().owners_at(place_of(wanted.id), replicas)
}

fn names(ring: &Ring, owners: &Owners) -> Vec<String> {
    owners.iter().map(|&index| ring.members()[usize::from(index)].id.clone()).collect()
}
