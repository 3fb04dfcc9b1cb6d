//! The points of a ring: their places, the lookup of owners, and the walk over the points.

use std::hash::{BuildHasher, Hash, Hasher};

use crate::ShardId;
use hashring::HashRing;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::{Member, Spread};
use crate::limits;

/// Points on the ring of a member of ordinary weight: the fullest of 16 members then holds 1.11
/// times the mean on average.
const RING_POINTS_PER_MEMBER: u32 = 256;

/// Keeps the places of this ring apart from other uses of the same hash over the same bytes.
/// Changing it moves every shard.
const SEED: u64 = u64::from_le_bytes(*b"ldr-ring");

/// Most points of one arc of the circle, on average: two or three cache lines of the processor.
const POINTS_PER_ARC: usize = 8;

/// One point: sixteen `Copy` bytes, so that the lookup table is small and cheap to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    position: u64,
    member: u16,
}
const _: () = assert!(size_of::<Point>() == 16);
const _: () = assert!(limits::RING_MEMBERS_MAX <= 1 << 16);

/// Points hash as their position; so do keys.
impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.position);
    }
}

/// Returns the one number it is given: positions are hashes already.
#[derive(Clone, Copy, Default)]
struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("points and keys hash as one u64");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl BuildHasher for PassThrough {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

/// All points of a ring. The members are sorted by id, and a point names its member by index.
///
/// A [`HashRing`] sorts the points, and owners are looked up in a table of them. The circle is cut
/// into equal arcs of a few points each, so that a lookup waits for memory at most twice. A binary
/// search over all points of a thousand members would wait at every other step.
#[derive(Clone)]
pub(super) struct Points {
    members: usize,
    /// All points, sorted by position; no two share one.
    sorted: Vec<Point>,
    /// By arc, with one more at the end: the number of points before it.
    starts: Vec<u32>,
}

impl Points {
    /// Makes the points of members with weights counted in `unit`, which must fit ([`unit_fits`]).
    pub(super) fn new(members: &[Member], unit: u32) -> Self {
        let ring = hash_ring(members, unit);
        // All of them, from the beginning of the circle.
        let mut sorted = ring.get_with_replicas(&0_u64, usize::MAX).unwrap_or_default();
        // Of two points in one place the first member's counts: the sort kept their order.
        sorted.dedup_by_key(|point| point.position);
        let arcs = sorted.len().div_ceil(POINTS_PER_ARC).next_power_of_two();
        let starts = (0..=arcs).map(|arc| {
            let before = sorted.partition_point(|point| arc_of(point.position, arcs) < arc);
            u32::try_from(before).expect("points are far fewer")
        });
        let starts = starts.collect();
        Self { members: members.len(), sorted, starts }
    }

    /// Returns the index of the member that owns `place`.
    pub(super) fn owner(&self, place: u64) -> usize {
        let at = self.at_or_after(place);
        // Beyond the last point the circle begins again.
        let point = self.sorted.get(at).unwrap_or(&self.sorted[0]);
        usize::from(point.member)
    }

    /// Returns the number of points before `place`.
    fn at_or_after(&self, place: u64) -> usize {
        let arc = arc_of(place, self.starts.len() - 1);
        let (from, to) = (self.starts[arc] as usize, self.starts[arc + 1] as usize);
        // Counted without a branch, because no processor can predict the place of a hash.
        let before = self.sorted[from..to].iter().filter(|point| point.position < place);
        from + before.count()
    }

    /// Returns the members of all points by index, from the owner of `place` on: each many times.
    pub(super) fn around(&self, place: u64) -> impl Iterator<Item = usize> {
        let (before, from) = self.sorted.split_at(self.at_or_after(place));
        from.iter().chain(before).map(|point| usize::from(point.member))
    }

    /// Returns all members by index, each once, from the owner of `place` on.
    pub(super) fn walk(&self, place: u64) -> impl Iterator<Item = usize> {
        let mut seen = [0_u64; limits::RING_MEMBERS_MAX.div_ceil(64)];
        let distinct = self.around(place).filter(move |index| {
            let (word, bit) = (&mut seen[index / 64], 1 << (index % 64));
            let new = *word & bit == 0;
            *word |= bit;
            new
        });
        // After all members were seen, the rest of the circle need not be looked at.
        distinct.take(self.members)
    }

    /// Hashes every point with its member's name, then the shared zones and hosts, then the number
    /// of copies if it is more than one.
    pub(super) fn digest(&self, members: &[Member], spread: &Spread, replicas: u8) -> u64 {
        let mut hash = Xxh3::with_seed(SEED);
        for point in &self.sorted {
            hash.update(&point.position.to_le_bytes());
            hash.update(members[usize::from(point.member)].id.as_bytes());
        }
        spread.shared().for_each(|number| hash.update(&number.to_le_bytes()));
        if replicas > 1 {
            hash.update(&[replicas]);
        }
        hash.digest()
    }
}

/// Returns the points of all members in their order.
fn hash_ring(members: &[Member], unit: u32) -> HashRing<Point, PassThrough> {
    let points = (0..).zip(members).flat_map(|(index, member)| {
        let places = places(&member.id, point_count(member.weight, unit));
        places.map(move |position| Point { position, member: index })
    });
    let mut ring = HashRing::with_hasher(PassThrough::default());
    ring.batch_add(points.collect());
    ring
}

/// Returns the power of two nearest, by ratio, to the mean weight.
pub(super) fn nearest_unit(members: &[Member]) -> u32 {
    let (sum, count) = (weight_sum(members), members.len() as u64);
    let mut unit = 1_u32;
    // mean >= unit * sqrt(2), in whole numbers: sum^2 >= 2 * (unit * count)^2.
    while u128::from(sum).pow(2) >= 2 * u128::from(u64::from(unit) * count).pow(2) {
        unit *= 2;
    }
    unit
}

/// Returns whether the mean weight is from half a unit to four. Members then have 128 to 1,024
/// points on average, enough for an even ring and few enough to build one.
pub(super) fn unit_fits(unit: u32, members: &[Member]) -> bool {
    let (sum, scaled) = (weight_sum(members), u64::from(unit) * members.len() as u64);
    unit.is_power_of_two() && scaled <= 2 * sum && sum <= 4 * scaled
}

fn weight_sum(members: &[Member]) -> u64 {
    members.iter().map(|member| u64::from(member.weight)).sum()
}

/// Returns the points of a member: in proportion to its weight, rounded, at least one.
fn point_count(weight: u32, unit: u32) -> u64 {
    let unit = u64::from(unit);
    let scaled = u64::from(weight) * u64::from(RING_POINTS_PER_MEMBER);
    ((scaled + unit / 2) / unit).max(1)
}

/// Computes the places of a member's points: the hash of its id followed by the point's number, 4
/// bytes little-endian. Each point keeps its place for any count.
fn places(id: &str, count: u64) -> impl Iterator<Item = u64> {
    let count = u32::try_from(count).expect("no member has more than 1,024 times the mean weight");
    let mut bytes = id.as_bytes().to_vec();
    (0..count).map(move |number| {
        bytes.truncate(id.len());
        bytes.extend_from_slice(&number.to_le_bytes());
        xxh3_64_with_seed(&bytes, SEED)
    })
}

/// Returns the arc of a place, of `arcs` equal ones (a power of two).
fn arc_of(place: u64, arcs: usize) -> usize {
    let arc = (u128::from(place) * arcs as u128) >> 64;
    usize::try_from(arc).expect("below the number of arcs")
}

/// Returns the place of a shard on every ring: the xxh3 of its id.
pub fn place_of(shard: ShardId) -> u64 {
    xxh3_64_with_seed(shard.as_bytes(), SEED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(weights: &[u32]) -> Vec<Member> {
        let member = |(index, &weight): (usize, &u32)| Member {
            id: format!("node-{index}"),
            weight,
            control: String::new(),
            host: String::new(),
            zone: String::new(),
        };
        weights.iter().enumerate().map(member).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_table_finds_the_owner_that_the_hash_ring_has(
            weights in prop::collection::vec(1..100_u32, 1..24),
            random in prop::collection::vec(any::<u64>(), 200),
        ) {
            let members = members(&weights);
            let unit = nearest_unit(&members);
            let (points, ring) = (Points::new(&members, unit), hash_ring(&members, unit));
            let at_points = points.sorted.iter().flat_map(|point| {
                [point.position, point.position.wrapping_sub(1), point.position.wrapping_add(1)]
            });
            for place in random.into_iter().chain(at_points).chain([0, u64::MAX]) {
                let owner = usize::from(ring.get(&place).unwrap().member);
                prop_assert_eq!(points.owner(place), owner, "at {}", place);
                prop_assert_eq!(points.walk(place).next(), Some(owner), "at {}", place);
            }
        }
    }
}
