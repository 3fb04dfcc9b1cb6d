//! Chooses the node to ask for a row. Pure arithmetic on the placement and on the members that are
//! up.
//!
//! Rows are asked of the primary owner. It fills shards that no node has, so that several owners do
//! not each read them from the origin. If it is down or has failed this read, the next member on
//! the shard's walk is asked: first the other owners, then substitutes. If no member is left, the
//! origin is asked.
//!
//! Maps are asked of any owner on this host, which shares the shards that it has.
//!
//! Thread rule: all reading threads share it. Known owners are kept in atomics.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use larder_base::{Placement, ShardId};

/// In place of owners: not looked up yet.
const UNKNOWN: u32 = u32::MAX;

/// In place of a member's index: no member.
const NOBODY: u16 = u16::MAX;

/// The placement of one snapshot's shards, with the looked-up owners of each.
pub(crate) struct Router {
    placement: Placement,
    /// By member of the ring: whether its memory can be mapped.
    near: Box<[bool]>,
    /// By shard: an [`Asked`], packed into one number.
    asked: Box<[AtomicU32]>,
}

/// The owners of a shard to ask, as indices into the ring's members.
#[derive(Clone, Copy)]
struct Asked {
    /// The owner to ask for rows.
    first: u16,
    /// The owner to ask for maps, or `u16::MAX`.
    near: u16,
}

impl Router {
    /// Creates a router for `shards` shards. `near` gives for each member of the ring whether its
    /// memory can be mapped.
    pub(crate) fn new(placement: Placement, near: Box<[bool]>, shards: u32) -> Self {
        debug_assert_eq!(near.len(), placement.ring().members().len());
        let asked = (0..shards).map(|_| AtomicU32::new(UNKNOWN)).collect();
        Self { placement, near, asked }
    }

    pub(crate) fn ring_version(&self) -> u64 {
        self.placement.ring().version()
    }

    /// The member to ask for rows of a shard, as an index into the ring's members: the primary
    /// owner, or the first `usable` member on the walk. `None` if no member is usable.
    pub(crate) fn pick(
        &self,
        shard: u32,
        id: impl Fn() -> ShardId,
        usable: &[bool],
    ) -> Option<usize> {
        let first = usize::from(self.asked(shard, &id).first);
        if usable[first] {
            return Some(first);
        }
        let ring = self.placement.ring();
        let index = |id: &str| ring.index(id).expect("a ring names its own members");
        let mut walk = self.placement.walk(id()).map(|member| index(&member.id));
        walk.find(|&index| usable[index])
    }

    /// Whether some member's memory can be mapped.
    pub(crate) fn has_lenders(&self) -> bool {
        self.near.contains(&true)
    }

    /// The owner of a shard with mappable memory, as an index into the ring's members.
    pub(crate) fn mappable_owner(&self, shard: u32, id: impl Fn() -> ShardId) -> Option<usize> {
        let near = self.asked(shard, id).near;
        (near != NOBODY).then_some(usize::from(near))
    }

    fn asked(&self, shard: u32, id: impl Fn() -> ShardId) -> Asked {
        let known = &self.asked[shard as usize];
        match known.load(Relaxed) {
            UNKNOWN => {
                let owners = self.placement.owners(id());
                let near = owners.iter().find(|&&owner| self.near[usize::from(owner)]);
                let asked = Asked { first: owners[0], near: near.copied().unwrap_or(NOBODY) };
                known.store(asked.packed(), Relaxed);
                asked
            }
            packed => Asked::unpacked(packed),
        }
    }
}

impl Asked {
    /// Never equals [`UNKNOWN`], because the first owner is the index of a member.
    fn packed(self) -> u32 {
        u32::from(self.first) << 16 | u32::from(self.near)
    }

