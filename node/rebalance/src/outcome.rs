//! The results of a finished draft: moves, exceptions and figures.

use larder_base::{
    SnapshotId,
    placement::{Exceptions, ExceptionsBuilder},
    ring::Owners,
};

use crate::{
    SKEW_PERCENT_MAX,
    change::Change,
    draft::{Draft, UnplacedShard, percent},
    keep::Present,
    plan::Move,
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

/// The figures of a plan for one snapshot, or for all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many shards there are, each counted once.
    pub shards: u64,
    /// Their bytes, each shard once for each of its owners.
    pub bytes: u64,
    /// Copies that are moved.
    pub moves: u64,
    /// Their bytes.
    pub bytes_moved: u64,
    /// Of these, the bytes that come from the origin because no remaining member holds them.
    pub bytes_from_origin: u64,
    /// The bytes that an even placement must move for this change: see the crate's page.
    pub bytes_ideal: u64,
    /// Shards with other owners than the walk's, before the change.
    pub exceptions_before: u64,
    /// The same after the change.
    pub exceptions: u64,
    /// Bytes of the largest shard. Above a tenth of the smallest share an even placement may not
    /// exist.
    pub shard_bytes_max: u64,
    /// By member of the present ring: its bytes. Empty when no placement was in place.
    pub held_before: Vec<u64>,
    /// By member of the present ring: its share.
    pub shares_before: Vec<u64>,
    /// By member of the next ring: its bytes after the change.
    pub held: Vec<u64>,
    /// By member of the next ring: its share.
    pub shares: Vec<u64>,
}

impl Summary {
    /// Returns the most that a member holds of its share before the change: 1 is perfectly even.
    pub fn skew_before(&self) -> f64 {
        skew(&self.held_before, &self.shares_before)
    }

    /// Returns the most that a member holds of its share after the change.
    pub fn skew(&self) -> f64 {
        skew(&self.held, &self.shares)
    }

    /// Whether no member holds more than the tolerance. If not, shards are too large for their
    /// number, or copies that must stay apart leave no choice.
    pub fn is_even(&self) -> bool {
        let cap = |share| percent(share, SKEW_PERCENT_MAX);
        self.held.iter().zip(&self.shares).all(|(&held, &share)| held <= cap(share))
    }

    /// Returns the bytes moved in proportion to the ideal; `None` where the ideal is 0.
    pub fn share_of_ideal(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let share =
            (self.bytes_ideal > 0).then(|| self.bytes_moved as f64 / self.bytes_ideal as f64);
        share
    }

    /// Adds the figures of another snapshot of the same plan.
    pub(crate) fn add(&mut self, other: &Self) {
        self.shards += other.shards;
        self.bytes += other.bytes;
        self.moves += other.moves;
        self.bytes_moved += other.bytes_moved;
        self.bytes_from_origin += other.bytes_from_origin;
        self.bytes_ideal += other.bytes_ideal;
        self.exceptions_before += other.exceptions_before;
        self.exceptions += other.exceptions;
        self.shard_bytes_max = self.shard_bytes_max.max(other.shard_bytes_max);
        add_each(&mut self.held_before, &other.held_before);
        add_each(&mut self.shares_before, &other.shares_before);
        add_each(&mut self.held, &other.held);
        add_each(&mut self.shares, &other.shares);
    }
}

fn add_each(sums: &mut Vec<u64>, others: &[u64]) {
    if sums.len() < others.len() {
        sums.resize(others.len(), 0);
    }
    sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
}

fn skew(held: &[u64], shares: &[u64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = held.iter().zip(shares).map(|(&held, &share)| held as f64 / share.max(1) as f64);
    each.fold(0.0, f64::max)
}
