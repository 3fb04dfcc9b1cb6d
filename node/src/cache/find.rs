//! Asking for shards: what is here, what is on its way, and what begins to be filled because of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use larder_dataset::ShardId;
use larder_extent::Sealed;
use larder_store::{OrphanToken, Outcome, Waiter};
use larder_wire::{Error, ErrorKind};

use super::books::{Books, EvictedShard};
use super::{Cache, Group, Remains};
use crate::catalog::Dataset;
use crate::clock;
use crate::errors;
use crate::fill::{Priority, Pushed, Queued, ShardPlan};
use crate::flight::Flight;

/// What the cache has of one shard.
#[derive(Debug)]
pub enum Found {
    /// It is here.
    Resident(Arc<Sealed>),
    /// It is on its way; or it can't be, and the flight says at once why.
    InFlight(Awaited),
    /// It is not here and will not be kept for now: read its rows by range.
    NotKept,
}

/// A flight that somebody waits for: while this lives, a filler that dies is replaced. Derefs to
/// [`Flight`].
#[derive(Debug)]
pub struct Awaited {
    flight: Arc<Flight>,
    place: Option<(Arc<Cache>, Waiter<ShardId>)>,
}

impl Awaited {
    /// The flight, without this caller's place among those who wait.
    pub(super) fn flight(&self) -> Arc<Flight> {
        Arc::clone(&self.flight)
    }
}

impl Deref for Awaited {
    type Target = Flight;

