//! Further copies: what another owner of a shard has is brought here too, where this node owns it as well.
//!
//! The owner that is asked first fills a shard as it is read. The others ask each other from time to time what they have,
//! and bring what they own and lack: one at a time, in the background, what was read last first, and only into room that
//! no shard will need of which this node is asked first. Where that room is needed after all, since rows had to be read
//! past the cache, copies go that nobody has read for a while. So a copy that is not read costs no shard its place.
//!
//! While the ring changes nothing is brought and nothing goes: then plans say what is where.
//!
//! Thread rule: one task a node; looking through what is open happens on a thread that may block. Non-goals: copies
//! that a change of the ring gives to others (`cluster`), who is asked for a shard (clients, by the placement).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_cluster::agent::Pulled;
use larder_dataset::{ShardId, SnapshotId};
use larder_wire::limits;
use tokio::{task, time};

use crate::bring::bring;
use crate::cache::Cache;
use crate::catalog::Dataset;
use crate::clock;
use crate::fill::{Priority, ShardPlan};
use crate::peers::{Missed, Peer};
use crate::placements::Placements;
use crate::shared::Shared;

/// How often it is looked what is lacking, and what room there is.
const INTERVAL: Duration = Duration::from_secs(5);

/// Of the time, the most that may go into looking: a part in so many.
const LOOKING_SHARE: u32 = 20;

/// How often others are asked while nobody has any of it.
const ASKING_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// For so long copies are brought by what was seen once.
const ROUND_MAX: Duration = Duration::from_secs(30);

/// Lacking shards that are looked for at once, which bounds the memory that this takes.
const LACKING_MAX: usize = 1 << 16;

/// Of the budget, what no copy takes: a part in so many.
const SPARED_SHARE: u64 = 16;

/// Brings further copies to a node.
pub(crate) struct Copier {
    shared: Arc<Shared>,
    /// Which members are asked next, by their place among those that have something.
    turn: usize,
    /// Nobody is asked before this, and for how long after the next vain question.
    ask_at: Instant,
    patience: Duration,
    /// Could not be brought, and wait until the others were.
    failed: HashSet<ShardId>,
    /// Rows that were read past the cache when it was last looked.
    past: u64,
}

/// A shard that this node owns, is not asked first for, and does not have.
#[derive(Debug, Clone)]
struct Lacking {
    dataset: Arc<Dataset>,
    index: u32,
    /// What it takes of the budget.
    bytes: u64,
}

/// One that another owner has.
struct There {
    shard: Lacking,
    /// For how long nobody has read it there.
    idle: Duration,
    peer: Arc<Peer>,
}

/// What this node could have more of.
#[derive(Debug, Default)]
struct Survey {
    lacking: HashMap<ShardId, Lacking>,
    /// Who owns them too.
    owners: BTreeSet<String>,
    /// Bytes that shards will need of which this node is asked first.
    promised: u64,
    /// Here, and others are asked first for them.
    copies: Vec<ShardId>,
}

impl Copier {
    /// Starts the task, which ends when the node stops.
    pub(crate) fn start(shared: &Arc<Shared>) {
        let copier = Self {
            shared: Arc::clone(shared),
            turn: 0,
            ask_at: clock::now(),
            patience: INTERVAL,
            failed: HashSet::new(),
            past: 0,
        };
        let stopping = shared.stopping.clone();
        shared.runtime.spawn(async move { stopping.run_until_cancelled_owned(copier.run()).await });
    }

    async fn run(mut self) {
        let mut rest = INTERVAL;
        loop {
            time::sleep(rest).await;
            let placements = self.shared.placements.load_full();
            if placements.ring().copies() == 1 || self.is_changing() {
                continue;
            }
            let begun = clock::now();
            let Some(survey) = self.survey(&placements).await else { continue };
            rest = INTERVAL.max(clock::now().saturating_duration_since(begun) * LOOKING_SHARE);
            let past = self.shared.counters.rows_by_range.get();
            let refused = std::mem::replace(&mut self.past, past) != past;
            if free(&self.shared.cache) < survey.promised {
                if refused {
                    self.make_room(survey).await;
                }
            } else if !survey.lacking.is_empty() && clock::now() >= self.ask_at {
                self.round(&placements, survey).await;
            }
        }
    }

    /// Whether shards move, or old copies are about to go.
    fn is_changing(&self) -> bool {
        let standing = self.shared.cluster.as_ref().map(|cluster| cluster.desk().standing());
        let record = standing.as_ref().and_then(|standing| standing.record.as_ref());
        record.is_some_and(|record| record.change.is_some() || record.settling.is_some())
    }

