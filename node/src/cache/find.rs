//! Requests for shards: returns resident shards, joins running fills, and starts new fills.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use larder_base::{Error, ErrorKind, ShardId};
use larder_extent::Sealed;
use larder_store::{NoRoom, OrphanToken, Outcome, Waiter, Why};

use super::state::{CacheState, EvictedShard, Look, ResidentShard};
use super::{Cache, EvictionGroup, Reclaimable};
use crate::cache::{InFlightFill, Priority, Pushed, Queued, extent_error, shard_layout};
use crate::clock;
use crate::dataset::Dataset;

/// How often a request without room is repeated while room is about to come free.
const LOOKS_FOR_ROOM: usize = 4;

/// The state of one requested shard.
#[derive(Debug)]
pub(crate) enum FoundShard {
    /// It is resident.
    Resident(Arc<Sealed>),
    /// It is being filled. If it can't be filled, the flight reports the error at once.
    InFlight(Awaited),
    /// It is not resident and will not be kept for now: read its rows by range.
    NotKept,
}

/// A flight with a waiting reader. While this lives, a fill worker that dies is replaced. Derefs to
/// [`InFlightFill`].
#[derive(Debug)]
pub(crate) struct Awaited {
    flight: Arc<InFlightFill>,
    place: Option<(Arc<Cache>, Waiter<ShardId>)>,
}

impl Awaited {
    /// Returns the flight without this caller's place among the waiting readers.
    pub(super) fn flight(&self) -> Arc<InFlightFill> {
        Arc::clone(&self.flight)
    }
}

impl Deref for Awaited {
    type Target = InFlightFill;

    fn deref(&self) -> &InFlightFill {
        &self.flight
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if let Some((cache, waiter)) = self.place.take() {
            cache.lock().store.leave(waiter);
        }
    }
}

/// One request: its dataset, priority and time.
struct Asking<'a> {
    cache: &'a Arc<Cache>,
    dataset: &'a Arc<Dataset>,
    group: EvictionGroup,
    priority: Priority,
    now: Instant,
}

/// A requested shard that was absent at the first look.
struct MissingShard {
    /// Its index in the caller's list.
    index: usize,
    shard: u32,
    id: ShardId,
    bytes: u64,
}

/// Results of the cache state that are handled after the lock is released.
#[derive(Default)]
struct AfterUnlock {
    evicted: Vec<EvictedShard>,
    displaced: Vec<Queued>,
    unused: Vec<OrphanToken>,
    queued: usize,
    /// A reason of which users are told.
    told: Option<NoRoom>,
    /// Room was made that is not free yet.
    is_leaving: bool,
}

impl Cache {
    /// Returns the state of each of `shards`, in their order. Absent shards begin to be filled if
    /// they are admitted. Takes the lock once if all are resident. The caller made sure that they
    /// may be looked for ([`Leaves::ready`](crate::catalog::leaves::Leaves::ready)).
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) fn find(
        self: &Arc<Self>,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        priority: Priority,
    ) -> Vec<FoundShard> {
        let now = clock::now();
        let mut found: Vec<_> = shards.iter().map(|_| FoundShard::NotKept).collect();
        let absent = self.look_up(dataset, shards, &mut found, now);
        let missing = Self::measure(dataset, absent, &mut found);
        if missing.is_empty() {
            return found;
        }
        self.spare_retained(missing.iter().map(|one| one.bytes).sum());
        let group = EvictionGroup::Shards(dataset.snapshot());
        let asking = Asking { cache: self, dataset, group, priority, now };
        let (mut left_out, mut is_leaving) = asking.admit(missing, &mut found);
        // If no process maps the evicted memory, this thread has freed it, or another is about to.
        for _ in 0..LOOKS_FOR_ROOM {
            if !is_leaving {
                break;
            }
            thread::yield_now();
            (left_out, is_leaving) = asking.admit(left_out, &mut found);
        }
        found
    }

    /// Returns a shard for another node if it is resident. Does not count as a use, starts no fill
    /// and evicts nothing.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub(crate) fn resident(&self, dataset: &Arc<Dataset>, shard: u32) -> Option<Arc<Sealed>> {
        dataset.check_vouched(shard).ok()?;
        let id = dataset.manifest().shard(shard).id;
        let kept = self.lock().store.handle_mut(id)?.clone();
        (!kept.condemned).then_some(kept.sealed)
    }

    /// Takes the resident shards. Returns the absent ones: the index in the caller's list, the
    /// index in the dataset, and the id.
    fn look_up(
        &self,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        found: &mut [FoundShard],
        now: Instant,
    ) -> Vec<(usize, u32, ShardId)> {
        let group = EvictionGroup::Shards(dataset.snapshot());
        let mut vouched = Vec::with_capacity(shards.len());
        for (index, &shard) in shards.iter().enumerate() {
            let id = dataset.manifest().shard(shard).id;
            match dataset.check_vouched(shard) {
                Ok(()) => vouched.push((index, shard, id)),
                Err(why) => found[index] = over(id, Arc::new(why)),
            }
        }
        let (mut discarded, mut state) = (Vec::new(), self.lock());
        vouched.retain(|&(index, shard, id)| match state.look(id, group, now) {
            Look::Absent => true,
            Look::Here(sealed) => {
                found[index] = FoundShard::Resident(sealed);
                false
            }
            Look::Discarded(what) => {
                discarded.push((index, shard, id, what));
                false
            }
        });
        drop(state);
        for (index, shard, id, what) in discarded {
            if self.part_with(id, what) {
                vouched.push((index, shard, id));
            }
        }
        vouched
    }

    /// Computes the bytes that absent shards would take, outside the lock.
    fn measure(
        dataset: &Arc<Dataset>,
        absent: Vec<(usize, u32, ShardId)>,
        found: &mut [FoundShard],
    ) -> Vec<MissingShard> {
        let mut missing = Vec::with_capacity(absent.len());
        for (index, shard, id) in absent {
            match shard_layout(dataset.manifest(), shard) {
                Ok(layout) => {
                    let bytes = layout.total_bytes();
                    missing.push(MissingShard { index, shard, id, bytes });
                }
                Err(why) => {
                    let why = extent_error(why).context(format!("shard {shard}"));
                    found[index] = over(id, Arc::new(why));
                }
            }
        }
        missing
    }

    fn put_away(&self, aside: AfterUnlock) {
        (0..aside.queued).for_each(|_| self.ready.notify_one());
        for evicted in aside.evicted {
            self.bury(evicted);
        }
        for token in aside.unused {
            self.free(token, Reclaimable::Nothing);
        }
        let why = Error::new(
            ErrorKind::ResourceExhausted,
            "the fill was displaced from the full queue by a more urgent one; ask again",
        );
        let why = Arc::new(why);
        for queued in aside.displaced {
            self.abandon(queued.permit, &queued.flight, &why);
        }
    }
}

