//! The board that a plan is computed on: the owners of each shard so far, and each member's load.

use std::collections::BTreeSet;

use larder_base::{Ring, ShardId, ring::Owners};

use super::{SKEW_PERCENT_MAX, shares::shares};

/// In place of an owner that is still to be found.
const VACANT: u16 = u16::MAX;

/// A shard to be placed.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnplacedShard {
    pub(super) place: u64,
    pub(super) id: ShardId,
    pub(super) bytes: u64,
    /// The owners that another snapshot settled. They stay.
    pub(super) settled: Option<Owners>,
}

/// The shards of a snapshot, in the order of their places, and their owners among a ring's members.
pub(super) struct Draft<'a> {
    pub(super) ring: &'a Ring,
    pub(super) unplaced: &'a [UnplacedShard],
    pub(super) replicas: usize,
    pub(super) loads: Loads,
    /// By lot: the owners by the ring's walk.
    natural: Vec<u16>,
    /// By lot: its owners so far. Vacant places come last.
    owners: Vec<u16>,
}

impl<'a> Draft<'a> {
    /// Creates a board without owners.
    pub(super) fn new(ring: &'a Ring, unplaced: &'a [UnplacedShard]) -> Self {
        let replicas = ring.spread().owner_count(ring.replicas());
        let natural = unplaced.iter().flat_map(|shard| {
            let owners = ring.owners_at(shard.place, replicas);
            (0..replicas).map(move |copy| owners[copy])
        });
        let natural = natural.collect();
        let bytes = unplaced.iter().map(|shard| shard.bytes).sum();
        let loads = Loads::new(shares(ring, bytes, replicas));
        Self {
            ring,
            unplaced,
            replicas,
            loads,
            natural,
            owners: vec![VACANT; unplaced.len() * replicas],
        }
    }

    /// Returns a lot's owners by the walk.
    pub(super) fn natural(&self, shard: usize) -> &[u16] {
        &self.natural[shard * self.replicas..][..self.replicas]
    }

    /// Returns a lot's owners so far.
    pub(super) fn owners(&self, shard: usize) -> &[u16] {
        let slots = &self.owners[shard * self.replicas..][..self.replicas];
        let count = slots.iter().position(|&owner| owner == VACANT).unwrap_or(self.replicas);
        &slots[..count]
    }

    /// Whether a lot still lacks owners.
    pub(super) fn is_vacant(&self, shard: usize) -> bool {
        self.owners[(shard + 1) * self.replicas - 1] == VACANT
    }

    /// Whether a member may own a lot beside the owners found so far.
    pub(super) fn may_own(&self, shard: usize, member: u16) -> bool {
        self.ring.spread().may_join(self.owners(shard), member, self.replicas)
    }

    /// Gives a shard one more owner.
    pub(super) fn assign(&mut self, shard: usize, member: u16) {
        let at = shard * self.replicas + self.owners(shard).len();
        debug_assert!(self.may_own(shard, member));
        self.owners[at] = member;
        self.loads.add(member, self.unplaced[shard].bytes);
    }

    /// Whether `to` may own a lot in place of `from`, one of its owners.
    pub(super) fn may_replace(&self, shard: usize, from: u16, to: u16) -> bool {
        if self.unplaced[shard].settled.is_some() {
            return false;
        }
        let others: Owners =
            self.owners(shard).iter().copied().filter(|&owner| owner != from).collect();
        self.ring.spread().may_join(&others, to, self.replicas)
    }

    /// Hands a shard from one owner to another.
    pub(super) fn replace(&mut self, shard: usize, from: u16, to: u16) {
        debug_assert!(self.may_replace(shard, from, to));
        let slots = &mut self.owners[shard * self.replicas..][..self.replicas];
        let slot = slots.iter_mut().find(|owner| **owner == from).expect("one of its owners");
        *slot = to;
        let bytes = self.unplaced[shard].bytes;
        self.loads.remove(from, bytes);
        self.loads.add(to, bytes);
    }

