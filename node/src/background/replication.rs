//! Replicas: copies shards here that this node owns but is not the primary owner of.
//!
//! The primary owner of a shard fills it when a client reads it. The other owners ask each other
//! from time to time which shards they hold. Each copies the shards that it owns and lacks, one at
//! a time in the background, the most recently read first. Replicas use only memory that primary
//! shards do not need.
//!
//! If primary shards need the memory after all, rows are read past the cache. Then a node evicts
//! replicas and shards that it does not own, if they are idle and their primary owner holds them.
//! So an unread replica costs no shard its place. Extra copies go before all replicas: no owner of
//! the ring counts on a copy that a node made while it stood in for another. A copy that local
//! readers or a plan still use is not idle, so this order takes nothing from the next reads.
//!
//! During a ring change no replica is copied, because a plan decides then. Transfers of a plan may
//! take the memory of replicas ([`give_way`]).
//!
//! Thread rule: one task per node; the survey of open datasets runs on a blocking thread.
//! Non-goals: transfers of a ring change (`driver`), and which owner a client asks (clients, by
//! the placement).

mod survey;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use larder_base::{Ring, ShardId, SnapshotId, limits};
use tokio::time;

use crate::cache::{Cache, Priority};
use crate::clock;
use crate::cluster::{Cluster, Placements};
use crate::fill::{Brought, Peer, Peers};
use crate::shared::Shared;
use survey::{Lacking, Spare, Survey};

/// How often the task checks for missing replicas and free memory.
const INTERVAL: Duration = Duration::from_secs(5);

/// Surveys take at most one part in this many of the time.
const LOOKING_SHARE: u32 = 20;

/// The longest time between two questions while no other owner holds a missing replica.
const ASKING_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// How long to wait after a search for evictable replicas found none.
const VAIN_INTERVAL: Duration = Duration::from_secs(60);

/// How long replicas are copied by the answers of one round of questions.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// Replicas leave one part in this many of the budget free.
const SPARED_SHARE: u64 = 16;

/// Copies replicas to a node.
pub(crate) struct Copier {
    shared: Arc<Shared>,
    /// Which members to ask next, by position among the other owners.
    turn: usize,
    /// No member is asked before this.
    ask_at: Instant,
    /// How long to wait after the next question without a hit.
    patience: Duration,
    /// Failed to be copied; not retried before the others had their turn.
    failed: HashSet<ShardId>,
    /// Rows read past the cache, at the last check.
    past: u64,
    /// No replica is evicted before this.
    make_room_at: Instant,
}

/// A shard that another owner holds.
struct There {
    shard: Lacking,
    /// How long ago it was last read there.
    idle: Duration,
    peer: Arc<Peer>,
}

impl Copier {
    /// Starts the task. It ends when the node stops.
    pub(crate) fn start(shared: &Arc<Shared>) {
        let copier = Self {
            shared: Arc::clone(shared),
            turn: 0,
            ask_at: clock::now(),
            patience: INTERVAL,
            failed: HashSet::new(),
            past: 0,
            make_room_at: clock::now(),
        };
        let stopping = shared.stopping.clone();
        shared.runtime.spawn(async move { stopping.run_until_cancelled_owned(copier.run()).await });
    }

    async fn run(mut self) {
        let mut rest = INTERVAL;
        loop {
            time::sleep(rest).await;
            let placements = self.shared.placements.load_full();
            let past = self.shared.counters.rows_by_range.get();
            let refused = past != self.past && clock::now() >= self.make_room_at;
            let are_replicas_wanted = placements.ring().replicas() > 1;
            if !(are_replicas_wanted || refused) || self.is_changing() {
                continue;
            }
            self.past = past;
            let begun = clock::now();
            let Some(survey) = Survey::make(&self.shared, &placements).await else { continue };
            rest = INTERVAL.max(clock::now().saturating_duration_since(begun) * LOOKING_SHARE);
            if free(&self.shared.cache) < survey.promised {
                if refused {
                    let (ring, wanted) = (placements.ring(), survey.promised);
                    let made = make(&self.shared, ring, survey.spare, wanted).await;
                    let pause = if made { Duration::ZERO } else { VAIN_INTERVAL };
                    self.make_room_at = clock::now() + pause;
                }
            } else if !survey.lacking.is_empty() && clock::now() >= self.ask_at {
                self.round(&placements, survey).await;
            }
        }
    }

    /// Returns true while shards move, or old copies are about to be dropped.
    fn is_changing(&self) -> bool {
        let standing = self.shared.cluster.as_ref().map(Cluster::standing);
        let record = standing.as_ref().and_then(|standing| standing.record.as_ref());
        record.is_some_and(|record| record.change.is_some() || record.settling.is_some())
    }

