//! The third step: a new or heavier member takes shards up to its share.

use std::{cmp::Reverse, collections::BinaryHeap};

use larder_base::Ring;

use super::{SKEW_PERCENT_MAX, draft::Draft};

/// Raises the members of the next ring that grew and hold less than their share.
pub(super) fn fill_underfull(draft: &mut Draft<'_>, present: &Ring) {
    let grown = grown(draft, present);
    if grown.is_empty() {
        return;
    }
    let wanted = wanted(draft, &grown);
    for too_much in [true, false] {
        wanted
            .iter()
            .for_each(|&(shard, member)| take_wanted(draft, shard as usize, member, too_much));
    }
    take_from_fullest(draft, grown);
}

/// Returns the new or heavier members that hold less than their share, by more than the tolerance.
fn grown(draft: &Draft<'_>, present: &Ring) -> Vec<u16> {
    let heavier = |member: &larder_base::Member| {
        present.member(&member.id).is_none_or(|before| member.weight > before.weight)
    };
    let members = (0_u16..).zip(draft.ring.members());
    let grown = members.filter(|(_, member)| heavier(member)).map(|(index, _)| index);
    let lacks = |&index: &u16| {
        let (held, share) = (draft.loads.bytes(index), draft.loads.share(index));
        u128::from(held) * u128::from(SKEW_PERCENT_MAX) < u128::from(share) * 100
    };
    grown.filter(lacks).collect()
}

/// Returns the lots that the walk gives to one of these members, and that another member owns.
fn wanted(draft: &Draft<'_>, grown: &[u16]) -> Vec<(u32, u16)> {
    let mut wanted = Vec::new();
    let mut is_grown = vec![false; draft.ring.members().len()];
    grown.iter().for_each(|&member| is_grown[usize::from(member)] = true);
    for shard in 0..draft.unplaced.len() {
        for &member in draft.natural(shard) {
            if is_grown[usize::from(member)] && !draft.owners(shard).contains(&member) {
                wanted.push((u32::try_from(shard).expect("at most 2^24 shards"), member));
            }
        }
    }
    wanted
}

/// Takes a lot that the walk gives: from owners above the tolerance, or above their share.
fn take_wanted(draft: &mut Draft<'_>, shard: usize, member: u16, too_much: bool) {
    if draft.owners(shard).contains(&member) || !fits(draft, member, draft.unplaced[shard].bytes) {
        return;
    }
    let gives = |&owner: &u16| {
        let loads = &draft.loads;
        let full = if too_much { loads.cap(owner) } else { loads.share(owner) };
        loads.bytes(owner) > full && draft.may_replace(shard, owner, member)
    };
    // Prefer an owner that the walk does not name.
    let stands_in = |owner: u16| !draft.natural(shard).contains(&owner);
    let givers = draft.owners(shard).iter().copied().filter(gives);
    let giver = givers
        .max_by_key(|&owner| (stands_in(owner), draft.loads.pressure(owner, 0), Reverse(owner)));
    if let Some(giver) = giver {
        draft.replace(shard, giver, member);
    }
}

/// A lot that its owner may give. The greater is taken first: a lot that the walk does not give to
/// the owner, then the larger lot.
type Offer = (bool, u64, Reverse<u32>);

/// Takes from the fullest member, one lot at a time, while a member is above its share.
fn take_from_fullest(draft: &mut Draft<'_>, mut grown: Vec<u16>) {
    let smallest = draft.unplaced.iter().map(|shard| shard.bytes).min().unwrap_or(0);
    let above = |draft: &Draft<'_>, owner| draft.loads.bytes(owner) > draft.loads.share(owner);
    let mut offers = offers(draft, |owner| !grown.contains(&owner) && above(draft, owner));
    let givers = (0_u16..).zip(&offers).filter(|(_, offers)| !offers.is_empty());
    let mut fullest: BinaryHeap<(u64, Reverse<u16>)> =
        givers.map(|(owner, _)| (draft.loads.pressure(owner, 0), Reverse(owner))).collect();
    while let Some((_, Reverse(owner))) = fullest.pop() {
        grown.retain(|&member| fits(draft, member, smallest));
        if grown.is_empty() || !above(draft, owner) {
            break;
        }
        let offers = &mut offers[usize::from(owner)];
        let taken = std::iter::from_fn(|| offers.pop()).find_map(|(_, _, Reverse(shard))| {
            taker(draft, &grown, shard as usize, owner).map(|member| (shard as usize, member))
        });
        if let Some((shard, member)) = taken {
            draft.replace(shard, owner, member);
            fullest.push((draft.loads.pressure(owner, 0), Reverse(owner)));
        }
    }
}

/// Returns the lots that each of these owners may give.
fn offers(draft: &Draft<'_>, gives: impl Fn(u16) -> bool) -> Vec<BinaryHeap<Offer>> {
    let offers = (0_u16..).zip(draft.lots_of(gives)).map(|(owner, unplaced)| {
        let offer = |shard: u32| {
            let stands_in = !draft.natural(shard as usize).contains(&owner);
            (stands_in, draft.unplaced[shard as usize].bytes, Reverse(shard))
        };
        unplaced.into_iter().map(offer).collect()
    });
    offers.collect()
}

/// Returns the emptiest of these members that may take a lot from its owner.
fn taker(draft: &Draft<'_>, grown: &[u16], shard: usize, owner: u16) -> Option<u16> {
    let bytes = draft.unplaced[shard].bytes;
    let takes =
        |&member: &u16| fits(draft, member, bytes) && draft.may_replace(shard, owner, member);
    grown
        .iter()
        .copied()
        .filter(takes)
        .min_by_key(|&member| (draft.loads.pressure(member, 0), member))
}

/// Whether this many more bytes leave the member at or below its share.
fn fits(draft: &Draft<'_>, member: u16, bytes: u64) -> bool {
    draft.loads.bytes(member) + bytes <= draft.loads.share(member)
}
