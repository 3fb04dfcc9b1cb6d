//! The cluster as this node sees it, as messages.

use bytes::Bytes;
use larder_membership::plan::Edit;
use larder_membership::record::{Change, Entry, State};
use larder_membership::{BlobId, Record};
use larder_wire::control::{
    ChangeEdit, ClusterChange, ClusterDataset, ClusterHistory, ClusterNode, ClusterStatus,
    CoordinatorKind, MoveProgress, NodeState, PastChange,
};

use super::owned::{Owned, OwnedBytes};
use crate::cluster::Standing;
use crate::config::ClusterConfig;
use crate::serve::Context;
use crate::serve::control::{list, saturated};

/// Describes this node's own state.
pub(super) fn brief(context: &Context, standing: &Standing) -> ClusterStatus {
    let (kind, coordinator_address, generation) = coordinator(context);
    let record = standing.record.as_ref();
    ClusterStatus {
        node_id: context.shared.config.node_id.clone(),
        cluster: record.map(|record| Bytes::copy_from_slice(&record.cluster)).unwrap_or_default(),
        generation: generation.max(record.map_or(0, |record| record.generation)),
        ring_version: record.map_or(0, |record| record.version),
        replicas: record.map_or(0, |record| record.scheme.replicas.into()),
        installed: standing.installed,
        progress: standing.progress.as_ref().map(|progress| MoveProgress {
            shards_left: progress.shards_left,
            shards: progress.shards,
            bytes_left: progress.bytes_left,
            bytes: progress.bytes,
        }),
        braked: standing.braked,
        away: standing.away.as_deref().unwrap_or_default().to_owned(),
        coordinator: kind.into(),
        coordinator_address,
        extra_copies: list::extra_copies(context),
        ..ClusterStatus::default()
    }
}

/// Describes the whole cluster.
pub(super) fn whole(context: &Context, standing: &Standing, owned: &OwnedBytes) -> ClusterStatus {
    let status = brief(context, standing);
    let Some(record) = &standing.record else {
        return status;
    };
    let owned = owned.now(&context.shared, record);
    let measured = |dataset: &ClusterDataset| {
        owned
            .snapshots
            .binary_search_by(|known| known.as_bytes()[..].cmp(&dataset.snapshot))
            .is_ok()
    };
    let mut datasets: Vec<ClusterDataset> = record.datasets.iter().map(dataset).collect();
    datasets.sort_unstable_by(|one, other| one.snapshot.cmp(&other.snapshot));
    ClusterStatus {
        nodes: record.members.iter().map(|entry| node(entry, record, standing, &owned)).collect(),
        change: record.change.as_ref().map(|change| self::change(record, change)),
        settling: settles(record, standing),
        datasets_measured: saturated(datasets.iter().filter(|dataset| measured(dataset)).count()),
        datasets,
        ..status
    }
}

/// Returns true until every member has reported that it has all its shards of the committed ring.
fn settles(record: &Record, standing: &Standing) -> bool {
    let Some(plan) = record.settling else {
        return false;
    };
    let has_all = |entry: &Entry| {
        let said = standing.alive.get(entry.member.id.as_str())?;
        said.settled.iter().find(|settled| settled.plan == plan && settled.gaps == 0)
    };
    !record.in_ring().all(|entry| has_all(entry).is_some())
}

/// Returns the kind of coordinator, its address and its generation.
fn coordinator(context: &Context) -> (CoordinatorKind, String, u64) {
    let cluster = context.shared.cluster.as_ref();
    if let Some(seat) = cluster.and_then(|cluster| cluster.seat()) {
        let located = seat.located();
        return (CoordinatorKind::Node, located.coordinator, located.generation.into());
    }
    match context.shared.config.cluster.as_ref() {
        Some(ClusterConfig::Etcd { options, .. }) => {
            (CoordinatorKind::Etcd, options.endpoints.join(", "), 0)
        }
        _ => (CoordinatorKind::Unspecified, String::new(), 0),
    }
}

fn node(entry: &Entry, record: &Record, standing: &Standing, owned: &Owned) -> ClusterNode {
    let id = entry.member.id.as_str();
    let said = standing.alive.get(id);
    let plan = record.change.as_ref().map(|change| change.plan);
    let settled = said.and_then(|said| said.settled.iter().find(|one| Some(one.plan) == plan));
    let deadline = match entry.state {
        State::Draining { deadline } => deadline,
        _ => None,
    };
    ClusterNode {
        member: Some(entry.member.clone().into()),
        state: state(entry.state).into(),
        since: entry.since,
        announced: said.is_some(),
        ring_version: said.map_or(0, |said| said.version),
        owned_bytes: owned.bytes.get(id).copied().unwrap_or(0),
        deadline_ms: deadline.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        settled: settled.is_some(),
        gaps: settled.map_or(0, |settled| settled.gaps),
    }
}

fn state(state: State) -> NodeState {
    match state {
        State::Joining => NodeState::Joining,
        State::Active => NodeState::Active,
        State::Draining { .. } => NodeState::Draining,
        State::Down => NodeState::Down,
        State::Held => NodeState::Held,
        State::Condemned => NodeState::Condemned,
    }
}

fn change(record: &Record, change: &Change) -> ClusterChange {
    ClusterChange {
        number: change.number,
        plan_id: id(change.plan),
        edits: edits(record, &change.edits),
        moves: change.moves,
        bytes: change.bytes,
        receivers: change.receivers,
        paused: change.paused,
        rate: change.rate,
        asked_by: change.asked_by.clone(),
        replicas: change.replicas(record).map(u32::from),
    }
}

/// Describes the effect of edits on the members of the committed ring.
pub(super) fn edits(record: &Record, edits: &[Edit]) -> Vec<ChangeEdit> {
    let before = |id: &str| {
        let entry = record.entry(id).filter(|entry| entry.state.in_ring());
        entry.map_or(0, |entry| entry.member.weight)
    };
    let edit = |edit: &Edit| ChangeEdit {
        node_id: edit.id().to_owned(),
        weight: match edit {
            Edit::Put(member) => member.weight,
            Edit::Remove(_) => 0,
        },
        weight_before: before(edit.id()),
    };
    edits.iter().map(edit).collect()
}

fn dataset(dataset: &larder_membership::record::DatasetRecord) -> ClusterDataset {
    ClusterDataset {
        snapshot: Bytes::copy_from_slice(dataset.snapshot.as_bytes()),
        uri: dataset.uri.clone(),
        shards: dataset.shards,
        bytes: dataset.bytes,
    }
}

pub(super) fn history(record: &Record) -> ClusterHistory {
    let past = |past: &larder_membership::record::Past| PastChange {
        number: past.number,
        ring_version: past.version,
        committed: past.committed,
        words: past.words.clone(),
        asked_by: past.asked_by.clone(),
        at_ms: past.at_ms,
    };
    ClusterHistory { changes: record.history.iter().map(past).collect() }
}

pub(super) fn id(blob: BlobId) -> Bytes {
    Bytes::copy_from_slice(blob.as_bytes())
}