    /// Copies some of the missing replicas.
    async fn round(&mut self, placements: &Arc<Placements>, survey: Survey) {
        let Survey { lacking, owners, promised, .. } = survey;
        let spared = promised.saturating_add(self.shared.cache.usage().limit_bytes / SPARED_SHARE);
        let shared = Arc::clone(&self.shared);
        let room = |shard: &Lacking| free(&shared.cache) >= spared.saturating_add(shard.bytes);
        let mut there = Vec::new();
        if lacking.values().any(room) {
            let members = placements.ring().members();
            let name = |owner: &u16| members[usize::from(*owner)].id.as_str();
            let owners: Vec<&str> = owners.iter().map(name).collect();
            there = self.ask(&owners, lacking).await;
        }
        there.retain(|there| !self.failed.contains(&there.shard.id()));
        there.sort_by_key(|there| there.idle);
        let (begun, mut came) = (clock::now(), 0);
        for There { shard, peer, .. } in there {
            let now = &self.shared.placements.load_full();
            let is_over = clock::now().saturating_duration_since(begun) > ROUND_MAX;
            if is_over || !Arc::ptr_eq(placements, now) || self.is_changing() {
                break;
            }
            // A peer that is away can't give the shard, so it would come from the origin.
            if !peer.answers() || !room(&shard) {
                continue;
            }
            let Lacking { dataset, index, .. } = &shard;
            let bringing = self.shared.bring(dataset, *index, Priority::Background);
            match time::timeout(ROUND_MAX, bringing).await {
                Ok(Brought::Here) => came += 1,
                _ => drop(self.failed.insert(shard.id())),
            }
        }
        self.rest(came);
    }

    /// Asks less and less often while no owner holds a missing replica, or there is no room.
    fn rest(&mut self, came: usize) {
        if came > 0 {
            self.patience = INTERVAL;
            return;
        }
        self.failed.clear();
        self.ask_at = clock::now() + self.patience;
        self.patience = (self.patience * 2).min(ASKING_INTERVAL_MAX);
    }

    /// Returns those of the missing shards that other owners hold.
    async fn ask(&mut self, owners: &[&str], mut lacking: HashMap<ShardId, Lacking>) -> Vec<There> {
        let snapshots: BTreeSet<SnapshotId> =
            lacking.values().map(|shard| shard.dataset.snapshot()).collect();
        let of_interest: HashSet<ShardId> = lacking.keys().copied().collect();
        let asked = limits::LAST_USES_ASKED_MAX.min(owners.len());
        let turn: Vec<&str> = owners
            .iter()
            .cycle()
            .skip(self.turn % owners.len().max(1))
            .take(asked)
            .copied()
            .collect();
        self.turn = self.turn.wrapping_add(asked);
        let held = ask_all(&self.shared.peers, &turn, &snapshots, &of_interest).await;
        let mut there = Vec::new();
        for HeldShards { peer, shards } in held {
            for (id, idle) in shards {
                let shard = lacking.remove(&id);
                there.extend(shard.map(|shard| There { shard, idle, peer: Arc::clone(&peer) }));
            }
        }
        there
    }
}

/// The shards that one node holds, and how long ago each was last read there.
struct HeldShards {
    peer: Arc<Peer>,
    shards: Vec<(ShardId, Duration)>,
}

/// Asks the members `asked` which shards `of_interest` of these snapshots they hold. Returns the
/// answers in no order. A member that does not finish in time counts with the part that it has
/// listed.
async fn ask_all(
    peers: &Peers,
    asked: &[&str],
    snapshots: &BTreeSet<SnapshotId>,
    of_interest: &HashSet<ShardId>,
) -> Vec<HeldShards> {
    let known = asked.iter().filter_map(|id| peers.named(id));
    let answering: Vec<_> = known.filter(|peer| peer.answers()).collect();
    let asking: Vec<_> =
        answering.into_iter().map(|peer| one(peer, snapshots, of_interest)).collect();
    stream::iter(asking).buffer_unordered(limits::LAST_USES_ASKED_MAX).collect().await
}

async fn one(
    peer: Arc<Peer>,
    snapshots: &BTreeSet<SnapshotId>,
    of_interest: &HashSet<ShardId>,
) -> HeldShards {
    let mut shards = Vec::new();
    let note = |_, id: ShardId, idle| {
        if of_interest.contains(&id) && shards.len() < of_interest.len() {
            shards.push((id, idle));
        }
    };
    peer.last_uses(snapshots, note).await;
    HeldShards { peer, shards }
}

/// Returns the free bytes of the budget.
fn free(cache: &Cache) -> u64 {
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
async fn make(shared: &Shared, ring: &Ring, spare: Vec<Spare>, wanted: u64) -> bool {
    let spare = idle(&shared.cache, spare, shared.config.timing.dataset_in_use);
    // The primary owners of the longest idle replicas.
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

/// Returns those that no client has read for `idle_min` and no process maps. Copies of a stand-in
/// come first, then replicas, each the longest idle first.
fn idle(cache: &Cache, mut spare: Vec<Spare>, idle_min: Duration) -> Vec<Spare> {
    let idle: HashMap<ShardId, Duration> = cache.idle_times().into_iter().collect();
    let idle = |spare: &Spare| idle.get(&spare.id).copied().unwrap_or_default();
    spare.retain(|spare| idle(spare) >= idle_min);
    spare.sort_by_cached_key(|spare| (!spare.is_extra, Reverse(idle(spare)), spare.id));
    spare
}
