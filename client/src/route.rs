//! Which node is asked for which row: pure arithmetic on the ring and on who is up.
//!
//! The owner of a shard is asked; where it is down or has failed this read, the next member on the
//! shard's walk, which fills in its place. Where none is left the origin is asked.
//!
//! Thread rule: shared by all threads that read; owners are remembered in atomics.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering::Relaxed},
};

use larder_dataset::ShardId;
use larder_wire::Ring;

/// In place of a member's index: not looked up yet.
const UNKNOWN: u16 = u16::MAX;

/// The ring with the owners of one snapshot's shards, each looked up once.
pub(crate) struct Router {
    ring: Arc<Ring>,
    /// Index of the owner among the ring's members, by shard.
    owners: Box<[AtomicU16]>,
}

impl Router {
    pub(crate) fn new(ring: Arc<Ring>, shards: u32) -> Self {
        let owners = (0..shards).map(|_| AtomicU16::new(UNKNOWN)).collect();
        Self { ring, owners }
    }

    /// The version of the ring.
    pub(crate) fn ring_version(&self) -> u64 {
        self.ring.version()
    }

    /// The member to ask for a shard, as an index into the ring's members: the first on the walk that
    /// is `usable`. `None` when no member is.
    pub(crate) fn pick(
        &self,
        shard: u32,
        id: impl Fn() -> ShardId,
        usable: &[bool],
    ) -> Option<usize> {
        let owner = usize::from(self.owner(shard, &id));
        if usable[owner] {
            return Some(owner);
        }
        let mut walk = self.ring.walk(id()).map(|member| self.index(&member.id));
        walk.find(|&index| usable[usize::from(index)]).map(usize::from)
    }

    fn owner(&self, shard: u32, id: impl Fn() -> ShardId) -> u16 {
        let known = &self.owners[shard as usize];
        match known.load(Relaxed) {
            UNKNOWN => {
                let owner = self.index(&self.ring.owner(id()).id);
                known.store(owner, Relaxed);
                owner
            }
            owner => owner,
        }
    }

    /// The ring keeps its members sorted by id.
    fn index(&self, id: &str) -> u16 {
        let members = self.ring.members();
        let index = members.binary_search_by(|member| member.id.as_str().cmp(id));
        u16::try_from(index.expect("a ring names its own members"))
            .expect("a ring has at most 1,024 members")
    }
}

#[cfg(test)]
mod tests {
    use larder_wire::Member;

    use super::*;

    fn router(members: usize, shards: u32) -> Router {
        let member = |index: usize| Member {
            id: format!("node-{index:02}"),
            weight: 1,
            control: format!("http://127.0.0.1:{}", 7000 + index),
            host: "here".to_owned(),
            zone: String::new(),
        };
        let ring = Ring::new(1, (0..members).map(member).collect()).unwrap();
        Router::new(Arc::new(ring), shards)
    }

    fn id(shard: u32) -> ShardId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&shard.wrapping_mul(0x9e37_79b9).to_le_bytes());
        bytes[4..8].copy_from_slice(&shard.to_le_bytes());
        ShardId::from_bytes(bytes)
    }

    #[test]
    fn a_shard_is_asked_of_its_owner_while_that_is_up() {
        let router = router(5, 200);
        let up = [true; 5];
        for shard in 0..200 {
            let picked = router.pick(shard, || id(shard), &up).unwrap();
            assert_eq!(router.ring.members()[picked].id, router.ring.owner(id(shard)).id);
            assert_eq!(router.pick(shard, || id(shard), &up), Some(picked));
        }
    }

    #[test]
    fn the_shards_of_a_member_that_is_down_go_to_the_next_on_their_walks_and_come_back() {
        let router = router(5, 500);
        let all = [true; 5];
        let mut but_two = all;
        but_two[2] = false;
        let mut heirs = [0; 5];
        for shard in 0..500 {
            let owner = router.pick(shard, || id(shard), &all).unwrap();
            let picked = router.pick(shard, || id(shard), &but_two).unwrap();
            if owner == 2 {
                let second = router.ring.walk(id(shard)).nth(1).unwrap();
                assert_eq!(router.ring.members()[picked].id, second.id);
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
    fn the_last_member_that_is_up_is_asked_for_everything_and_then_nobody() {
        let router = router(4, 100);
        for shard in 0..100 {
            let only = [false, false, true, false];
            assert_eq!(router.pick(shard, || id(shard), &only), Some(2));
            assert_eq!(router.pick(shard, || id(shard), &[false; 4]), None);
        }
    }
}
