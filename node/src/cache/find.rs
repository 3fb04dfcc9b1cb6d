//! Requests for shards: returns resident shards, joins running fills, and starts new fills.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_dataset::ShardId;
use larder_extent::Sealed;
use larder_store::{NoRoom, OrphanToken, Outcome, Waiter, Why};
use larder_wire::{Error, ErrorKind};

use super::books::{Books, EvictedShard, Look};
use super::kept::{Fit, Kept, fit};
use super::{Cache, Group, Remains};
use crate::catalog::Dataset;
use crate::clock;
use crate::errors;
use crate::fill::{Priority, Pushed, Queued, ShardPlan};
use crate::flight::{Flight, Waited};
use crate::pin::{self, Pin};

/// The state of one requested shard.
#[derive(Debug)]
pub enum Found {
    /// It is resident.
    Resident(Arc<Sealed>),
    /// It is being filled. If it can't be filled, the flight reports the error at once.
    InFlight(Awaited),
    /// It is not resident and will not be kept for now: read its rows by range.
    NotKept,
}

/// A flight with a waiting reader. While this lives, a fill worker that dies is replaced. Derefs to
/// [`Flight`].
#[derive(Debug)]
pub struct Awaited {
    flight: Arc<Flight>,
    place: Option<(Arc<Cache>, Waiter<ShardId>)>,
    /// The pin of the caller's snapshot. Other readers may wait for other snapshots.
    pin: Option<Pin>,
}

impl Awaited {
    /// As [`Flight::wait`]. Fails if the shard is in but differs from the caller's pin.
    #[must_use]
    pub fn wait(&self, region: usize, range: &Range<u64>, timeout: Duration) -> Waited {
        self.checked(self.flight.wait(region, range, timeout))
    }

    /// As [`Flight::wait_for_all`], with the same check.
    #[must_use]
    pub fn wait_for_all(&self, timeout: Duration) -> Waited {
        self.checked(self.flight.wait_for_all(timeout))
    }

    /// Checks the outcome of a wait against the caller's pin.
    fn checked(&self, waited: Waited) -> Waited {
        let pinned = self.pin.as_ref().map(Pin::checksum);
        match (&waited, &self.pin) {
            (Waited::Sealed(sealed), Some(pin)) => {
                match fit(sealed, self.flight.is_proven(), pinned) {
                    Fit::Right => waited,
                    Fit::Wrong | Fit::Doubtful => {
                        Waited::Failed(Arc::new(pin::wrong().context(pin)))
                    }
                    Fit::Unknown => ask_again("it came in before its checksum was known"),
                }
            }
            (Waited::Failed(_), _) => match self.flight.given_up_over() {
                Some(over) if pinned != Some(over) => {
                    ask_again("its fill was given up over the checksum that another snapshot pins")
                }
                _ => waited,
            },
            _ => waited,
        }
    }

    /// Returns the flight without this caller's place among the waiters.
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

/// One request: its dataset, priority and time.
struct Asking<'a> {
    cache: &'a Arc<Cache>,
    dataset: &'a Arc<Dataset>,
    group: Group,
    priority: Priority,
    now: Instant,
}

/// A requested shard that was absent at the first look.
struct Missing {
    /// Its index in the caller's list.
    index: usize,
    shard: u32,
    id: ShardId,
    bytes: u64,
}

/// Results of the books that are handled after the lock is released.
#[derive(Default)]
struct Aside {
    evicted: Vec<EvictedShard>,
    displaced: Vec<Queued>,
    unused: Vec<OrphanToken>,
    queued: usize,
    never_fits: Option<NoRoom>,
}

impl Cache {
    /// Returns the state of each of `shards`, in their order. Absent shards begin to be filled if
    /// they are admitted. Takes the lock once if all are resident.
    ///
    /// # Panics
    /// The dataset has no such shard.
    pub fn find(
        self: &Arc<Self>,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        priority: Priority,
    ) -> Vec<Found> {
        let now = clock::now();
        let mut found: Vec<_> = shards.iter().map(|_| Found::NotKept).collect();
        let LookedUp { absent, doubted } = self.look_up(dataset, shards, &mut found, now);
        let missing = Self::measure(dataset, absent, &mut found);
        if missing.is_empty() {
            return found;
        }
        let group = Group::Shards(dataset.snapshot());
        let asking = Asking { cache: self, dataset, group, priority, now };
        let waiting = asking.admit(missing, &mut found);
        // If no process maps the evicted memory, it is free by now. Ask once more.
        if waiting.made_room {
            asking.admit(waiting.left_out, &mut found);
        }
        for (index, id) in doubted {
            // Rows by range come from the same origin as the damaged bytes, and are not compared.
            if matches!(found[index], Found::NotKept) {
                let why = "its bytes did not have the pinned checksum, and there is no room to read them again";
                found[index] = over(id, Arc::new(again(why)));
            }
        }
        found
    }

