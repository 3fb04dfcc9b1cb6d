//! The plan of a ring change, and the id by which it is applied.

use std::{fmt, sync::Arc};

use larder_base::{
    Error, ErrorKind, Member, Placement, Ring, ShardId, SnapshotId, placement::Exceptions,
};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{Change, SKEW_PERCENT_MAX, Step, draft::percent};

/// All that a change does. Immutable, and named by its [`PlanId`].
#[derive(Debug, Clone)]
pub struct Plan {
    change: Change,
    present: Arc<Ring>,
    next: Arc<Ring>,
    snapshots: Vec<SnapshotPlan>,
    id: PlanId,
}

/// The part of a plan for one snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotPlan {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Its placement after the change.
    pub placement: Placement,
    /// The moves, by the place of their shard. A shard that several snapshots share is moved by the
    /// first of them only.
    pub moves: Vec<Move>,
    /// The figures.
    pub summary: Summary,
}

/// A copy of a shard that moves to a new owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Its size in bytes.
    pub bytes: u64,
    /// The source, as an index into the members of the present ring; `None` when only the origin
    /// has the shard.
    pub from: Option<u16>,
    /// The target, as an index into the members of the next ring.
    pub to: u16,
}

/// The xxh3-128 of all contents of a plan. Plans with the same id do the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanId([u8; 16]);

impl PlanId {
    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanId({self})")
    }
}

impl Plan {
    pub(crate) fn new(
        change: Change,
        present: Arc<Ring>,
        next: Arc<Ring>,
        snapshots: Vec<SnapshotPlan>,
    ) -> Self {
        let id = identify(&change, &present, &next, &snapshots);
        Self { change, present, next, snapshots, id }
    }

    /// Returns the change that was asked for.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// Returns the ring that the plan starts from.
    pub fn present(&self) -> &Arc<Ring> {
        &self.present
    }

    /// Returns the ring after the change.
    pub fn next(&self) -> &Arc<Ring> {
        &self.next
    }

    /// Returns the snapshots, by id.
    pub fn snapshots(&self) -> &[SnapshotPlan] {
        &self.snapshots
    }

    /// Returns the id by which the plan is applied.
    pub fn id(&self) -> PlanId {
        self.id
    }

    /// Returns the figures of all snapshots together.
    pub fn summary(&self) -> Summary {
        let mut sum = Summary::default();
        self.snapshots.iter().for_each(|snapshot| sum.add(&snapshot.summary));
        sum
    }

    /// Returns the source of a move; `None` when only the origin has the shard.
    pub fn source(&self, of: &Move) -> Option<&Member> {
        of.from.map(|index| &self.present.members()[usize::from(index)])
    }

    /// Returns the target of a move.
    pub fn target(&self, of: &Move) -> &Member {
        &self.next.members()[usize::from(of.to)]
    }

    /// Checks that the plan may still be carried out on this ring.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is not the ring that the plan was made from.
    pub fn check_present(&self, ring: &Ring) -> Result<(), Error> {
        if (ring.version(), ring.digest()) == (self.present.version(), self.present.digest()) {
            return Ok(());
        }
        let message = format!(
            "plan {} was made for ring version {}, and the ring is at {}: plan it anew",
            self.id,
            self.present.version(),
            ring.version(),
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

/// Hashes all contents, each text and list led by its length.
fn identify(change: &Change, present: &Ring, next: &Ring, snapshots: &[SnapshotPlan]) -> PlanId {
    let mut hash = Words(Xxh3Default::new());
    hash.text("larder plan 2");
    for ring in [present, next] {
        hash.number(ring.version());
        hash.number(ring.digest());
    }
    hash.number(change.at_once.into());
    hash.number(change.steps.len() as u64);
    change.steps.iter().for_each(|step| hash.step(step));
    hash.number(snapshots.len() as u64);
    for part in snapshots {
        hash.0.update(part.snapshot.as_bytes());
        hash.number(part.placement.replicas() as u64);
        hash.0.update(&part.placement.exceptions().map(Exceptions::digest).unwrap_or_default());
        hash.number(part.moves.len() as u64);
        part.moves.iter().for_each(|each| hash.step_of_move(each));
    }
    PlanId(hash.0.digest128().to_le_bytes())
}

/// Hashes values as bytes.
struct Words(Xxh3Default);

impl Words {
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn step(&mut self, step: &Step) {
        let (kind, weight) = match step {
            Step::Add(member) => (1, member.weight),
            Step::Drain { .. } => (2, 0),
            Step::Remove { .. } => (3, 0),
            Step::Reweight { weight, .. } => (4, *weight),
            Step::Replace(member) => (5, member.weight),
        };
        self.number(kind);
        self.number(weight.into());
        self.text(step.id());
        if let Step::Add(member) | Step::Replace(member) = step {
            let Member { control, host, zone, .. } = member;
            [control, host, zone].into_iter().for_each(|text| self.text(text));
        }
    }

    fn step_of_move(&mut self, each: &Move) {
        self.0.update(each.shard.as_bytes());
        self.number(each.bytes);
        self.number(each.from.map_or(u64::MAX, u64::from));
        self.number(each.to.into());
    }
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
