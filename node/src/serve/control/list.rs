//! Listings, page by page; and for other nodes, the last reads of local shards as a stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use larder_base::{Error, ErrorKind, ShardId, SnapshotId, limits};
use larder_store::{ShardState as Stands, ShardView};
use larder_wire::control::{
    DatasetStatus, Failure as FailureMessage, LastUses, ListDatasetsRequest, ListDatasetsResponse,
    ListFailuresResponse, ListLastUsesRequest, ListShardsRequest, ListShardsResponse, ShardState,
    ShardStatus, page_size, snapshot_id,
};
use tokio::sync::mpsc;
use tokio::{task, time};
use tonic::Status;

use crate::cache::{EvictionGroup, Failure, InFlightFill};
use crate::clock;
use crate::dataset::Dataset;
use crate::serve::Context;
use crate::serve::control::saturated;

/// Every shard that takes memory.
struct Holdings {
    /// By id: the resident shard, followed by its orphans.
    views: HashMap<ShardId, Vec<ShardView<ShardId, EvictionGroup>>>,
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
    let group = EvictionGroup::Shards(manifest.snapshot());
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
        sessions: saturated(sessions),
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
            let found = shard_statuses(context, &dataset, shard, &holdings, wanted);
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
    let status = |view| shard_status(context, view, holdings.flights.get(&id));
    views.map(status).collect()
}

/// Returns how many resident shards this node does not own.
pub(super) fn extra_copies(context: &Context) -> u32 {
    let shards = context.shared.cache.shards();
    saturated(shards.iter().filter(|view| is_extra(context, view)).count())
}

/// Returns true for a resident shard that this node owns in none of the snapshots it is held for.
fn is_extra(context: &Context, view: &ShardView<ShardId, EvictionGroup>) -> bool {
    let shared = &context.shared;
    let placements = shared.placements.load();
    let mut snapshots = view.groups.iter().filter_map(|group| match group {
        EvictionGroup::Shards(snapshot) => Some(*snapshot),
        EvictionGroup::Manifest(_) | EvictionGroup::Leaves(_) => None,
    });
    let gives = |snapshot| placements.gives(snapshot, view.id, &shared.config.node_id);
    let is_shard = snapshots.clone().next().is_some();
    matches!(view.state, Stands::Resident { .. }) && is_shard && !snapshots.any(gives)
}

fn shard_statuses(
    context: &Context,
    dataset: &Arc<Dataset>,
    shard: u32,
    holdings: &Holdings,
    wanted: ShardState,
) -> Vec<ShardStatus> {
    let id = dataset.manifest().shard(shard).id;
    let status = |view: &ShardView<ShardId, EvictionGroup>| ShardStatus {
        snapshot: Bytes::copy_from_slice(dataset.snapshot().as_bytes()),
        shard,
        ..shard_status(context, view, holdings.flights.get(&id))
    };
    let found = holdings.views.get(&id).into_iter().flatten().map(status);
    found.filter(|one| wanted == ShardState::Unspecified || one.state() == wanted).collect()
}

/// Describes a shard, without its dataset. `flight` is its fill, unless that ended since `view` was
/// taken.
fn shard_status(
    context: &Context,
    view: &ShardView<ShardId, EvictionGroup>,
    flight: Option<&Arc<InFlightFill>>,
) -> ShardStatus {
    let status = ShardStatus {
        shard_id: Bytes::copy_from_slice(view.id.as_bytes()),
        bytes: view.bytes,
        extra: is_extra(context, view),
        ..ShardStatus::default()
    };
    match view.state {
        Stands::Filling { waiters, since } => {
            let queued = flight.is_some_and(|flight| flight.is_queued());
            let state = if queued { ShardState::Queued } else { ShardState::Filling };
            ShardStatus {
                state: state.into(),
                bytes_ready: flight.map_or(0, |flight| flight.bytes_ready()),
                waiters: saturated(waiters),
                age_ms: ms_since(since),
                ..status
            }
        }
        Stands::Resident { holders, since, last_used } => ShardStatus {
            state: ShardState::Resident.into(),
            leases: saturated(holders),
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

type Pieces = mpsc::Sender<Result<LastUses, Status>>;

/// Streams when the local shards of some snapshots were last read, in pieces, to a node that they
/// may move to. A caller that does not take the pieces in
/// time loses the rest, so that the next caller gets its turn.
pub(super) fn last_uses(
    context: &Arc<Context>,
    request: &ListLastUsesRequest,
) -> Result<impl Stream<Item = Result<LastUses, Status>> + use<>, Error> {
    if request.snapshots.len() > limits::LAST_USES_SNAPSHOTS_MAX {
        let most = limits::LAST_USES_SNAPSHOTS_MAX;
        let message = format!("at most {most} snapshots may be asked about at once");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let asked: Result<BTreeSet<_>, _> =
        request.snapshots.iter().map(|id| snapshot_id(id)).collect();
    let (asked, open) = (asked?, context.shared.catalog.list().into_iter());
    // This request does not count as a use of a dataset.
    let open: Vec<_> = open.filter(|dataset| asked.contains(&dataset.snapshot())).collect();
    let (pieces, taken) = mpsc::channel(1);
    let context = Arc::clone(context);
    task::spawn(async move {
        let asker = pieces.clone();
        tokio::select! {
            () = asker.closed() => {}
            // Pieces not taken by then are of no use any more.
            _ = time::timeout(limits::LAST_USES_TIMEOUT, send_last_uses(&context, open, pieces)) => {}
        }
    });
    let next = |mut taken: mpsc::Receiver<_>| async move { Some((taken.recv().await?, taken)) };
    Ok(stream::unfold(taken, next))
}

async fn send_last_uses(context: &Context, open: Vec<Arc<Dataset>>, pieces: Pieces) {
    if open.is_empty() {
        return;
    }
    let Ok(_turn) = context.last_uses.acquire().await else { return };
    let cache = Arc::clone(&context.shared.cache);
    let Ok(here) = task::spawn_blocking(move || cache.idle_times()).await else { return };
    let here = Arc::new(here);
    for dataset in open {
        for part in (0..here.len()).step_by(limits::LAST_USES_PIECE) {
            let (here, dataset) = (Arc::clone(&here), Arc::clone(&dataset));
            let end = here.len().min(part + limits::LAST_USES_PIECE);
            let piece = task::spawn_blocking(move || piece(&dataset, &here[part..end])).await;
            let Ok(piece) = piece else { return };
            if !piece.idle_ms.is_empty() && pieces.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    }
}

/// Selects the shards of this dataset. The first lookup by id sorts the dataset's shards.
fn piece(dataset: &Dataset, here: &[(ShardId, Duration)]) -> LastUses {
    let mut piece = LastUses {
        snapshot: Bytes::copy_from_slice(dataset.snapshot().as_bytes()),
        ..LastUses::default()
    };
    let mut ids = Vec::new();
    for (id, idle) in here.iter().filter(|(id, _)| dataset.find_shard(*id).is_some()) {
        ids.extend_from_slice(id.as_bytes());
        piece.idle_ms.push(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
    }
    piece.shard_ids = ids.into();
    piece
}
