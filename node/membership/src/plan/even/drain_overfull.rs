//! The fourth step: a member that holds too much gives shards away.

use std::cmp::Reverse;

use super::draft::Draft;

/// Relieves every member above the tolerance, the fullest first. If no member has room for a shard,
/// as when shards are few and large, it goes to a member that ends up less full than its owner.
pub(super) fn drain_overfull(draft: &mut Draft<'_>) {
    let members = u16::try_from(draft.ring.members().len()).expect("at most 1,024");
    let mut full: Vec<u16> = (0..members).filter(|&owner| draft.loads.excess(owner) > 0).collect();
    full.sort_by_key(|&owner| (Reverse(draft.loads.pressure(owner, 0)), owner));
    let mut is_full = vec![false; usize::from(members)];
    full.iter().for_each(|&owner| is_full[usize::from(owner)] = true);
    let mut unplaced = draft.lots_of(|owner| is_full[usize::from(owner)]);
    for &owner in &full {
        relieve(draft, owner, &mut unplaced[usize::from(owner)]);
    }
    for owner in full {
        ease(draft, owner, &unplaced[usize::from(owner)]);
    }
}

/// Gives lots away to members with room: all lots that fit into the excess, then one that covers
/// the rest of it.
fn relieve(draft: &mut Draft<'_>, owner: u16, unplaced: &mut [u32]) {
    unplaced.sort_by_cached_key(|&shard| {
        let shard = shard as usize;
        (heals(draft, shard, owner), Reverse(draft.unplaced[shard].bytes), shard)
    });
    for &shard in unplaced.iter() {
        if draft.unplaced[shard as usize].bytes <= draft.loads.excess(owner) {
            give(draft, shard as usize, owner);
        }
    }
    if draft.loads.excess(owner) == 0 {
        return;
    }
    // A stable sort: of equal sizes, lots that heal come first.
    unplaced.sort_by_key(|&shard| draft.unplaced[shard as usize].bytes);
    for &shard in unplaced.iter() {
        let covers = draft.unplaced[shard as usize].bytes >= draft.loads.excess(owner);
        if covers && draft.loads.excess(owner) > 0 && draft.owners(shard as usize).contains(&owner)
        {
            give(draft, shard as usize, owner);
        }
    }
}

/// Returns the effect of giving a lot away on the number of exceptions: 0 may make one fewer, 1
/// leaves them, 2 makes one more.
fn heals(draft: &Draft<'_>, shard: usize, owner: u16) -> u8 {
    let bytes = draft.unplaced[shard].bytes;
    if draft.natural(shard).contains(&owner) {
        2
    } else {
        let goes_home = |&member: &u16| draft.loads.has_room(member, bytes);
        u8::from(!draft.natural(shard).iter().any(goes_home))
    }
}

/// Gives a lot to a member of its walk that has room, else to the emptiest that has room, if any.
fn give(draft: &mut Draft<'_>, shard: usize, owner: u16) {
    let bytes = draft.unplaced[shard].bytes;
    let takes = |&member: &u16| {
        draft.loads.has_room(member, bytes) && draft.may_replace(shard, owner, member)
    };
    let natural = draft.natural(shard).iter().copied().find(takes);
    // If the emptiest member has no room, no fuller one has, unless lots are large. So looking at
    // some is enough.
    let emptiest = || draft.loads.emptiest().take(LOOKED_AT).find(takes);
    if let Some(member) = natural.or_else(emptiest) {
        draft.replace(shard, owner, member);
    }
}

/// Members to try, from the emptiest on.
const LOOKED_AT: usize = 64;

/// Gives lots to the emptiest members without room, as long as that makes the fuller of the two
/// less full.
fn ease(draft: &mut Draft<'_>, owner: u16, unplaced: &[u32]) {
    for &shard in unplaced.iter().rev() {
        let shard = shard as usize;
        if draft.loads.excess(owner) == 0 {
            return;
        }
        if !draft.owners(shard).contains(&owner) {
            continue;
        }
        let bytes = draft.unplaced[shard].bytes;
        let pressure = draft.loads.pressure(owner, 0);
        let relieved = |&member: &u16| {
            draft.loads.pressure(member, bytes) < pressure
                && draft.may_replace(shard, owner, member)
        };
        let member = draft.loads.emptiest().take(LOOKED_AT).find(relieved);
        if let Some(member) = member {
            draft.replace(shard, owner, member);
        }
    }
}
