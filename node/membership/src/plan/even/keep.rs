//! The first step: shards stay with their present owners.

use larder_base::{Placement, Ring, ring::Owners};

use super::draft::{Draft, UnplacedShard};

/// The present owners of a snapshot's shards.
pub(super) struct Present {
    replicas: usize,
    /// By lot: its owners, as indices in the present ring.
    owners: Vec<u16>,
    /// By index in the present ring: the index in the next; none if the member leaves.
    next: Vec<Option<u16>>,
}

impl Present {
    pub(super) fn new(placement: &Placement, unplaced: &[UnplacedShard], next: &Ring) -> Self {
        let ring = placement.ring();
        let replicas = ring.spread().owner_count(placement.replicas());
        let mut owners = Vec::with_capacity(unplaced.len() * replicas);
        for shard in unplaced {
            owners.extend_from_slice(&placement.owners_at(shard.place));
        }
        let index = |id: &str| {
            next.index(id).map(|index| u16::try_from(index).expect("members are at most 1,024"))
        };
        let next = ring.members().iter().map(|member| index(&member.id)).collect();
        Self { replicas, owners, next }
    }

    /// Returns a lot's owners, as indices in the present ring.
    pub(super) fn owners(&self, shard: usize) -> &[u16] {
        &self.owners[shard * self.replicas..][..self.replicas]
    }

    /// Returns the index in the next ring, unless the member leaves.
    pub(super) fn next(&self, owner: u16) -> Option<u16> {
        self.next[usize::from(owner)]
    }
}

/// Keeps present owners while copies stay apart, those first that the walk names too. Settled lots
/// keep their settled owners.
pub(super) fn keep(draft: &mut Draft<'_>, present: &Present) {
    for shard in 0..draft.unplaced.len() {
        let kept = present.owners(shard).iter().filter_map(|&owner| present.next(owner));
        let held: Owners = draft.unplaced[shard].settled.unwrap_or_else(|| kept.collect());
        for named in [true, false] {
            for &member in held.iter() {
                let first = draft.natural(shard).contains(&member);
                if first == named && draft.may_own(shard, member) {
                    draft.assign(shard, member);
                }
            }
        }
    }
}
