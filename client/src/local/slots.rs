//! The attach table: the mapped shards of a snapshot, and when to ask for the others.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{
            AtomicU32, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use larder_base::limits;
use larder_extent::Attached;

use crate::process::PerProcess;

/// Shards of one chunk of the table. The first request for a shard allocates its chunk. So a
/// dataset of millions of shards costs only its used chunks.
const CHUNK_SHARDS: usize = 1 << 10;

/// In place of a time: the node was asked and has not answered yet.
const ASKED: u32 = u32::MAX;

/// Times are in ticks of this length, so that 32 bits last for years.
const TICK: Duration = Duration::from_millis(50);

struct ShardSlot {
    map: ArcSwapOption<Attached>,
    /// The tick from which the shard may be asked for, or [`ASKED`].
    ask_at: AtomicU32,
}

impl ShardSlot {
    /// Allows asking from `when` on. Returns whether an answer was outstanding, and so held a
    /// place.
    fn answer(&self, when: Duration) -> bool {
        self.ask_at.swap(tick(when), AcqRel) == ASKED
    }
}

/// The attach table of one snapshot.
pub(crate) struct Slots {
    chunks: Box<[OnceLock<Box<[ShardSlot]>>]>,
    mapped: AtomicUsize,
    /// Each map takes one, and so does each requested shard.
    places: Arc<MappingSlots>,
}

impl Slots {
    pub(crate) fn new(shards: u32) -> Self {
        Self::within(shards, MappingSlots::of_process())
    }

    fn within(shards: u32, places: Arc<MappingSlots>) -> Self {
        let chunks = (shards as usize).div_ceil(CHUNK_SHARDS);
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        Self { chunks, mapped: AtomicUsize::new(0), places }
    }

    /// The map of a shard, if there is one.
    pub(crate) fn get(&self, shard: u32) -> Option<Arc<Attached>> {
        let chunk = self.chunks[shard as usize / CHUNK_SHARDS].get()?;
        chunk[shard as usize % CHUNK_SHARDS].map.load_full()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.mapped.load(Acquire) == 0
    }

    /// Whether the caller should ask for a shard now. True for one caller until the answer.
    pub(crate) fn claim(&self, shard: u32, now: Duration) -> bool {
        let slot = self.slot(shard);
        let ask_at = slot.ask_at.load(Relaxed);
        if ask_at > tick(now) || slot.map.load().is_some() || !self.places.claim() {
            return false;
        }
        let claimed = slot.ask_at.compare_exchange(ask_at, ASKED, AcqRel, Relaxed).is_ok();
        if !claimed {
            self.places.give_back();
        }
        claimed
    }

    /// Whether an answer about a shard is outstanding.
    pub(crate) fn is_asked(&self, shard: u32) -> bool {
        self.slot(shard).ask_at.load(Acquire) == ASKED
    }

    /// Notes that the shard can't be mapped now. It may be asked for again from `when` on.
    pub(crate) fn refuse(&self, shard: u32, when: Duration) {
        if self.slot(shard).answer(when) {
            self.places.give_back();
        }
    }

    /// Stores a map. Returns it with the map that it replaces, to be dropped outside any lock.
    pub(crate) fn put(&self, shard: u32, map: Attached) -> (Weak<Attached>, Option<Arc<Attached>>) {
        let slot = self.slot(shard);
        let map = Arc::new(map.kept_with(MappingSlot::taken(&self.places)));
        let put = Arc::downgrade(&map);
        let replaced = slot.map.swap(Some(map));
        if replaced.is_none() {
            self.mapped.fetch_add(1, AcqRel);
        }
        if !slot.answer(Duration::ZERO) {
            self.places.take();
        }
        (put, replaced)
    }

    /// Removes a map from the table. Readers keep theirs, and the last reference unmaps it.
    pub(crate) fn take(&self, shard: u32, ask_again: Duration) -> Option<Arc<Attached>> {
        self.refuse(shard, ask_again);
        let map = self.slot(shard).map.swap(None);
        if map.is_some() {
            self.mapped.fetch_sub(1, AcqRel);
        }
        map
    }

    /// As [`take`](Self::take), but only for this map: another one may have replaced it.
    pub(crate) fn take_this(
        &self,
        shard: u32,
        map: &Weak<Attached>,
        ask_again: Duration,
    ) -> Option<Arc<Attached>> {
        let current = self.get(shard).filter(|current| Arc::as_ptr(current) == map.as_ptr());
        current.and_then(|_| self.take(shard, ask_again))
    }

