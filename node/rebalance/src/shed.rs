//! The fourth step: a member that holds too much gives shards away.

use std::cmp::Reverse;

use crate::board::Board;

/// Relieves every member above the tolerance, the fullest first. If no member has room for a shard,
/// as when shards are few and large, it goes to a member that ends up less full than its owner.
pub(crate) fn shed(board: &mut Board<'_>) {
    let members = u16::try_from(board.ring.members().len()).expect("at most 1,024");
    let mut full: Vec<u16> = (0..members).filter(|&owner| board.loads.excess(owner) > 0).collect();
    full.sort_by_key(|&owner| (Reverse(board.loads.pressure(owner, 0)), owner));
    let mut is_full = vec![false; usize::from(members)];
    full.iter().for_each(|&owner| is_full[usize::from(owner)] = true);
    let mut lots = board.lots_of(|owner| is_full[usize::from(owner)]);
    for &owner in &full {
        relieve(board, owner, &mut lots[usize::from(owner)]);
    }
    for owner in full {
        ease(board, owner, &lots[usize::from(owner)]);
    }
}

/// Gives lots away to members with room: all lots that fit into the excess, then one that covers
/// the rest of it.
fn relieve(board: &mut Board<'_>, owner: u16, lots: &mut [u32]) {
    lots.sort_by_cached_key(|&lot| {
        let lot = lot as usize;
        (heals(board, lot, owner), Reverse(board.lots[lot].bytes), lot)
    });
    for &lot in lots.iter() {
        if board.lots[lot as usize].bytes <= board.loads.excess(owner) {
            give(board, lot as usize, owner);
        }
    }
    if board.loads.excess(owner) == 0 {
        return;
    }
    // A stable sort: of equal sizes, lots that heal come first.
    lots.sort_by_key(|&lot| board.lots[lot as usize].bytes);
    for &lot in lots.iter() {
        let covers = board.lots[lot as usize].bytes >= board.loads.excess(owner);
        if covers && board.loads.excess(owner) > 0 && board.owners(lot as usize).contains(&owner) {
            give(board, lot as usize, owner);
        }
    }
}

/// Returns the effect of giving a lot away on the number of exceptions: 0 may make one fewer, 1
/// leaves them, 2 makes one more.
fn heals(board: &Board<'_>, lot: usize, owner: u16) -> u8 {
    let bytes = board.lots[lot].bytes;
    if board.natural(lot).contains(&owner) {
        2
    } else {
        let goes_home = |&member: &u16| board.loads.has_room(member, bytes);
        u8::from(!board.natural(lot).iter().any(goes_home))
    }
}

/// Gives a lot to a member of its walk that has room, else to the emptiest that has room, if any.
fn give(board: &mut Board<'_>, lot: usize, owner: u16) {
    let bytes = board.lots[lot].bytes;
    let takes = |&member: &u16| {
        board.loads.has_room(member, bytes) && board.may_replace(lot, owner, member)
    };
    let natural = board.natural(lot).iter().copied().find(takes);
    // If the emptiest member has no room, no fuller one has, unless lots are large. So looking at
    // some is enough.
    let emptiest = || board.loads.emptiest().take(LOOKED_AT).find(takes);
    if let Some(member) = natural.or_else(emptiest) {
        board.replace(lot, owner, member);
    }
}

/// Members to try, from the emptiest on.
const LOOKED_AT: usize = 64;

/// Gives lots to the emptiest members without room, as long as that makes the fuller of the two
/// less full.
fn ease(board: &mut Board<'_>, owner: u16, lots: &[u32]) {
    for &lot in lots.iter().rev() {
        let lot = lot as usize;
        if board.loads.excess(owner) == 0 {
            return;
        }
        if !board.owners(lot).contains(&owner) {
            continue;
        }
        let bytes = board.lots[lot].bytes;
        let pressure = board.loads.pressure(owner, 0);
        let relieved = |&member: &u16| {
            board.loads.pressure(member, bytes) < pressure && board.may_replace(lot, owner, member)
        };
        let member = board.loads.emptiest().take(LOOKED_AT).find(relieved);
        if let Some(member) = member {
            board.replace(lot, owner, member);
        }
    }
}