    async fn survey(&self, placements: &Arc<Placements>) -> Option<Survey> {
        let (shared, placements) = (Arc::clone(&self.shared), Arc::clone(placements));
        let looking = task::spawn_blocking(move || {
            let mut here: HashSet<ShardId> = shared.cache.flights().into_keys().collect();
            here.extend(shared.cache.idle_times().into_iter().map(|(id, _)| id));
            survey(&shared.catalog.list_used(), &placements, shared.config.node_id(), &here)
        });
        looking.await.ok()
    }

    /// Lets copies go for shards of which this node is asked first.
    async fn make_room(&self, survey: Survey) {
        let cache = Arc::clone(&self.shared.cache);
        let making = task::spawn_blocking(move || make_room(&cache, &survey));
        let _ = making.await;
    }

    /// Brings some of what is lacking.
    async fn round(&mut self, placements: &Arc<Placements>, survey: Survey) {
        let Survey { lacking, owners, promised, .. } = survey;
        let spared = promised.saturating_add(self.shared.cache.usage().limit_bytes / SPARED_SHARE);
        let room =
            |cache: &Cache, shard: &Lacking| free(cache) >= spared.saturating_add(shard.bytes);
        let mut there = Vec::new();
        if lacking.values().any(|shard| room(&self.shared.cache, shard)) {
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
            // What only who is away has would come from the origin.
            if !peer.answers() || !room(&self.shared.cache, &shard) {
                continue;
            }
            let Lacking { dataset, index, .. } = &shard;
            let bringing = bring(&self.shared.cache, dataset, *index, Priority::Background);
            match time::timeout(ROUND_MAX, bringing).await {
                Ok(Pulled::Verified) => came += 1,
                _ => drop(self.failed.insert(shard.id())),
            }
        }
        self.rest(came);
    }

    /// Nobody has what is lacking, or there is no room: others are asked less and less often.
    fn rest(&mut self, came: usize) {
        if came > 0 {
            self.patience = INTERVAL;
            return;
        }
        self.failed.clear();
        self.ask_at = clock::now() + self.patience;
        self.patience = (self.patience * 2).min(ASKING_INTERVAL_MAX);
    }

    /// Which of the lacking shards other owners have.
    async fn ask(
        &mut self,
        owners: &BTreeSet<String>,
        mut lacking: HashMap<ShardId, Lacking>,
    ) -> Vec<There> {
        let snapshots: BTreeSet<SnapshotId> =
            lacking.values().map(|shard| shard.dataset.snapshot()).collect();
        let mut there = Vec::new();
        let asked = limits::LAST_USES_ASKED_MAX.min(owners.len());
        for id in owners.iter().cycle().skip(self.turn % owners.len().max(1)).take(asked) {
            let peer = self.shared.peers.named(id).filter(|peer| peer.answers());
            let Some(peer) = peer else { continue };
            let note = |id: ShardId, idle| {
                let shard = lacking.remove(&id);
                there.extend(shard.map(|shard| There { shard, idle, peer: Arc::clone(&peer) }));
            };
            if let Err(missed) = ask_one(&peer, &snapshots, note).await {
                tracing::debug!(peer = %id, %missed, "it does not say what it has");
            }
        }
        self.turn = self.turn.wrapping_add(asked);
        there
    }
}

impl Lacking {
    fn id(&self) -> ShardId {
        self.dataset.manifest().shard(self.index).id
    }
}

/// Bytes of the budget that nothing takes.
fn free(cache: &Cache) -> u64 {
    let usage = cache.usage();
    let used = usage.resident.bytes + usage.filling.bytes + usage.orphaned.bytes;
    usage.limit_bytes.saturating_sub(used)
}

/// Lets go of copies until what is promised fits: first those that nobody has read for longest, and none that was read
/// lately or is mapped.
fn make_room(cache: &Cache, survey: &Survey) {
    let copies: HashSet<&ShardId> = survey.copies.iter().collect();
    let mut idle = cache.idle_times();
    idle.retain(|(id, idle)| *idle >= limits::DATASET_IN_USE && copies.contains(id));
    idle.sort_unstable_by_key(|(_, idle)| std::cmp::Reverse(*idle));
    let mut gone = 0_u64;
    for (id, _) in idle {
        if free(cache) >= survey.promised {
            break;
        }
        gone += u64::from(cache.let_go(id));
    }
    tracing::debug!(gone, promised = survey.promised, "copies made room");
}

