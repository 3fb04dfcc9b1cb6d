//! Further copies: what another owner of a shard has is brought here too, where this node owns it as well.
//!
//! The owner that is asked first fills a shard as it is read. The others ask each other from time to time what they have,
//! and bring what they own and lack: one at a time, in the background, what was read last first, and only into room that
//! no shard will need of which this node is asked first. Where that room is needed after all, since rows had to be read
//! past the cache, copies go that nobody has read for a while and that are elsewhere too, and with them what a node has
//! and does not own. So a copy that is not read costs no shard its place.
//!
//! While the ring changes nothing is brought, for then plans say what is where; and what plans bring may have the room of
//! copies ([`give_way`]).
//!
//! Thread rule: one task a node; looking through what is open happens on a thread that may block. Non-goals: copies
//! that a change of the ring gives to others (`cluster`), who is asked for a shard (clients, by the placement).

mod ask;
mod room;
mod survey;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::{ShardId, SnapshotId, limits};
use larder_membership::agent::Pulled;
use tokio::time;

use crate::bring::bring;
use crate::cache::Priority;
use crate::clock;
use crate::peers::Peer;
use crate::placements::Placements;
use crate::shared::Shared;
use ask::Held;
use room::free;
use survey::{Lacking, Survey};

pub(crate) use room::give_way;

/// How often it is looked what is lacking, and what room there is.
const INTERVAL: Duration = Duration::from_secs(5);

/// Of the time, the most that may go into looking: a part in so many.
const LOOKING_SHARE: u32 = 20;

/// How often others are asked while nobody has any of it.
const ASKING_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// How often it is looked for copies that could go while none could.
const VAIN_INTERVAL: Duration = Duration::from_secs(60);

/// For so long copies are brought by what was seen once.
const ROUND_MAX: Duration = Duration::from_secs(30);

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
    /// No copies are let go before this.
    make_room_at: Instant,
}

/// One that another owner has.
struct There {
    shard: Lacking,
    /// For how long nobody has read it there.
    idle: Duration,
    peer: Arc<Peer>,
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
            let are_copies_wanted = placements.ring().copies() > 1;
            if !(are_copies_wanted || refused) || self.is_changing() {
                continue;
            }
            self.past = past;
            let begun = clock::now();
            let Some(survey) = Survey::make(&self.shared, &placements).await else { continue };
            rest = INTERVAL.max(clock::now().saturating_duration_since(begun) * LOOKING_SHARE);
            if free(&self.shared.cache) < survey.promised {
                if refused {
                    let (ring, wanted) = (placements.ring(), survey.promised);
                    let made = room::make(&self.shared, ring, survey.spare, wanted).await;
                    let pause = if made { Duration::ZERO } else { VAIN_INTERVAL };
                    self.make_room_at = clock::now() + pause;
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

    /// Brings some of what is lacking.
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
            // What only who is away has would come from the origin.
            if !peer.answers() || !room(&shard) {
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
        let held = ask::all(&self.shared.peers, &turn, &snapshots, &of_interest).await;
        let mut there = Vec::new();
        for Held { peer, shards } in held {
            for (id, idle) in shards {
                let shard = lacking.remove(&id);
                there.extend(shard.map(|shard| There { shard, idle, peer: Arc::clone(&peer) }));
            }
        }
        there
    }
}
