//! Listings, page by page.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use larder_base::{Error, ErrorKind, ShardId, SnapshotId, limits};
use larder_store::{ShardState as Stands, ShardView};
use larder_wire::control::{
    DatasetStatus, Failure as FailureMessage, ListDatasetsRequest, ListDatasetsResponse,
    ListFailuresResponse, ListShardsRequest, ListShardsResponse, ShardState, ShardStatus,
    page_size, snapshot_id,
};

use crate::cache::Failure;
use crate::cache::Group;
use crate::cache::InFlightFill;
use crate::clock;
use crate::dataset::Dataset;
use crate::serve::Context;

/// Every shard that takes memory.
struct Holdings {
    /// By id: the resident shard, followed by its orphans.
    views: HashMap<ShardId, Vec<ShardView<ShardId, Group>>>,
    flights: HashMap<ShardId, Arc<InFlightFill>>,
}

impl Holdings {
    fn of(context: &Context) -> Self {
        let cache = &context.shared.cache;
        let mut views: HashMap<_, Vec<_>> = HashMap::new();
        for view in cache.shards() {
            views.entry(view.id).or_default().push(view);
        }
        Self { views, flights: cache.flights() }
    }
}

pub(super) fn datasets(
    context: &Context,
    request: &ListDatasetsRequest,
) -> Result<ListDatasetsResponse, Error> {
    let size = page_size(request.page_size)?;
    let after = token::<SnapshotId>(&request.page_token)?;
    let mut open = context.shared.catalog.list();
    open.retain(|dataset| after.is_none_or(|after| dataset.snapshot() > after));
    let more = open.len() > size;
    open.truncate(size);
    let next_page_token = match open.last() {
        Some(last) if more => last.snapshot().to_string(),
        _ => String::new(),
    };
    let (holdings, connections) = (Holdings::of(context), context.shared.cache.connections());
    let status = |dataset: &Arc<Dataset>| {
        let sessions = connections.get(&dataset.snapshot()).copied().unwrap_or(0);
        dataset_status(dataset, &holdings, sessions)
    };
    let datasets = open.iter().map(status).collect();
    Ok(ListDatasetsResponse { datasets, next_page_token })
}

fn dataset_status(dataset: &Dataset, holdings: &Holdings, sessions: usize) -> DatasetStatus {
    let manifest = dataset.manifest();
    let group = Group::Shards(manifest.snapshot());
    let resident = holdings.views.values().flatten().filter(|view| {
        matches!(view.state, Stands::Resident { .. }) && view.groups.contains(&group)
    });
    let (mut resident_shards, mut resident_bytes) = (0, 0);
    for view in resident {
        resident_shards += 1;
        resident_bytes += view.bytes;
    }
    DatasetStatus {
        snapshot: Bytes::copy_from_slice(manifest.snapshot().as_bytes()),
        uri: manifest.uri().to_string(),
        samples: manifest.samples(),
        shards: manifest.shard_count(),
        bytes: manifest.total_bytes(),
        resident_shards,
        resident_bytes,
        sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
        idle_ms: ms_since(dataset.last_used()),
    }
}

/// Lists the shards of the open datasets that take memory, in order.
pub(super) fn shards(
    context: &Context,
    request: &ListShardsRequest,
) -> Result<ListShardsResponse, Error> {
    let size = page_size(request.page_size)?;
    let only = request.snapshot.as_deref().map(snapshot_id).transpose()?;
    let after = token::<ShardPlace>(&request.page_token)?;
    let wanted = ShardState::try_from(request.state).unwrap_or(ShardState::Unspecified);
    let holdings = Holdings::of(context);
    let mut page = ListShardsResponse::default();
    let mut last = None;
    for dataset in context.shared.catalog.list() {
        let snapshot = dataset.snapshot();
        if only.is_some_and(|only| only != snapshot) {
            continue;
        }
        let begin = match after {
            Some(ShardPlace(at, _)) if at > snapshot => continue,
            Some(ShardPlace(at, shard)) if at == snapshot => shard.saturating_add(1),
            _ => 0,
        };
        for shard in begin..dataset.manifest().shard_count() {
            let found = shard_statuses(&dataset, shard, &holdings, wanted);
            if !found.is_empty() && page.shards.len() + found.len() > size {
                let ShardPlace(snapshot, shard) = last.unwrap_or(ShardPlace(snapshot, shard));
                page.next_page_token = format!("{snapshot}:{shard}");
                return Ok(page);
            }
            if !found.is_empty() {
                last = Some(ShardPlace(snapshot, shard));
                page.shards.extend(found);
            }
        }
    }
    Ok(page)
}

