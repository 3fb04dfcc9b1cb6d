//! Evicts replicas to make room.
//!
//! Evicts a replica only if no client read it recently, no process maps it, and the primary owner
//! just confirmed its own copy. One copy always remains.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use larder_base::{Ring, ShardId, limits};

use super::ask_all;
use super::survey::{Spare, Survey};
use crate::cache::Cache;
use crate::shared::Shared;

/// Returns the free bytes of the budget.
pub(super) fn free(cache: &Cache) -> u64 {
    let usage = cache.usage();
    let used = usage.resident.bytes + usage.filling.bytes + usage.orphaned.bytes;
    usage.limit_bytes.saturating_sub(used)
}

/// Evicts replicas until `wanted` bytes are free. Keeps those for which `stay` (given the shard and
/// its primary owner) is true. Returns true if it evicted any, or if `wanted` bytes are free.
pub(crate) async fn give_way(
    shared: &Arc<Shared>,
    wanted: u64,
    stay: impl Fn(&ShardId, &str) -> bool,
) -> bool {
    if free(&shared.cache) >= wanted {
        return true;
    }
    let placements = shared.placements.load_full();
    let Some(mut survey) = Survey::make(shared, &placements).await else { return false };
    let ring = placements.ring();
    survey.spare.retain(|spare| !stay(&spare.id, name(ring, spare.first)));
    make(shared, ring, survey.spare, wanted).await || free(&shared.cache) >= wanted
}

/// Evicts from `spare` until `wanted` bytes are free. Returns true if it evicted any.
pub(super) async fn make(shared: &Shared, ring: &Ring, spare: Vec<Spare>, wanted: u64) -> bool {
    let spare = idle(&shared.cache, spare, shared.config.timing().dataset_in_use);
    // Those of whom the longest idle could go.
    let mut asked = Vec::new();
    for spare in &spare {
        if asked.len() < limits::LAST_USES_ASKED_MAX && !asked.contains(&spare.first) {
            asked.push(spare.first);
        }
    }
    let snapshots: BTreeSet<_> = spare.iter().map(|spare| spare.snapshot).collect();
    let of_interest: HashSet<ShardId> = spare.iter().map(|spare| spare.id).collect();
    let names: Vec<&str> = asked.into_iter().map(|first| name(ring, first)).collect();
    let held = ask_all(&shared.peers, &names, &snapshots, &of_interest).await;
    let held: HashMap<&str, HashSet<ShardId>> = held
        .iter()
        .map(|held| (held.peer.id(), held.shards.iter().map(|(id, _)| *id).collect()))
        .collect();
    let (mut room, mut gone) = (free(&shared.cache), HashSet::new());
    for Spare { id, bytes, first, .. } in spare {
        if room >= wanted {
            break;
        }
        let is_elsewhere = held.get(name(ring, first)).is_some_and(|held| held.contains(&id));
        // Several snapshots may share a shard.
        if is_elsewhere && !gone.contains(&id) && shared.cache.let_go(id) {
            gone.insert(id);
            room = room.saturating_add(bytes);
        }
    }
    tracing::debug!(gone = gone.len(), wanted, "copies gave way");
    !gone.is_empty()
}

fn name(ring: &Ring, index: u16) -> &str {
    &ring.members()[usize::from(index)].id
}

/// What nobody has read for a while and nobody maps, the longest idle first.
fn idle(cache: &Cache, mut spare: Vec<Spare>, idle_min: Duration) -> Vec<Spare> {
    let idle: HashMap<ShardId, Duration> = cache.idle_times().into_iter().collect();
    let idle = |spare: &Spare| idle.get(&spare.id).copied().unwrap_or_default();
    spare.retain(|spare| idle(spare) >= idle_min);
    spare.sort_by_cached_key(|spare| (Reverse(idle(spare)), spare.id));
    spare
}
