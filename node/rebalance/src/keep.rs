//! The first step: what is in place stays.

use larder_base::{Placement, Ring, ring::Owners};

use crate::draft::{Draft, UnplacedShard};

/// Who owns the shards of a snapshot at present.
pub(crate) struct Present<'a> {
    ring: &'a Ring,
    replicas: usize,
    /// By shard: its owners, as members of the present ring.
    owners: Vec<u16>,
    /// By index in the present ring: the index in the next, unless the member goes.
    next: Vec<Option<u16>>,
}

impl<'a> Present<'a> {
    pub(crate) fn new(placement: &'a Placement, unplaced: &[UnplacedShard], next: &Ring) -> Self {
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
        Self { ring, replicas, owners, next }
    }

    /// Who owns a shard, as indices in the present ring.
    pub(crate) fn owners(&self, shard: usize) -> &[u16] {
        &self.owners[shard * self.replicas..][..self.replicas]
    }

    /// The index in the next ring, unless the member goes.
    pub(crate) fn next(&self, owner: u16) -> Option<u16> {
        self.next[usize::from(owner)]
    }

    /// The ring that it is a placement on.
    pub(crate) fn ring(&self) -> &Ring {
        self.ring
    }

    /// How many owners a shard has.
    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }
}

/// Lets owners keep what they hold, those first whom the walk names too, while copies keep apart;
/// and settled unplaced where they were settled.
pub(crate) fn keep(draft: &mut Draft<'_>, present: Option<&Present<'_>>) {
    for shard in 0..draft.unplaced.len() {
        let held: Owners = match (draft.unplaced[shard].settled, present) {
            (Some(settled), _) => settled,
            (None, Some(present)) => {
                present.owners(shard).iter().filter_map(|&owner| present.next(owner)).collect()
            }
            (None, None) => continue,
        };
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