    /// Returns a shard for another node if it is resident. Does not count as a use, starts no fill
    /// and evicts nothing.
    ///
    /// # Panics
    /// The dataset has no such shard.
    #[must_use]
    pub fn resident(&self, dataset: &Arc<Dataset>, shard: u32) -> Option<Arc<Sealed>> {
        dataset.vouch(shard).ok()?;
        let shard = dataset.manifest().shard(shard);
        let now = clock::now();
        let kept = self.lock().store.handle_mut(shard.id)?.clone();
        let right = !kept.condemned && kept.fit(shard.checksum, now) == Fit::Right;
        right.then_some(kept.sealed)
    }

    /// Fills in the resident shards. Returns the absent ones.
    fn look_up(
        &self,
        dataset: &Arc<Dataset>,
        shards: &[u32],
        found: &mut [Found],
        now: Instant,
    ) -> LookedUp {
        let group = Group::Shards(dataset.snapshot());
        let mut vouched = Vec::with_capacity(shards.len());
        for (index, &shard) in shards.iter().enumerate() {
            let id = dataset.manifest().shard(shard).id;
            match dataset.vouch(shard) {
                Ok(()) => vouched.push((index, shard, id)),
                Err(why) => found[index] = over(id, Arc::new(why)),
            }
        }
        let (mut others, mut books) = (Vec::new(), self.lock());
        vouched.retain(|&(index, shard, id)| {
            let pinned = dataset.manifest().shard(shard).checksum;
            match books.look(id, group, pinned, now) {
                Look::Absent => return true,
                Look::Here(sealed) => found[index] = Found::Resident(sealed),
                other => others.push((index, shard, id, other)),
            }
            false
        });
        drop(books);
        // Doubted shards come first, so that they get the room they had.
        let mut absent = Vec::new();
        for (index, shard, id, look) in others {
            match look {
                Look::Wrong => found[index] = wrong(dataset, shard, id),
                Look::Held(why) => found[index] = over(id, why),
                Look::Doubted(evicted) => {
                    self.bury(evicted);
                    absent.push((index, shard, id));
                }
                Look::Discarded(discarded) => {
                    if self.part_with(id, discarded) {
                        vouched.push((index, shard, id));
                    }
                }
                Look::Absent | Look::Here(_) => {}
            }
        }
        let doubted = absent.iter().map(|(index, _, id)| (*index, *id)).collect();
        absent.extend(vouched);
        LookedUp { absent, doubted }
    }

    /// Computes the bytes that absent shards would take, outside the lock.
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
                    missing.push(Missing { index, shard, id, bytes });
                }
                Err(why) => {
                    let why = errors::of_extent(why).context(format!("shard {shard}"));
                    found[index] = over(id, Arc::new(why));
                }
            }
        }
        missing
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