    fn deref(&self) -> &Flight {
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

/// A shard that is asked for and was not here at first sight.
struct Missing {
    /// Its place in the caller's list.
    index: usize,
    shard: u32,
    id: ShardId,
    bytes: u64,
}

/// What came out of the books and is dealt with after the lock.
#[derive(Default)]
struct Aside {
    evicted: Vec<EvictedShard>,
    displaced: Vec<Queued>,
    unused: Vec<OrphanToken>,
    queued: usize,
}

impl Cache {
    /// What there is of each of `shards`, in their order; what is not here begins to be filled if
    /// it is admitted. Takes the lock once if all are here.
    ///
    /// # Panics
    /// If the dataset has no such shard.
    pub fn find(
        self: &Arc<Self>,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        priority: Priority,
    ) -> Vec<Found> {
        let now = clock::now();
        let mut found: Vec<_> = shards.iter().map(|_| Found::NotKept).collect();
        let absent = self.look_up(dataset, shards, &mut found, now);
        let missing = Self::measure(dataset, absent, &mut found);
        if missing.is_empty() {
            return found;
        }
        let mut waiting = self.admit(dataset, missing, priority, &mut found, now);
        // What was evicted is free already if nobody maps it: one more look.
        if waiting.made_room && !waiting.left_out.is_empty() {
            let left_out = std::mem::take(&mut waiting.left_out);
            self.admit(dataset, left_out, priority, &mut found, now);
        }
        found
    }

    /// Takes what is resident; returns the indices and shards that are not.
    fn look_up(
        &self,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        found: &mut [Found],
        now: Instant,
    ) -> Vec<(usize, u32, ShardId)> {
        let group = Group::Shards(dataset.snapshot());
        let mut vouched = Vec::with_capacity(shards.len());
        for (index, &shard) in shards.iter().enumerate() {
            let id = dataset.manifest().shard(shard).id;
            match dataset.vouch(shard) {
                Ok(()) => vouched.push((index, shard, id)),
                Err(why) => found[index] = over(id, Arc::new(why)),
            }
        }
        let mut books = self.lock();
        vouched.retain(|&(index, _, id)| {
            if books.condemned.contains(&id) {
                return false;
            }
            let Some(sealed) = books.store.get(id, group, now) else {
                return true;
            };
            found[index] = Found::Resident(sealed);
            false
        });
        vouched
    }

    /// Computes what absent shards would take, outside the lock.
    fn measure(
        dataset: &Arc<Dataset>,
        absent: Vec<(usize, u32, ShardId)>,
        found: &mut [Found],
    ) -> Vec<Missing> {
        let mut missing = Vec::with_capacity(absent.len());
        for (index, shard, id) in absent {
            match ShardPlan::new(dataset.manifest(), shard) {
                Ok(plan) => {
                    let bytes = plan.layout.total_bytes();
                    missing.push(Missing {
                        index,
                        shard,
                        id,
                        bytes,
                    });
                }
                Err(why) => {
                    let why = errors::of_extent(why).context(format!("shard {shard}"));
                    found[index] = over(id, Arc::new(why));
                }
            }
        }
        missing
    }

    /// Asks the store for each; returns those without room, and whether some was made.
    fn admit(
        self: &Arc<Self>,
        dataset: &Arc<Dataset>,
        missing: Vec<Missing>,
        priority: Priority,
        found: &mut [Found],
        now: Instant,
    ) -> LeftOut {
        let mut aside = Aside::default();
        let mut left_out = Vec::new();
        {
            let mut books = self.lock();
            for one in missing {
                let what = self.admit_one(&mut books, dataset, &one, priority, &mut aside, now);
                match what {
                    Some(what) => found[one.index] = what,
                    None => left_out.push(one),
                }
            }
        }
        let made_room = !aside.evicted.is_empty();
        self.put_away(aside);
        LeftOut {
            left_out,
            made_room,
        }
    }

    fn admit_one(
        self: &Arc<Self>,
        books: &mut Books,
        dataset: &Arc<Dataset>,
        one: &Missing,
        priority: Priority,
        aside: &mut Aside,
        now: Instant,
    ) -> Option<Found> {
        let held = books
            .closed
            .clone()
            .or_else(|| books.failures.held(one.id, now));
        if let Some(why) = held {
            return Some(over(one.id, why));
        }
        let group = Group::Shards(dataset.snapshot());
        let withheld = dataset.manifest().shard(one.shard).checksum.is_some();
        let make = || Arc::new(Flight::new(one.id, withheld));
        match books.store.request(one.id, group, one.bytes, now, make) {
            Outcome::Resident(sealed) => Some(Found::Resident(sealed)),
            Outcome::InFlight { handle, waiter } => {
                if priority == Priority::Demand {
                    books.queue.raise(one.id);
                }
                Some(self.awaited(handle, waiter))
            }
            Outcome::Admitted { handle, permit } => {
                let (dataset, shard) = (Arc::clone(dataset), one.shard);
                let queued = Queued {
                    dataset,
                    shard,
                    flight: handle,
                    permit,
                };
                match books.queue.push(queued, priority) {
                    Pushed::Queued => aside.queued += 1,
                    Pushed::Displaced(other) => aside.displaced.push(other),
                    Pushed::Full(queued) => {
                        let orphan = books.store.give_up(queued.permit, now);
                        let orphan = orphan.expect("the permit was made a moment ago");
                        aside.unused.push(orphan.token);
                        return Some(Found::NotKept);
                    }
                }
                // The fill is another's to perform, so the one who asked is its first waiter.
                let make = || unreachable!("the shard was just admitted");
                match books.store.request(one.id, group, one.bytes, now, make) {
                    Outcome::InFlight { handle, waiter } => Some(self.awaited(handle, waiter)),
                    _ => unreachable!("the shard was just admitted"),
                }
            }
            Outcome::NoRoom { evicted, .. } => {
                aside.evicted.extend(evicted);
                None
            }
        }
    }

    fn awaited(self: &Arc<Self>, flight: Arc<Flight>, waiter: Waiter<ShardId>) -> Found {
        Found::InFlight(Awaited {
            flight,
            place: Some((Arc::clone(self), waiter)),
        })
    }

    fn put_away(&self, aside: Aside) {
        self.queued.add_permits(aside.queued);
        for evicted in aside.evicted {
            self.bury(evicted);
        }
        for token in aside.unused {
            self.free(token, Remains::Nothing);
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

struct LeftOut {
    left_out: Vec<Missing>,
    made_room: bool,
}

fn over(id: ShardId, why: Arc<Error>) -> Found {
    Found::InFlight(Awaited {
        flight: Arc::new(Flight::failed(id, why)),
        place: None,
    })
}
