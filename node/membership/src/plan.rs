//! Which shards move when members come and go.
//!
//! A [`Planner`] makes a [`RingPlan`] from the placement in place and the edits asked for. The plan
//! is a blob named by the hash of its bytes, so the same plan has the same name on every node. It
//! is pinned to the ring version it was made for.
//!
//! [`EvenPlanner`] is the planner of a cluster. A plan leads to [`Tables`], another blob.
//!
//! Non-goals: the contents of a placement, which are bytes to agents.

mod codec;
mod even;
mod figures;
mod tables;

use std::collections::BTreeSet;

use larder_base::{Member, Scheme, ShardId, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::BlobId;

pub use even::{EvenPlanner, SizedShard};
pub use figures::{Figures, NodeFigures};
pub use tables::Tables;

/// One difference between two lists of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit {
    /// This member is in the list. It replaces a member with the same id.
    Put(Member),
    /// No member with this id is in the list.
    Remove(String),
}

impl Edit {
    /// Returns the id of the member.
    pub fn id(&self) -> &str {
        match self {
            Self::Put(member) => &member.id,
            Self::Remove(id) => id,
        }
    }
}

/// Returns the members after the edits, sorted by id.
pub fn edited(members: &[Member], edits: &[Edit]) -> Vec<Member> {
    let mut after: Vec<Member> = members.to_vec();
    for edit in edits {
        after.retain(|member| member.id != edit.id());
        if let Edit::Put(member) = edit {
            after.push(member.clone());
        }
    }
    after.sort_by(|a, b| a.id.cmp(&b.id));
    after
}

/// Returns the edits that turn `before` into `after`, both sorted by id.
pub fn edits_between(before: &[Member], after: &[Member]) -> Vec<Edit> {
    let kept = |id: &str| after.iter().any(|member| member.id == id);
    let gone = before.iter().filter(|member| !kept(&member.id));
    let put = after.iter().filter(|member| !before.contains(member));
    gone.map(|member| Edit::Remove(member.id.clone()))
        .chain(put.map(|member| Edit::Put(member.clone())))
        .collect()
}

/// The move of one copy of a shard to a new owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The snapshot the shard is of.
    pub snapshot: SnapshotId,
    /// The shard.
    pub shard: ShardId,
    /// Its size.
    pub bytes: u64,
    /// The present owner to pull from: index into [`RingPlan::names`]. None when no owner lives.
    pub from: Option<u16>,
    /// Whether `from` remains an owner, as when a replica is added. Else it drops its copy later.
    pub stays: bool,
    /// The new owner: index into [`RingPlan::names`].
    pub to: u16,
}

/// The moves of a change, pinned to the ring version it starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingPlan {
    /// The ring version it starts from.
    pub base: u64,
    /// The difference between the members before and after.
    pub edits: Vec<Edit>,
    /// The scheme of the ring that it leads to.
    pub scheme: Scheme,
    /// The exceptions of the placement it leads to; none when the ring alone decides every owner.
    pub target: Option<BlobId>,
    /// Ids of members, which moves name by index.
    pub names: Vec<String>,
    /// The moves, in the order in which they are to be made.
    pub moves: Vec<Move>,
}

impl RingPlan {
    /// Returns the moves that bring shards to this member, in order.
    pub fn moves_to(&self, id: &str) -> impl Iterator<Item = &Move> {
        let to = self.index(id);
        self.moves.iter().filter(move |step| Some(step.to) == to)
    }

    /// Returns the moves that take shards away from this member, in order.
    pub fn moves_from(&self, id: &str) -> impl Iterator<Item = &Move> {
        let from = self.index(id);
        let leaves = move |step: &&Move| from.is_some() && step.from == from && !step.stays;
        self.moves.iter().filter(leaves)
    }

    /// Returns the targets of all moves.
    pub fn receivers(&self) -> BTreeSet<&str> {
        let indices: BTreeSet<u16> = self.moves.iter().map(|step| step.to).collect();
        indices.into_iter().map(|index| self.name(index)).collect()
    }

    /// Returns the member that a move names by this index.
    pub fn name(&self, index: u16) -> &str {
        &self.names[usize::from(index)]
    }

    /// Bytes of all moves.
    pub fn bytes(&self) -> u64 {
        self.moves.iter().map(|step| step.bytes).sum()
    }

    fn index(&self, id: &str) -> Option<u16> {
        let index = self.names.iter().position(|name| name == id)?;
        u16::try_from(index).ok()
    }
}

/// A plan as bytes, with the placement it leads to. Both are put at the coordinator before a record
/// names them, and an operator keeps both between `plan` and `apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBlobs {
    /// The bytes of the plan.
    #[serde(with = "serde_bytes")]
    pub plan: Vec<u8>,
    /// The bytes of the target placement's exceptions; none when the ring alone decides.
    #[serde(with = "serde_bytes")]
    pub placement: Option<Vec<u8>>,
}

/// A question to a planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The ring version in place.
    pub base: u64,
    /// The members in place, sorted by id.
    pub members: Vec<Member>,
    /// The scheme of their ring.
    pub scheme: Scheme,
    /// Owners of each shard after the change.
    pub replicas: u8,
    /// The exceptions in place.
    pub placement: Option<BlobId>,
    /// The edits of the members.
    pub edits: Vec<Edit>,
    /// Whether the change commits at once, because members are dead. Then nothing moves between
    /// survivors, as the commit does not wait for moves.
    pub urgent: bool,
}

/// Makes plans. Deterministic: the same question has the same answer on every node.
pub trait Planner {
    /// Returns the plan for a task. `placement` holds the bytes that [`Task::placement`] names.
    ///
    /// # Errors
    /// A sentence that says why there is no such plan.
    fn plan(&self, task: &Task, placement: Option<&[u8]>) -> Result<PlanBlobs, String>;
}