    /// Drops every map. For a forked child: its parent holds the leases.
    pub(crate) fn clear(&self) {
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            slot.map.store(None);
        }
    }

    fn slot(&self, shard: u32) -> &ShardSlot {
        let empty = || ShardSlot { map: ArcSwapOption::const_empty(), ask_at: AtomicU32::new(0) };
        let chunk = self.chunks[shard as usize / CHUNK_SHARDS]
            .get_or_init(|| (0..CHUNK_SHARDS).map(|_| empty()).collect());
        &chunk[shard as usize % CHUNK_SHARDS]
    }
}

/// A forked child drops the maps it inherits, and counts its own.
static PLACES: PerProcess<Arc<MappingSlots>> = PerProcess::new();

/// The number of extents that this process has mapped or requested, over all its datasets.
///
/// A place is claimed before an extent is requested. It is returned when the extent is unmapped.
/// Views may keep the extent long after it left the table.
struct MappingSlots {
    taken: AtomicUsize,
    count: usize,
}

/// A taken place. Its drop returns the place.
struct MappingSlot {
    places: Arc<MappingSlots>,
}

impl MappingSlots {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), count })
    }

    /// The places of this process.
    fn of_process() -> Arc<Self> {
        Arc::clone(&**PLACES.get(|_| Self::new(limits::MAPPED_EXTENTS_MAX)))
    }

    /// Takes a place, if one is left.
    fn claim(&self) -> bool {
        let one_more = |taken| (taken < self.count).then_some(taken + 1);
        self.taken.fetch_update(AcqRel, Relaxed, one_more).is_ok()
    }

    /// Takes a place for an extent that is already mapped.
    fn take(&self) {
        self.taken.fetch_add(1, AcqRel);
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, AcqRel);
    }
}

impl MappingSlot {
    /// Wraps a place that was taken before.
    fn taken(places: &Arc<MappingSlots>) -> Self {
        Self { places: Arc::clone(places) }
    }
}

impl Drop for MappingSlot {
    fn drop(&mut self) {
        self.places.give_back();
    }
}

fn tick(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(ASKED - 1).min(ASKED - 1)
}

#[cfg(test)]
mod tests {
    use larder_extent::{ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn map() -> Attached {
        let layout = ExtentLayout::new(&[Region::Blocks { bytes: 8 }]).unwrap();
        let (id, parts) =
            (ExtentId::from_bytes([7; 16]), vec![PartSpec { region: 0, range: 0..8 }]);
        let filling = Filling::create(id, layout, parts, PagePreference::Small).unwrap();
        let mut part = filling.take_part(0).unwrap();
        part.write(&[1; 8]).unwrap();
        part.finish().unwrap();
        Attached::with_private_views(filling.seal().unwrap().open_for_peer().unwrap(), id).unwrap()
    }

    #[test]
    fn shard_is_requested_once_and_again_only_after_its_delay() {
        let slots = Slots::new(5000);
        assert!(slots.get(4321).is_none());
        assert!(slots.claim(4321, Duration::ZERO));
        assert!(!slots.claim(4321, SECOND * 1000));
        assert!(slots.is_asked(4321));
        slots.refuse(4321, SECOND * 5);
        assert!(!slots.claim(4321, SECOND * 4));
        assert!(slots.claim(4321, SECOND * 5));
        assert!(slots.claim(4320, Duration::ZERO));
    }

    #[test]
    fn mapping_slots_are_shared_in_a_process_and_released() {
        let places = MappingSlots::new(2);
        let [one, other] = [0, 1].map(|_| Slots::within(100, Arc::clone(&places)));
        assert!(one.claim(7, SECOND) && other.claim(7, SECOND));
        assert!(!one.claim(8, SECOND) && !other.claim(8, SECOND));
        one.refuse(7, SECOND);
        // A shard without an outstanding request has no place to return.
        one.refuse(7, SECOND);
        assert!(other.claim(8, SECOND));
        assert!(!one.claim(7, SECOND));
        let [one, other] = [0, 1].map(|_| Slots::new(100));
        assert!(Arc::ptr_eq(&one.places, &other.places));
    }

    #[test]
    fn mapping_occupies_its_slot_until_its_last_user_drops_it() {
        let slots = Slots::within(100, MappingSlots::new(1));
        assert!(slots.claim(7, SECOND));
        slots.put(7, map());
        assert!(!slots.claim(8, SECOND));
        let used = slots.take(7, SECOND);
        assert!(!slots.claim(8, SECOND));
        drop(used);
        assert!(slots.claim(8, SECOND));
        slots.put(8, map());
        // An unrequested map, because the place of its request was already returned.
        slots.put(9, map());
        drop(slots.take(8, SECOND));
        assert!(!slots.claim(8, SECOND));
        drop(slots.take(9, SECOND));
        assert!(slots.claim(8, SECOND));
    }
}
