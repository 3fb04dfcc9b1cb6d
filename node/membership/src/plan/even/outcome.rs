//! The results of a finished draft: owners, exceptions and moves.

use larder_base::{
    SnapshotId,
    placement::{Exceptions, ExceptionsBuilder},
    ring::Owners,
};

use super::{
    change::MemberChange,
    draft::{Draft, UnplacedShard},
    keep::Present,
};
use crate::plan::Move;

/// Returns the owners of each lot, in the order in which clients ask them.
///
/// Shards with one place, which no table tells apart, get the owners of the first of them.
pub(super) fn decided(draft: &Draft<'_>) -> Vec<Owners> {
    let mut decided: Vec<Owners> = Vec::with_capacity(draft.unplaced.len());
    for (shard, one) in draft.unplaced.iter().enumerate() {
        let twin = shard > 0 && draft.unplaced[shard - 1].place == one.place;
        decided.push(if twin { decided[shard - 1] } else { draft.in_order(shard) });
    }
    decided
}

/// Returns the lots with other owners than the walk's, as a table.
pub(super) fn exceptions(
    draft: &Draft<'_>,
    decided: &[Owners],
    snapshot: SnapshotId,
) -> Exceptions {
    let mut table = ExceptionsBuilder::new(draft.ring, snapshot, draft.ring.replicas());
    for (shard, owners) in decided.iter().enumerate() {
        if **owners != *draft.natural(shard) {
            table.except(draft.unplaced[shard].place, *owners);
        }
    }
    table.build()
}

/// Returns a move for each copy with a new owner, and the source of each. Replicas that the change
/// adds are left out.
pub(super) fn moves(
    change: &MemberChange,
    snapshot: SnapshotId,
    unplaced: &[UnplacedShard],
    decided: &[Owners],
    present: &Present,
) -> Vec<Move> {
    let mut moves = Vec::new();
    for (shard, (one, owners)) in unplaced.iter().zip(decided).enumerate() {
        let held = present.owners(shard);
        let is_new = |to: &u16| held.iter().all(|&from| present.next(from) != Some(*to));
        if one.settled.is_some() || !owners.iter().any(&is_new) {
            continue;
        }
        let living = || held.iter().copied().filter(|&from| !change.is_gone(from));
        let stays = |from: &u16| present.next(*from).is_some_and(|next| owners.contains(&next));
        // Sources that hand their copy over come before those that keep it.
        let leaving = living().filter(|from| !stays(from));
        let mut sources = leaving.chain(living().filter(stays)).cycle();
        for &to in owners.iter().filter(|to| is_new(to)) {
            let from = sources.next();
            let stays = from.is_some_and(|from| stays(&from));
            if change.adds_replicas() && stays && owners[0] != to {
                continue;
            }
            moves.push(Move {
                snapshot,
                shard: one.id,
                bytes: one.bytes,
                from: from.map(|from| change.name_before(from)),
                stays,
                to: change.name_after(to),
            });
        }
    }
    moves
}