async fn ask_one(
    peer: &Peer,
    snapshots: &BTreeSet<SnapshotId>,
    mut note: impl FnMut(ShardId, Duration),
) -> Result<(), Missed> {
    let asked = snapshots.iter().copied().take(limits::LAST_USES_SNAPSHOTS_MAX);
    let asking = peer.last_uses(asked, |_, id, idle| note(id, idle));
    time::timeout(limits::LAST_USES_TIMEOUT, asking).await.unwrap_or(Err(Missed::Silent))
}

/// What a node owns of these datasets and has not `here`.
fn survey(
    open: &[Arc<Dataset>],
    placements: &Placements,
    own_id: &str,
    here: &HashSet<ShardId>,
) -> Survey {
    let mut survey = Survey::default();
    let ring = placements.ring();
    let Some(own) = ring.index(own_id) else { return survey };
    let (mut owners, mut first) = (BTreeSet::new(), HashSet::new());
    for dataset in open {
        let placement = placements.of(dataset.snapshot());
        for index in 0..dataset.manifest().shard_count() {
            let shard = dataset.manifest().shard(index);
            let owned = placement.owners(shard.id);
            let place = owned.iter().position(|&owner| usize::from(owner) == own);
            match (place, here.contains(&shard.id)) {
                (None, _) => continue,
                (Some(0), here) => {
                    if first.insert(shard.id) && !here {
                        survey.promised = survey.promised.saturating_add(takes(dataset, index));
                    }
                    continue;
                }
                (Some(_), true) => {
                    survey.copies.push(shard.id);
                    continue;
                }
                (Some(_), false) if survey.lacking.len() == LACKING_MAX => continue,
                (Some(_), false) => {}
            }
            owners.extend(owned.iter().filter(|&&owner| usize::from(owner) != own));
            let bytes = takes(dataset, index);
            survey.lacking.insert(shard.id, Lacking { dataset: Arc::clone(dataset), index, bytes });
        }
    }
    // Another snapshot that shares it may say so.
    survey.copies.retain(|copy| !first.contains(copy));
    let id = |owner: u16| ring.members()[usize::from(owner)].id.clone();
    survey.owners = owners.into_iter().map(id).collect();
    survey
}

/// Bytes of the budget that a shard takes.
fn takes(dataset: &Dataset, index: u32) -> u64 {
    let manifest = dataset.manifest();
    let plan = ShardPlan::new(manifest, index);
    plan.map_or_else(|_| manifest.shard(index).bytes, |plan| plan.layout.total_bytes())
}

#[cfg(test)]
mod tests {
    use larder_wire::Ring;

    use super::*;
    use crate::testing::{Folder, Kitchen, member};

    #[test]
    fn of_what_is_not_here_the_first_owner_lacks_nothing_and_the_others_one_copy_each() {
        let folder = Folder::new(40, 1024, 4096, false);
        let kitchen = Kitchen::unmanned(&folder, 1 << 20);
        let open = [Arc::clone(&kitchen.dataset)];
        let members = ["n1", "n2", "n3"].map(|id| member(id, &format!("{id}:1"))).to_vec();
        let ring = Ring::new(1, members).unwrap().with_copies(2).unwrap();
        let placements = Placements::of_ring(Arc::new(ring));
        let manifest = kitchen.dataset.manifest();
        let all: HashSet<ShardId> =
            (0..manifest.shard_count()).map(|index| manifest.shard(index).id).collect();
        assert_eq!(all.len(), 10);
        let (mut lacking, mut promised) = (HashSet::new(), 0);
        for id in ["n1", "n2", "n3"] {
            let survey = survey(&open, &placements, id, &HashSet::new());
            assert!(!survey.owners.contains(id), "nobody asks himself");
            assert!(survey.lacking.keys().all(|shard| lacking.insert(*shard)), "one copy each");
            promised += survey.promised;
            let there = super::survey(&open, &placements, id, &all);
            assert_eq!((there.lacking.len(), there.owners.len(), there.promised), (0, 0, 0));
            assert!(there.copies.iter().all(|copy| survey.lacking.contains_key(copy)));
            assert_eq!(there.copies.len(), survey.lacking.len());
        }
        assert_eq!((lacking, promised), (all, 10 * Kitchen::extent_bytes(&folder, 4)));
        let stranger = survey(&open, &placements, "n4", &HashSet::new());
        assert_eq!((stranger.lacking.len(), stranger.promised), (0, 0));
    }
}
