//! The second step: finds owners for the copies that lack one.

use std::cmp::Reverse;

use crate::board::{Board, percent};

/// The walk fills no member above this, in percent of its share. A copy without a holder has to
/// move anyway, so placing it more evenly than required moves nothing more. It costs an exception
/// for another hundredth of the shards, and saves moves at the next change.
const FILL_PERCENT: u64 = 105;

/// Finds all missing owners: first those of the walk that have room, then the emptiest members. The
/// largest shards come first.
pub(crate) fn fill(board: &mut Board<'_>) {
    let mut left: Vec<u32> = Vec::new();
    for lot in 0..board.lots.len() {
        if board.is_vacant(lot) {
            fill_by_walk(board, lot);
        }
        if board.is_vacant(lot) {
            left.push(u32::try_from(lot).expect("at most 2^24 shards"));
        }
    }
    left.sort_by_key(|&lot| Reverse(board.lots[lot as usize].bytes));
    board.loads.rank();
    for lot in left {
        while board.is_vacant(lot as usize) {
            fill_emptiest(board, lot as usize);
        }
    }
}

fn fill_by_walk(board: &mut Board<'_>, lot: usize) {
    for at in 0..board.copies {
        let member = board.natural(lot)[at];
        let full = percent(board.loads.share(member), FILL_PERCENT);
        let room = board.loads.bytes(member) + board.lots[lot].bytes <= full;
        if room && board.may_own(lot, member) {
            board.assign(lot, member);
        }
    }
}

/// Gives the lot to the emptiest member with room, else to the emptiest.
fn fill_emptiest(board: &mut Board<'_>, lot: usize) {
    let bytes = board.lots[lot].bytes;
    let mut able = board.loads.emptiest().filter(|&member| board.may_own(lot, member)).peekable();
    let emptiest = able.peek().copied().expect("owners that keep apart can always be completed");
    let member = able.find(|&member| board.loads.has_room(member, bytes)).unwrap_or(emptiest);
    drop(able);
    board.assign(lot, member);
}