    fn unpacked(packed: u32) -> Self {
        let [near, first] = [packed, packed >> 16].map(|half| (half & 0xffff) as u16);
        Self { first, near }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_base::SnapshotId;
    use larder_base::{Member, Ring, placement::ExceptionsBuilder, ring::place_of};

    use super::*;

    fn ring(members: usize) -> Arc<Ring> {
        let member = |index: usize| Member {
            id: format!("node-{index:02}"),
            weight: 1,
            control: format!("http://127.0.0.1:{}", 7000 + index),
            host: "here".to_owned(),
            zone: String::new(),
        };
        Arc::new(Ring::new(1, (0..members).map(member).collect()).unwrap())
    }

    fn router(members: usize, shards: u32) -> Router {
        let near = vec![false; members].into();
        Router::new(Placement::of_ring(ring(members)), near, shards)
    }

    fn id(shard: u32) -> ShardId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&shard.wrapping_mul(0x9e37_79b9).to_le_bytes());
        bytes[4..8].copy_from_slice(&shard.to_le_bytes());
        ShardId::from_bytes(bytes)
    }

    #[test]
    fn picks_the_owner_while_it_is_up() {
        let router = router(5, 200);
        let up = [true; 5];
        for shard in 0..200 {
            let picked = router.pick(shard, || id(shard), &up).unwrap();
            let ring = router.placement.ring();
            assert_eq!(ring.members()[picked].id, ring.owner(id(shard)).id);
            assert_eq!(router.pick(shard, || id(shard), &up), Some(picked));
        }
    }

    #[test]
    fn picks_next_member_on_the_walk_while_the_owner_is_down() {
        let router = router(5, 500);
        let all = [true; 5];
        let mut but_two = all;
        but_two[2] = false;
        let mut heirs = [0; 5];
        for shard in 0..500 {
            let owner = router.pick(shard, || id(shard), &all).unwrap();
            let picked = router.pick(shard, || id(shard), &but_two).unwrap();
            if owner == 2 {
                let second = router.placement.walk(id(shard)).nth(1).unwrap();
                assert_eq!(picked, router.placement.ring().index(&second.id).unwrap());
                heirs[picked] += 1;
            } else {
                assert_eq!(picked, owner);
            }
            assert_eq!(router.pick(shard, || id(shard), &all), Some(owner));
        }
        assert_eq!(heirs[2], 0);
        assert!(heirs.iter().filter(|&&shards| shards > 0).count() >= 3, "{heirs:?}");
    }

    #[test]
    fn picks_the_only_member_up_and_none_when_all_are_down() {
        let router = router(4, 100);
        for shard in 0..100 {
            let only = [false, false, true, false];
            assert_eq!(router.pick(shard, || id(shard), &only), Some(2));
            assert_eq!(router.pick(shard, || id(shard), &[false; 4]), None);
        }
    }

    #[test]
    fn picks_owner_of_an_exception_and_then_follows_the_walk() {
        let ring = ring(5);
        let mut builder = ExceptionsBuilder::new(&ring, SnapshotId::from_bytes([3; 32]), 1);
        for shard in (0..200).step_by(2) {
            builder.except(place_of(id(shard)), [4].into_iter().collect());
        }
        let placement = Placement::new(Arc::clone(&ring), builder.build()).unwrap();
        let router = Router::new(placement, vec![false; 5].into(), 200);
        let (all, but_four) = ([true; 5], [true, true, true, true, false]);
        for shard in 0..200 {
            let owner = ring.index(&ring.owner(id(shard)).id).unwrap();
            let asked = if shard % 2 == 0 { 4 } else { owner };
            assert_eq!(router.pick(shard, || id(shard), &all), Some(asked));
            let mut walk = ring.walk(id(shard)).map(|member| ring.index(&member.id).unwrap());
            let instead = walk.find(|&member| member != 4);
            assert_eq!(router.pick(shard, || id(shard), &but_four), instead);
        }
    }

    #[test]
    fn picks_primary_owner_for_rows_and_local_owner_for_mapping() {
        let copied = (*ring(6)).clone().with_replicas(3).unwrap();
        let placement = Placement::of_ring(Arc::new(copied));
        let near = [false, false, true, false, false, true];
        let router = Router::new(placement.clone(), near.into(), 300);
        let mut further = 0;
        for shard in 0..300 {
            let owners: Vec<usize> =
                placement.owners(id(shard)).iter().map(|&owner| owner.into()).collect();
            assert_eq!(router.pick(shard, || id(shard), &[true; 6]), Some(owners[0]));
            let mappable_owner = owners.iter().copied().find(|&owner| near[owner]);
            assert_eq!(router.mappable_owner(shard, || id(shard)), mappable_owner);
            further += usize::from(
                mappable_owner.is_some_and(|mappable_owner| mappable_owner != owners[0]),
            );
            let mut others = [true; 6];
            others[owners[0]] = false;
            let next = router.pick(shard, || id(shard), &others);
            assert_eq!(next, Some(owners[1]), "another owner is next");
        }
        assert!(further > 50, "{further}");
    }
}
