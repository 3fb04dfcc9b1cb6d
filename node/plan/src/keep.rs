//! The first step: what is in place stays.

use larder_wire::{Placement, Ring, ring::Owners};

use crate::board::Board;

/// Owners of the present placement as members of the next ring.
pub(crate) struct Present<'a> {
    placement: &'a Placement,
    /// By index in the present ring: the index in the next, unless the member goes.
    next: Vec<Option<u16>>,
}

impl<'a> Present<'a> {
    pub(crate) fn new(placement: &'a Placement, next: &Ring) -> Self {
        let index = |id: &str| {
            next.index(id).map(|index| u16::try_from(index).expect("members are at most 1,024"))
        };
        let members = placement.ring().members();
        Self { placement, next: members.iter().map(|member| index(&member.id)).collect() }
    }

    /// Who owns what lies at `place`: the index in the present ring, and in the next.
    pub(crate) fn owners(&self, place: u64) -> impl Iterator<Item = (u16, Option<u16>)> + '_ {
        let owners = self.placement.owners_at(place);
        (0..owners.len()).map(move |at| (owners[at], self.next[usize::from(owners[at])]))
    }

    /// The ring that it is a placement on.
    pub(crate) fn ring(&self) -> &Ring {
        self.placement.ring()
    }
}

/// Lets owners keep what they hold, those first whom the walk names too, while copies keep apart; and
/// settled lots where they were settled.
pub(crate) fn keep(board: &mut Board<'_>, present: Option<&Present<'_>>) {
    for lot in 0..board.lots.len() {
        let held: Owners = match (board.lots[lot].settled, present) {
            (Some(settled), _) => settled,
            (None, Some(present)) => {
                present.owners(board.lots[lot].place).filter_map(|(_, next)| next).collect()
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