impl Asking<'_> {
    /// Requests each shard from the store. Returns those without room, and whether some is about to
    /// come free.
    fn admit(
        &self,
        missing: Vec<MissingShard>,
        found: &mut [FoundShard],
    ) -> (Vec<MissingShard>, bool) {
        let mut aside = AfterUnlock::default();
        let mut left_out = Vec::new();
        {
            let mut state = self.cache.lock();
            for one in missing {
                match self.admit_one(&mut state, &one, &mut aside) {
                    Some(what) => found[one.index] = what,
                    None => left_out.push(one),
                }
            }
        }
        let is_leaving = aside.is_leaving;
        if let Some(reason) = &aside.told {
            self.dataset.warn_not_kept(reason);
        }
        self.cache.put_away(aside);
        (left_out, is_leaving)
    }

    /// Requests one shard. Returns `None` if there is no room for it.
    fn admit_one(
        &self,
        state: &mut CacheState,
        one: &MissingShard,
        aside: &mut AfterUnlock,
    ) -> Option<FoundShard> {
        let held = state.failures.held(one.id, self.now);
        if let Some(why) = state.closed.clone().or(held) {
            return Some(over(one.id, why));
        }
        let make = || Arc::new(InFlightFill::new(one.id));
        let (group, now) = (self.group, self.now);
        match state.store.request(one.id, group, one.bytes, now, make) {
            Outcome::Resident(kept) => Some(just_came_in(kept)),
            Outcome::InFlight { handle, waiter } => {
                state.queue.raise(one.id, self.priority);
                Some(self.awaited(one, handle, waiter))
            }
            Outcome::Admitted { handle, permit } => {
                let (dataset, shard) = (Arc::clone(self.dataset), one.shard);
                let queued = Queued { dataset, shard, flight: handle, permit };
                Some(self.enqueue(state, one, queued, aside))
            }
            Outcome::NoRoom { reason, evicted } => {
                aside.evicted.extend(evicted);
                aside.is_leaving |= matches!(reason.why, Why::Leaving);
                let is_told =
                    matches!(reason.why, Why::LargerThanBudget { .. } | Why::NoPlace { .. });
                aside.told = aside.told.take().or(is_told.then_some(reason));
                None
            }
        }
    }

    /// Finds a place in the queue for a shard that was just admitted.
    fn enqueue(
        &self,
        state: &mut CacheState,
        one: &MissingShard,
        queued: Queued,
        aside: &mut AfterUnlock,
    ) -> FoundShard {
        match state.queue.push(queued, self.priority) {
            Pushed::Queued => aside.queued += 1,
            Pushed::Displaced(other) => aside.displaced.push(other),
            Pushed::Full(queued) => {
                let orphan = state.store.give_up(queued.permit, self.now);
                let orphan = orphan.expect("the permit was made a moment ago");
                aside.unused.push(orphan.token);
                return FoundShard::NotKept;
            }
        }
        // Another task performs the fill, so the caller is its first waiter.
        let make = || unreachable!("the shard was just admitted");
        let again = state.store.request(one.id, self.group, one.bytes, self.now, make);
        let Outcome::InFlight { handle, waiter } = again else {
            unreachable!("the shard was just admitted");
        };
        self.awaited(one, handle, waiter)
    }

    /// Gives the caller its place among the readers that wait for the flight.
    fn awaited(
        &self,
        one: &MissingShard,
        flight: Arc<InFlightFill>,
        waiter: Waiter<ShardId>,
    ) -> FoundShard {
        // A checksum covers the whole shard, so nothing leaves before all of it is compared.
        if self.dataset.manifest().shard(one.shard).checksum.is_some() {
            flight.withhold();
        }
        if self.priority != Priority::Background {
            flight.hurry();
        }
        if self.priority == Priority::Demand {
            flight.await_by_reader();
        }
        let place = Some((Arc::clone(self.cache), waiter));
        FoundShard::InFlight(Awaited { flight, place })
    }
}

/// A shard that was not here a moment ago.
fn just_came_in(kept: ResidentShard) -> FoundShard {
    if kept.condemned { FoundShard::NotKept } else { FoundShard::Resident(kept.sealed) }
}

fn over(id: ShardId, why: Arc<Error>) -> FoundShard {
    let flight = Arc::new(InFlightFill::failed(id, why));
    FoundShard::InFlight(Awaited { flight, place: None })
}