/// Returns the state of one shard here, in any dataset.
pub(super) fn one_shard(context: &Context, id: ShardId) -> Vec<ShardStatus> {
    let holdings = Holdings::of(context);
    let views = holdings.views.get(&id).into_iter().flatten();
    views.map(|view| shard_status(view, holdings.flights.get(&id))).collect()
}

fn shard_statuses(
    dataset: &Arc<Dataset>,
    shard: u32,
    holdings: &Holdings,
    wanted: ShardState,
) -> Vec<ShardStatus> {
    let id = dataset.manifest().shard(shard).id;
    let status = |view: &ShardView<ShardId, Group>| ShardStatus {
        snapshot: Bytes::copy_from_slice(dataset.snapshot().as_bytes()),
        shard,
        ..shard_status(view, holdings.flights.get(&id))
    };
    let found = holdings.views.get(&id).into_iter().flatten().map(status);
    found.filter(|one| wanted == ShardState::Unspecified || one.state() == wanted).collect()
}

/// Describes a shard, without its dataset. `flight` is its fill, unless that ended since `view` was
/// taken.
fn shard_status(
    view: &ShardView<ShardId, Group>,
    flight: Option<&Arc<InFlightFill>>,
) -> ShardStatus {
    let status = ShardStatus {
        shard_id: Bytes::copy_from_slice(view.id.as_bytes()),
        bytes: view.bytes,
        ..ShardStatus::default()
    };
    match view.state {
        Stands::Filling { waiters, since } => {
            let queued = flight.is_some_and(|flight| flight.is_queued());
            let state = if queued { ShardState::Queued } else { ShardState::Filling };
            ShardStatus {
                state: state.into(),
                bytes_ready: flight.map_or(0, |flight| flight.bytes_ready()),
                waiters: u32::try_from(waiters).unwrap_or(u32::MAX),
                age_ms: ms_since(since),
                ..status
            }
        }
        Stands::Resident { holders, since, last_used } => ShardStatus {
            state: ShardState::Resident.into(),
            leases: u32::try_from(holders).unwrap_or(u32::MAX),
            age_ms: ms_since(since),
            idle_ms: ms_since(last_used),
            ..status
        },
        Stands::Orphaned { since } => {
            ShardStatus { state: ShardState::Orphaned.into(), age_ms: ms_since(since), ..status }
        }
    }
}

/// Returns the fills that gave up, the newest first.
pub(super) fn failures(context: &Context, asked: u32) -> ListFailuresResponse {
    let count = match asked {
        0 => limits::FAILURES_KEPT_MAX,
        asked => asked as usize,
    };
    let kept = context.shared.cache.failures();
    let failures = kept.iter().rev().take(count).map(failure).collect();
    ListFailuresResponse { failures, total: context.shared.counters.fills_failed.get() }
}

pub(super) fn failure(failure: &Failure) -> FailureMessage {
    let place = failure.place.as_ref();
    FailureMessage {
        snapshot: Bytes::copy_from_slice(failure.snapshot.as_bytes()),
        shard: failure.shard,
        shard_id: Bytes::copy_from_slice(failure.id.as_bytes()),
        object: place.map(|place| place.object.to_string()).unwrap_or_default(),
        offset: place.map_or(0, |place| place.offset),
        bytes: place.map_or(0, |place| place.bytes),
        kind: u32::from(failure.why.kind().number()),
        message: failure.why.message().to_owned(),
        tries: failure.attempts,
        age_ms: ms_since(failure.at),
    }
}

/// A shard as a page token names it: `snapshot:index`.
#[derive(Debug, Clone, Copy)]
struct ShardPlace(SnapshotId, u32);

impl std::str::FromStr for ShardPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (snapshot, shard) = text.split_once(':').ok_or(())?;
        Ok(Self(snapshot.parse().map_err(|_| ())?, shard.parse().map_err(|_| ())?))
    }
}

fn token<T: std::str::FromStr>(text: &str) -> Result<Option<T>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let message = "the page token is not one of ours; begin with the first page";
        Error::new(ErrorKind::InvalidArgument, message)
    })
}

fn ms_since(then: Instant) -> u64 {
    let passed = clock::now().saturating_duration_since(then);
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}
