//! Which shards move when members come and go.
//!
//! A [`Plan`] is made by a [`Planner`] from what is in place and from what was asked; it is kept as
//! a blob and named by the hash of its bytes, so that the same plan has the same name wherever it
//! was made. It is pinned to the ring version it was made for.
//!
//! [`EvenPlanner`] is the planner of a cluster. A plan leads to [`Tables`], another blob.
//!
//! Non-goals: how a placement is evened out (`larder-rebalance`); what one looks like inside
//! (bytes, to agents).

mod codec;
mod even;
mod figures;
#[cfg(test)]
mod ring_only;
mod tables;

use std::collections::BTreeSet;

use larder_base::{Member, Scheme, ShardId, SnapshotId};

use crate::BlobId;

pub(crate) use codec::{put_edit, take_edit};
pub use even::EvenPlanner;
pub use figures::{Figures, NodeFigures};
#[cfg(test)]
pub(crate) use ring_only::RingOnly;
pub use tables::Tables;

/// One difference between two lists of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// This member is in the list, in place of one with the same id if there is one.
    Put(Member),
    /// No member with this id is in the list.
    Remove(String),
}

impl Edit {
    /// The member it is about.
    pub fn id(&self) -> &str {
        match self {
            Self::Put(member) => &member.id,
            Self::Remove(id) => id,
        }
    }
}

/// The members, sorted by id, after the edits.
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

/// The edits that make `before` into `after`, both sorted by id.
pub fn edits_between(before: &[Member], after: &[Member]) -> Vec<Edit> {
    let kept = |id: &str| after.iter().any(|member| member.id == id);
    let gone = before.iter().filter(|member| !kept(&member.id));
    let put = after.iter().filter(|member| !before.contains(member));
    gone.map(|member| Edit::Remove(member.id.clone()))
        .chain(put.map(|member| Edit::Put(member.clone())))
        .collect()
}

/// One copy of a shard that gets a new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The snapshot the shard is of.
    pub snapshot: SnapshotId,
    /// The shard.
    pub shard: ShardId,
    /// Its size.
    pub bytes: u64,
    /// Who owns it now and is asked for it: index into [`Plan::names`]. None when no owner lives.
    pub from: Option<u16>,
    /// Whether `from` goes on owning it, as when a copy is added. Else its copy goes in the end.
    pub stays: bool,
    /// Who will own it: index into [`Plan::names`].
    pub to: u16,
}

/// What a change moves, pinned to the ring version it starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The ring version it starts from.
    pub base: u64,
    /// The difference between the members before and after.
    pub edits: Vec<Edit>,
    /// What the ring that it leads to goes by.
    pub scheme: Scheme,
    /// The exceptions of the placement it leads to; none when the ring says all.
    pub target: Option<BlobId>,
    /// Ids of members, which moves name by index.
    pub names: Vec<String>,
    /// The moves, in the order in which they are to be made.
    pub moves: Vec<Move>,
}

impl Plan {
    /// The moves that bring shards to this member, in order.
    pub fn moves_to(&self, id: &str) -> impl Iterator<Item = &Move> {
        let to = self.index(id);
        self.moves.iter().filter(move |step| Some(step.to) == to)
    }

    /// The moves that take shards away from this member, in order.
    pub fn moves_from(&self, id: &str) -> impl Iterator<Item = &Move> {
        let from = self.index(id);
        let leaves = move |step: &&Move| from.is_some() && step.from == from && !step.stays;
        self.moves.iter().filter(leaves)
    }

    /// Who gets shards.
    pub fn receivers(&self) -> BTreeSet<&str> {
        let indices: BTreeSet<u16> = self.moves.iter().map(|step| step.to).collect();
        indices.into_iter().map(|index| self.name(index)).collect()
    }

    /// The member that a move names by this index.
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

/// A plan as bytes, with the placement it leads to: what is put at the coordinator before a record
/// names it, and what an operator keeps between `plan` and `apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The bytes of the plan.
    pub plan: Vec<u8>,
    /// The bytes of the target placement's exceptions; none when the ring says all.
    pub placement: Option<Vec<u8>>,
}

/// What a planner is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The ring version in place.
    pub base: u64,
    /// The members in place, sorted by id.
    pub members: Vec<Member>,
    /// What their ring goes by.
    pub scheme: Scheme,
    /// How many owners each shard is to have.
    pub replicas: u8,
    /// The exceptions in place.
    pub placement: Option<BlobId>,
    /// What is to change.
    pub edits: Vec<Edit>,
    /// The change commits at once, because members are dead: nothing may move between survivors, as
    /// nobody waits for moves.
    pub urgent: bool,
}

/// Makes plans. Deterministic: the same question has the same answer on every node.
pub trait Planner {
    /// The plan for a task. `placement` holds the bytes that [`Task::placement`] names.
    ///
    /// # Errors
    /// A sentence that says why there is no such plan.
    fn plan(&self, task: &Task, placement: Option<&[u8]>) -> Result<Planned, String>;
}
