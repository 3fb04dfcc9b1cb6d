//! The results of a finished board: moves, exceptions and figures.

use larder_base::{
    SnapshotId,
    placement::{Exceptions, ExceptionsBuilder},
    ring::Owners,
};

use crate::{
    board::{Board, Lot},
    change::Change,
    keep::Present,
    plan::Move,
    shares,
    summary::Summary,
};

/// Returns the owners of each lot, in the order in which clients ask them.
///
/// Shards with one place, which no table tells apart, get the owners of the first of them.
pub(crate) fn decided(board: &Board<'_>) -> Vec<Owners> {
    let mut decided: Vec<Owners> = Vec::with_capacity(board.lots.len());
    for (lot, one) in board.lots.iter().enumerate() {
        let twin = lot > 0 && board.lots[lot - 1].place == one.place;
        decided.push(if twin { decided[lot - 1] } else { board.in_order(lot) });
    }
    decided
}

/// Returns the lots with other owners than the walk's, as a table.
pub(crate) fn exceptions(
    board: &Board<'_>,
    decided: &[Owners],
    snapshot: SnapshotId,
) -> Exceptions {
    let mut table = ExceptionsBuilder::new(board.ring, snapshot, board.ring.copies());
    for (lot, owners) in decided.iter().enumerate() {
        if **owners != *board.natural(lot) {
            table.except(board.lots[lot].place, *owners);
        }
    }
    table.build()
}

/// Returns a move for each copy with a new owner, and the source of each.
pub(crate) fn moves(
    lots: &[Lot],
    decided: &[Owners],
    present: &Present<'_>,
    change: &Change,
) -> Vec<Move> {
    let gone: Vec<bool> =
        present.ring().members().iter().map(|member| change.is_gone(&member.id)).collect();
    let mut moves = Vec::new();
    for (lot, (one, owners)) in lots.iter().zip(decided).enumerate() {
        let held = present.owners(lot);
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
    board: Board<'_>,
    present: Option<&Present<'_>>,
    moves: &[Move],
    exceptions: (u64, u64),
) -> Summary {
    let lots = board.lots;
    let (held_before, shares_before) =
        present.map_or_else(Default::default, |present| before(lots, present));
    let bytes_ideal = present.map_or(0, |present| ideal(&board, present, &shares_before));
    let (held, shares) = board.loads.into_parts();
    Summary {
        shards: lots.len() as u64,
        bytes: held.iter().sum(),
        moves: moves.len() as u64,
        bytes_moved: moves.iter().map(|each| each.bytes).sum(),
        bytes_from_origin: moves.iter().filter(|each| each.from.is_none()).map(|m| m.bytes).sum(),
        bytes_ideal,
        exceptions_before: exceptions.0,
        exceptions: exceptions.1,
        shard_bytes_max: lots.iter().map(|lot| lot.bytes).max().unwrap_or(0),
        held_before,
        shares_before,
        held,
        shares,
    }
}

/// Returns each member's present bytes, and its share.
fn before(lots: &[Lot], present: &Present<'_>) -> (Vec<u64>, Vec<u64>) {
    let mut held = vec![0; present.ring().members().len()];
    for (lot, one) in lots.iter().enumerate() {
        present.owners(lot).iter().for_each(|&owner| held[usize::from(owner)] += one.bytes);
    }
    let bytes = lots.iter().map(|lot| lot.bytes).sum();
    (held, shares(present.ring(), bytes, present.copies()))
}

/// Returns the growth of all shares that grow, added up.
fn ideal(board: &Board<'_>, present: &Present<'_>, before: &[u64]) -> u64 {
    let members = (0_u16..).zip(board.ring.members());
    let grows = members.map(|(index, member)| {
        let before = present.ring().index(&member.id).map_or(0, |index| before[index]);
        // Shares are rounded up, by less than a byte.
        board.loads.share(index).saturating_sub(before + 1)
    });
    grows.sum()
}
