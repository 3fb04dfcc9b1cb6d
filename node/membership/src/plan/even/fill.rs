//! The second step: finds owners for the copies that lack one.

use std::cmp::Reverse;

use super::draft::{Draft, percent};

/// The walk fills no member above this, in percent of its share. A copy without a holder has to
/// move anyway, so placing it more evenly than required moves nothing more. It costs an exception
/// for another hundredth of the shards, and saves moves at the next change.
const FILL_PERCENT: u64 = 105;

/// Finds all missing owners: first those of the walk that have room, then the emptiest members. The
/// largest shards come first.
pub(super) fn fill(draft: &mut Draft<'_>) {
    let mut left: Vec<u32> = Vec::new();
    for shard in 0..draft.unplaced.len() {
        if draft.is_vacant(shard) {
            fill_by_walk(draft, shard);
        }
        if draft.is_vacant(shard) {
            left.push(u32::try_from(shard).expect("at most 2^24 shards"));
        }
    }
    left.sort_by_key(|&shard| Reverse(draft.unplaced[shard as usize].bytes));
    draft.loads.rank();
    for shard in left {
        while draft.is_vacant(shard as usize) {
            fill_emptiest(draft, shard as usize);
        }
    }
}

fn fill_by_walk(draft: &mut Draft<'_>, shard: usize) {
    for at in 0..draft.replicas {
        let member = draft.natural(shard)[at];
        let full = percent(draft.loads.share(member), FILL_PERCENT);
        let room = draft.loads.bytes(member) + draft.unplaced[shard].bytes <= full;
        if room && draft.may_own(shard, member) {
            draft.assign(shard, member);
        }
    }
}

/// Gives the lot to the emptiest member with room, else to the emptiest.
fn fill_emptiest(draft: &mut Draft<'_>, shard: usize) {
    let bytes = draft.unplaced[shard].bytes;
    let mut able = draft.loads.emptiest().filter(|&member| draft.may_own(shard, member)).peekable();
    let emptiest = able.peek().copied().expect("owners that keep apart can always be completed");
    let member = able.find(|&member| draft.loads.has_room(member, bytes)).unwrap_or(emptiest);
    drop(able);
    draft.assign(shard, member);
}
