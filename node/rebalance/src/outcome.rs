//! The results of a finished draft: moves, exceptions and figures.

use larder_base::{
    SnapshotId,
    placement::{Exceptions, ExceptionsBuilder},
    ring::Owners,
};

use crate::{
    change::Change,
    draft::{Draft, UnplacedShard},
    keep::Present,
    plan::{Move, Summary},
    shares,
};

/// Returns the owners of each lot, in the order in which clients ask them.
///
/// Shards with one place, which no table tells apart, get the owners of the first of them.
pub(crate) fn decided(draft: &Draft<'_>) -> Vec<Owners> {
    let mut decided: Vec<Owners> = Vec::with_capacity(draft.unplaced.len());
    for (shard, one) in draft.unplaced.iter().enumerate() {
        let twin = shard > 0 && draft.unplaced[shard - 1].place == one.place;
        decided.push(if twin { decided[shard - 1] } else { draft.in_order(shard) });
    }
    decided
}

/// Returns the lots with other owners than the walk's, as a table.
pub(crate) fn exceptions(
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

/// Returns a move for each copy with a new owner, and the source of each.
pub(crate) fn moves(
    unplaced: &[UnplacedShard],
    decided: &[Owners],
    present: &Present<'_>,
    change: &Change,
) -> Vec<Move> {
    let gone: Vec<bool> =
        present.ring().members().iter().map(|member| change.is_gone(&member.id)).collect();
    let mut moves = Vec::new();
    for (shard, (one, owners)) in unplaced.iter().zip(decided).enumerate() {
        let held = present.owners(shard);
        let is_new = |to: &u16| held.iter().all(|&from| present.next(from) != Some(*to));
        if one.settled.is_some() || !owners.iter().any(&is_new) {
            continue;
        }
        let living = || held.iter().copied().filter(|&from| !gone[usize::from(from)]);
        let stays = |from: &u16| present.next(*from).is_some_and(|next| owners.contains(&next));
        // Sources that hand their copy over come before those that keep it.
        let leaving = living().filter(|from| !stays(from));
        let mut sources = leaving.chain(living().filter(stays)).cycle();
        for &to in owners.iter().filter(|to| is_new(to)) {
            moves.push(Move { shard: one.id, bytes: one.bytes, from: sources.next(), to });
        }
    }
    moves
}

/// Returns the figures of one snapshot.
pub(crate) fn summary(
    draft: Draft<'_>,
    present: Option<&Present<'_>>,
    moves: &[Move],
    exceptions: (u64, u64),
) -> Summary {
    let unplaced = draft.unplaced;
    let (held_before, shares_before) =
        present.map_or_else(Default::default, |present| before(unplaced, present));
    let bytes_ideal = present.map_or(0, |present| ideal(&draft, present, &shares_before));
    let (held, shares) = draft.loads.into_parts();
    Summary {
        shards: unplaced.len() as u64,
        bytes: held.iter().sum(),
        moves: moves.len() as u64,
        bytes_moved: moves.iter().map(|each| each.bytes).sum(),
        bytes_from_origin: moves.iter().filter(|each| each.from.is_none()).map(|m| m.bytes).sum(),
        bytes_ideal,
        exceptions_before: exceptions.0,
        exceptions: exceptions.1,
        shard_bytes_max: unplaced.iter().map(|shard| shard.bytes).max().unwrap_or(0),
        held_before,
        shares_before,
        held,
        shares,
    }
}

/// Returns each member's present bytes, and its share.
fn before(unplaced: &[UnplacedShard], present: &Present<'_>) -> (Vec<u64>, Vec<u64>) {
    let mut held = vec![0; present.ring().members().len()];
    for (shard, one) in unplaced.iter().enumerate() {
        present.owners(shard).iter().for_each(|&owner| held[usize::from(owner)] += one.bytes);
    }
    let bytes = unplaced.iter().map(|shard| shard.bytes).sum();
    (held, shares(present.ring(), bytes, present.replicas()))
}

/// Returns the growth of all shares that grow, added up.
fn ideal(draft: &Draft<'_>, present: &Present<'_>, before: &[u64]) -> u64 {
    let members = (0_u16..).zip(draft.ring.members());
    let grows = members.map(|(index, member)| {
        let before = present.ring().index(&member.id).map_or(0, |index| before[index]);
        // Shares are rounded up, by less than a byte.
        draft.loads.share(index).saturating_sub(before + 1)
    });
    grows.sum()
}
