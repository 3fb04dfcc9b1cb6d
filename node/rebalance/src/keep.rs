//! The first step: shards stay with their present owners.

use larder_base::{Placement, Ring, ring::Owners};

use crate::board::{Board, Lot};

/// The present owners of a snapshot's shards.
pub(crate) struct Present<'a> {
    ring: &'a Ring,
    copies: usize,
    /// By lot: its owners, as indices in the present ring.
    owners: Vec<u16>,
    /// By index in the present ring: the index in the next; none if the member leaves.
    next: Vec<Option<u16>>,
}

impl<'a> Present<'a> {
    pub(crate) fn new(placement: &'a Placement, lots: &[Lot], next: &Ring) -> Self {
        let ring = placement.ring();
        let copies = ring.spread().copies(placement.replicas());
        let mut owners = Vec::with_capacity(lots.len() * copies);
        for lot in lots {
            owners.extend_from_slice(&placement.owners_at(lot.place));
        }
        let index = |id: &str| {
            next.index(id).map(|index| u16::try_from(index).expect("members are at most 1,024"))
        };
        let next = ring.members().iter().map(|member| index(&member.id)).collect();
        Self { ring, copies, owners, next }
    }

    /// Returns a lot's owners, as indices in the present ring.
    pub(crate) fn owners(&self, lot: usize) -> &[u16] {
        &self.owners[lot * self.copies..][..self.copies]
    }

    /// Returns the index in the next ring, unless the member leaves.
    pub(crate) fn next(&self, owner: u16) -> Option<u16> {
        self.next[usize::from(owner)]
    }

    /// Returns the present ring.
    pub(crate) fn ring(&self) -> &Ring {
        self.ring
    }

    /// Returns the number of owners of a lot.
    pub(crate) fn copies(&self) -> usize {
        self.copies
    }
}

/// Keeps present owners while copies stay apart, those first that the walk names too. Settled lots
/// keep their settled owners.
pub(crate) fn keep(board: &mut Board<'_>, present: Option<&Present<'_>>) {
    for lot in 0..board.lots.len() {
        let held: Owners = match (board.lots[lot].settled, present) {
            (Some(settled), _) => settled,
            (None, Some(present)) => {
                present.owners(lot).iter().filter_map(|&owner| present.next(owner)).collect()
            }
            (None, None) => continue,
        };
        for named in [true, false] {
            for &member in held.iter() {
                let first = board.natural(lot).contains(&member);
                if first == named && board.may_own(lot, member) {
                    board.assign(lot, member);
                }
            }
        }
    }
}
