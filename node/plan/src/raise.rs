//! The third step: a member that is new, or was given more weight, takes up to its share.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use larder_wire::Ring;

use crate::{SKEW_PERCENT_MAX, board::Board};

/// Fills those of the next ring that grew and hold too little for it.
pub(crate) fn raise(board: &mut Board<'_>, present: &Ring) {
    let grown = grown(board, present);
    if grown.is_empty() {
        return;
    }
    let mut wanted = wanted(board, &grown);
    for &member in &grown {
        let lots = wanted.remove(&member).unwrap_or_default();
        take_wanted(board, member, &lots);
        take_from_fullest(board, member);
    }
}

/// The members that are new or heavier and hold less than their share, by more than is tolerated above
/// it.
fn grown(board: &Board<'_>, present: &Ring) -> Vec<u16> {
    let heavier = |member: &larder_wire::Member| {
        present.member(&member.id).is_none_or(|before| member.weight > before.weight)
    };
    let members = (0_u16..).zip(board.ring.members());
    let grown = members.filter(|(_, member)| heavier(member)).map(|(index, _)| index);
    let lacks = |&index: &u16| {
        let (held, share) = (board.loads.bytes(index), board.loads.share(index));
        u128::from(held) * u128::from(SKEW_PERCENT_MAX) < u128::from(share) * 100
    };
    grown.filter(lacks).collect()
}

/// The lots that the walk gives to each of these members, and that another owns.
fn wanted(board: &Board<'_>, grown: &[u16]) -> HashMap<u16, Vec<u32>> {
    let mut wanted: HashMap<u16, Vec<u32>> = HashMap::new();
    let mut is_grown = vec![false; board.ring.members().len()];
    grown.iter().for_each(|&member| is_grown[usize::from(member)] = true);
    for lot in 0..board.lots.len() {
        for &member in board.natural(lot) {
            if is_grown[usize::from(member)] && !board.owners(lot).contains(&member) {
                let lot = u32::try_from(lot).expect("at most 2^24 shards");
                wanted.entry(member).or_default().push(lot);
            }
        }
    }
    wanted
}

/// Takes what the walk gives: first from those that hold too much, then from those above their share.
fn take_wanted(board: &mut Board<'_>, member: u16, lots: &[u32]) {
    for too_much in [true, false] {
        for &lot in lots {
            let lot = lot as usize;
            if board.owners(lot).contains(&member) || !fits(board, member, lot) {
                continue;
            }
            let gives = |&owner: &u16| {
                let loads = &board.loads;
                let full = if too_much { loads.cap(owner) } else { loads.share(owner) };
                loads.bytes(owner) > full && board.may_replace(lot, owner, member)
            };
            let givers = board.owners(lot).iter().copied().filter(gives);
            // Rather from an owner that the walk does not name.
            let stands_in = |owner: u16| !board.natural(lot).contains(&owner);
            let giver = givers.max_by_key(|&owner| {
                (stands_in(owner), board.loads.pressure(owner, 0), Reverse(owner))
            });
            if let Some(giver) = giver {
                board.replace(lot, giver, member);
            }
        }
    }
}

/// Takes from whoever is fullest, one lot at a time, while there is somebody above its share: of each
/// those first that the walk does not give it, then the largest.
fn take_from_fullest(board: &mut Board<'_>, member: u16) {
    let above = |board: &Board<'_>, other| board.loads.bytes(other) > board.loads.share(other);
    let mut lots = board.lots_of(|other| other != member && above(board, other));
    for (owner, lots) in (0_u16..).zip(&mut lots) {
        lots.sort_by_key(|&lot| {
            let lot = lot as usize;
            (!board.natural(lot).contains(&owner), board.lots[lot].bytes, Reverse(lot))
        });
    }
    let others = (0_u16..).zip(&lots).filter(|(_, lots)| !lots.is_empty());
    let mut fullest: BinaryHeap<(u64, Reverse<u16>)> =
        others.map(|(owner, _)| (board.loads.pressure(owner, 0), Reverse(owner))).collect();
    while let Some((_, Reverse(owner))) = fullest.pop() {
        if !above(board, owner) {
            break;
        }
        let takes = |&lot: &u32| {
            fits(board, member, lot as usize) && board.may_replace(lot as usize, owner, member)
        };
        let lots = &mut lots[usize::from(owner)];
        let next = std::iter::from_fn(|| lots.pop()).find(takes);
        if let Some(lot) = next {
            board.replace(lot as usize, owner, member);
            fullest.push((board.loads.pressure(owner, 0), Reverse(owner)));
        }
    }
}

/// Whether a lot leaves the member at or below its share.
fn fits(board: &Board<'_>, member: u16, lot: usize) -> bool {
    board.loads.bytes(member) + board.lots[lot].bytes <= board.loads.share(member)
}