    /// Returns the lots that each of these members owns.
    pub(super) fn lots_of(&self, wanted: impl Fn(u16) -> bool) -> Vec<Vec<u32>> {
        let mut unplaced = vec![Vec::new(); self.ring.members().len()];
        for (slot, &owner) in self.owners.iter().enumerate() {
            if owner != VACANT && wanted(owner) {
                let shard = u32::try_from(slot / self.replicas).expect("at most 2^24 shards");
                unplaced[usize::from(owner)].push(shard);
            }
        }
        unplaced
    }

    /// Returns the owners of a lot in the order of the plan: those of the walk first, in its order.
    pub(super) fn in_order(&self, shard: usize) -> Owners {
        let owners = self.owners(shard);
        let natural = self.natural(shard).iter().filter(|member| owners.contains(member));
        let others = owners.iter().filter(|member| !self.natural(shard).contains(member));
        natural.chain(others).copied().collect()
    }
}

/// The bytes that each member holds, and the members from the emptiest to the fullest.
pub(super) struct Loads {
    bytes: Vec<u64>,
    shares: Vec<u64>,
    /// Pressure and index of every member, once [`Loads::rank`] was called.
    ranking: BTreeSet<(u64, u16)>,
}

impl Loads {
    pub(super) fn new(shares: Vec<u64>) -> Self {
        Self { bytes: vec![0; shares.len()], shares, ranking: BTreeSet::new() }
    }

    /// Begins to keep the members in order. Adding costs less before that.
    pub(super) fn rank(&mut self) {
        let members = 0..u16::try_from(self.bytes.len()).expect("at most 1,024");
        self.ranking = members.map(|member| (self.pressure(member, 0), member)).collect();
    }

    /// Returns the members from the emptiest on.
    pub(super) fn emptiest(&self) -> impl Iterator<Item = u16> {
        debug_assert!(!self.ranking.is_empty());
        self.ranking.iter().map(|&(_, member)| member)
    }

    /// Returns a member's bytes, plus `more`, in proportion to its share: in fractions of 2^24.
    pub(super) fn pressure(&self, member: u16, more: u64) -> u64 {
        let held = u128::from(self.bytes(member)) + u128::from(more);
        let share = u128::from(self.share(member).max(1));
        u64::try_from((held << 24) / share).unwrap_or(u64::MAX)
    }

    pub(super) fn bytes(&self, member: u16) -> u64 {
        self.bytes[usize::from(member)]
    }

    pub(super) fn share(&self, member: u16) -> u64 {
        self.shares[usize::from(member)]
    }

    /// Returns the most bytes that a member may hold.
    pub(super) fn cap(&self, member: u16) -> u64 {
        percent(self.share(member), SKEW_PERCENT_MAX)
    }

    /// Returns the bytes that a member holds above that.
    pub(super) fn excess(&self, member: u16) -> u64 {
        self.bytes(member).saturating_sub(self.cap(member))
    }

    pub(super) fn has_room(&self, member: u16, bytes: u64) -> bool {
        self.bytes(member).saturating_add(bytes) <= self.cap(member)
    }

    fn add(&mut self, member: u16, bytes: u64) {
        self.set(member, self.bytes(member) + bytes);
    }

    fn remove(&mut self, member: u16, bytes: u64) {
        self.set(member, self.bytes(member) - bytes);
    }

    fn set(&mut self, member: u16, bytes: u64) {
        let ranked = self.ranking.remove(&(self.pressure(member, 0), member));
        self.bytes[usize::from(member)] = bytes;
        if ranked {
            self.ranking.insert((self.pressure(member, 0), member));
        }
    }
}

/// Returns this percentage of a number of bytes, rounded down.
pub(super) fn percent(bytes: u64, percent: u64) -> u64 {
    let part = u128::from(bytes) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(u64::MAX)
}