impl Asking<'_> {
    /// Requests each shard from the store. Returns those without room, and whether any was evicted.
    fn admit(&self, missing: Vec<Missing>, found: &mut [Found]) -> LeftOut {
        let mut aside = Aside::default();
        let mut left_out = Vec::new();
        {
            let mut books = self.cache.lock();
            for one in missing {
                match self.admit_one(&mut books, &one, &mut aside) {
                    Some(what) => found[one.index] = what,
                    None => left_out.push(one),
                }
            }
        }
        let made_room = !aside.evicted.is_empty();
        if let Some(reason) = &aside.never_fits {
            self.dataset.warn_never_kept(reason);
        }
        self.cache.put_away(aside);
        LeftOut { left_out, made_room }
    }

    /// Requests one shard. Returns `None` if there is no room for it.
    fn admit_one(&self, books: &mut Books, one: &Missing, aside: &mut Aside) -> Option<Found> {
        let pin = Pin::of(self.dataset, one.shard);
        let held = books.failures.held(one.id, pin.as_ref().map(Pin::checksum), self.now);
        if let Some(why) = books.closed.clone().or(held) {
            return Some(over(one.id, why));
        }
        let make = || Arc::new(Flight::new(one.id));
        let (group, now) = (self.group, self.now);
        match books.store.request(one.id, group, one.bytes, now, make) {
            Outcome::Resident(kept) => Some(self.just_came_in(one, kept)),
            Outcome::InFlight { handle, waiter } => {
                books.queue.raise(one.id, self.priority);
                Some(self.awaited(handle, waiter, pin))
            }
            Outcome::Admitted { handle, permit } => {
                let (dataset, shard) = (Arc::clone(self.dataset), one.shard);
                let queued = Queued { dataset, shard, flight: handle, permit };
                Some(self.enqueue(books, (one, pin), queued, aside))
            }
            Outcome::NoRoom { reason, evicted } => {
                aside.evicted.extend(evicted);
                let never = matches!(reason.why, Why::LargerThanBudget { .. });
                aside.never_fits = aside.never_fits.take().or(never.then_some(reason));
                None
            }
        }
    }

    /// Handles a shard that became resident since the first look.
    fn just_came_in(&self, one: &Missing, kept: Kept) -> Found {
        match kept.fit(self.dataset.manifest().shard(one.shard).checksum, self.now) {
            Fit::Right if !kept.condemned => Found::Resident(kept.sealed),
            Fit::Wrong | Fit::Doubtful => wrong(self.dataset, one.shard, one.id),
            // The next request finds and discards it.
            Fit::Right | Fit::Unknown => Found::NotKept,
        }
    }

    /// Queues the fill of a shard that was just admitted.
    fn enqueue(
        &self,
        books: &mut Books,
        (one, pin): (&Missing, Option<Pin>),
        queued: Queued,
        aside: &mut Aside,
    ) -> Found {
        match books.queue.push(queued, self.priority) {
            Pushed::Queued => aside.queued += 1,
            Pushed::Displaced(other) => aside.displaced.push(other),
            Pushed::Full(queued) => {
                let orphan = books.store.give_up(queued.permit, self.now);
                let orphan = orphan.expect("the permit was made a moment ago");
                aside.unused.push(orphan.token);
                return Found::NotKept;
            }
        }
        // Another task performs the fill, so the caller is its first waiter.
        let make = || unreachable!("the shard was just admitted");
        let again = books.store.request(one.id, self.group, one.bytes, self.now, make);
        let Outcome::InFlight { handle, waiter } = again else {
            unreachable!("the shard was just admitted");
        };
        self.awaited(handle, waiter, pin)
    }

    /// Wraps a flight for the caller: notes the caller's pin and priority on it.
    fn awaited(&self, flight: Arc<Flight>, waiter: Waiter<ShardId>, pin: Option<Pin>) -> Found {
        if let Some(pin) = &pin {
            flight.compare_with(pin);
        }
        if self.priority != Priority::Background {
            flight.hurry();
        }
        let place = Some((Arc::clone(self.cache), waiter));
        Found::InFlight(Awaited { flight, place, pin })
    }
}

/// The absent shards after a look.
struct LookedUp {
    /// Shards to fill: index in the caller's list, shard index and id.
    absent: Vec<(usize, u32, ShardId)>,
    /// The absent shards that were resident with bytes other than the caller pins.
    doubted: Vec<(usize, ShardId)>,
}

/// Shards without room, and whether any shard was evicted for them.
struct LeftOut {
    left_out: Vec<Missing>,
    made_room: bool,
}

fn over(id: ShardId, why: Arc<Error>) -> Found {
    let flight = Arc::new(Flight::failed(id, why));
    Found::InFlight(Awaited { flight, place: None, pin: None })
}

/// Returns the error for a snapshot that pins a checksum other than that of the origin's bytes.
fn wrong(dataset: &Arc<Dataset>, shard: u32, id: ShardId) -> Found {
    match Pin::of(dataset, shard) {
        Some(pin) => over(id, Arc::new(pin::wrong().context(pin))),
        None => Found::NotKept,
    }
}

fn ask_again(why: &str) -> Waited {
    Waited::Failed(Arc::new(again(why)))
}

fn again(why: &str) -> Error {
    Error::new(ErrorKind::ResourceExhausted, format!("{why}; ask again"))
}
