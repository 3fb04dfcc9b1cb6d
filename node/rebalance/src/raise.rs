//! The third step: a new or heavier member takes shards up to its share.

use std::{cmp::Reverse, collections::BinaryHeap};

use larder_base::Ring;

use crate::{SKEW_PERCENT_MAX, board::Board};

/// Raises the members of the next ring that grew and hold less than their share.
pub(crate) fn raise(board: &mut Board<'_>, present: &Ring) {
    let grown = grown(board, present);
    if grown.is_empty() {
        return;
    }
    let wanted = wanted(board, &grown);
    for too_much in [true, false] {
        wanted.iter().for_each(|&(lot, member)| take_wanted(board, lot as usize, member, too_much));
    }
    take_from_fullest(board, grown);
}

/// Returns the new or heavier members that hold less than their share, by more than the tolerance.
fn grown(board: &Board<'_>, present: &Ring) -> Vec<u16> {
    let heavier = |member: &larder_base::Member| {
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

/// Returns the lots that the walk gives to one of these members, and that another member owns.
fn wanted(board: &Board<'_>, grown: &[u16]) -> Vec<(u32, u16)> {
    let mut wanted = Vec::new();
    let mut is_grown = vec![false; board.ring.members().len()];
    grown.iter().for_each(|&member| is_grown[usize::from(member)] = true);
    for lot in 0..board.lots.len() {
        for &member in board.natural(lot) {
            if is_grown[usize::from(member)] && !board.owners(lot).contains(&member) {
                wanted.push((u32::try_from(lot).expect("at most 2^24 shards"), member));
            }
        }
    }
    wanted
}

/// Takes a lot that the walk gives: from owners above the tolerance, or above their share.
fn take_wanted(board: &mut Board<'_>, lot: usize, member: u16, too_much: bool) {
    if board.owners(lot).contains(&member) || !fits(board, member, board.lots[lot].bytes) {
        return;
    }
    let gives = |&owner: &u16| {
        let loads = &board.loads;
        let full = if too_much { loads.cap(owner) } else { loads.share(owner) };
        loads.bytes(owner) > full && board.may_replace(lot, owner, member)
    };
    // Prefer an owner that the walk does not name.
    let stands_in = |owner: u16| !board.natural(lot).contains(&owner);
    let givers = board.owners(lot).iter().copied().filter(gives);
    let giver = givers
        .max_by_key(|&owner| (stands_in(owner), board.loads.pressure(owner, 0), Reverse(owner)));
    if let Some(giver) = giver {
        board.replace(lot, giver, member);
    }
}

/// A lot that its owner may give. The greater is taken first: a lot that the walk does not give to
/// the owner, then the larger lot.
type Offer = (bool, u64, Reverse<u32>);

/// Takes from the fullest member, one lot at a time, while a member is above its share.
fn take_from_fullest(board: &mut Board<'_>, mut grown: Vec<u16>) {
    let smallest = board.lots.iter().map(|lot| lot.bytes).min().unwrap_or(0);
    let above = |board: &Board<'_>, owner| board.loads.bytes(owner) > board.loads.share(owner);
    let mut offers = offers(board, |owner| !grown.contains(&owner) && above(board, owner));
    let givers = (0_u16..).zip(&offers).filter(|(_, offers)| !offers.is_empty());
    let mut fullest: BinaryHeap<(u64, Reverse<u16>)> =
        givers.map(|(owner, _)| (board.loads.pressure(owner, 0), Reverse(owner))).collect();
    while let Some((_, Reverse(owner))) = fullest.pop() {
        grown.retain(|&member| fits(board, member, smallest));
        if grown.is_empty() || !above(board, owner) {
            break;
        }
        let offers = &mut offers[usize::from(owner)];
        let taken = std::iter::from_fn(|| offers.pop()).find_map(|(_, _, Reverse(lot))| {
            taker(board, &grown, lot as usize, owner).map(|member| (lot as usize, member))
        });
        if let Some((lot, member)) = taken {
            board.replace(lot, owner, member);
            fullest.push((board.loads.pressure(owner, 0), Reverse(owner)));
        }
    }
}

/// Returns the lots that each of these owners may give.
fn offers(board: &Board<'_>, gives: impl Fn(u16) -> bool) -> Vec<BinaryHeap<Offer>> {
    let offers = (0_u16..).zip(board.lots_of(gives)).map(|(owner, lots)| {
        let offer = |lot: u32| {
            let stands_in = !board.natural(lot as usize).contains(&owner);
            (stands_in, board.lots[lot as usize].bytes, Reverse(lot))
        };
        lots.into_iter().map(offer).collect()
    });
    offers.collect()
}

/// Returns the emptiest of these members that may take a lot from its owner.
fn taker(board: &Board<'_>, grown: &[u16], lot: usize, owner: u16) -> Option<u16> {
    let bytes = board.lots[lot].bytes;
    let takes = |&member: &u16| fits(board, member, bytes) && board.may_replace(lot, owner, member);
    grown
        .iter()
        .copied()
        .filter(takes)
        .min_by_key(|&member| (board.loads.pressure(member, 0), member))
}

/// Whether this many more bytes leave the member at or below its share.
fn fits(board: &Board<'_>, member: u16, bytes: u64) -> bool {
    board.loads.bytes(member) + bytes <= board.loads.share(member)
}
