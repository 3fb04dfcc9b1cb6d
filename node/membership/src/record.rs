//! The one small value that the coordinator keeps: who is in the ring, and what is being changed.
//!
//! It changes only by compare-and-set, one [step](step) at a time. A step is a pure function from a
//! record to the next one, or a refusal in words; which step to take is the agents' business. What
//! holds in every record that [`Record::decode`] lets in or [`Record::encode`] lets out:
//!
//! - the ring has its own version, which grows by one whenever its members, their weights or the
//!   placement change, and only then (where a member listens is no part of it);
//! - at most one change is in flight;
//! - a blob that is named was put before.
//!
//! ```text
//!            founded / commit of a plan                    commit of a plan
//! Joining ----------------------------> Active <--------> Draining --------> (gone)
//!    |                                     | \  undrain       |
//!    | gone before it was in               |  \ death         | death
//!    v                                     |   v              v
//! (gone)                                    +-> Down <-------+
//!                                                | back for long enough: commit of a plan
//!                                                +-------------------------------------> Active
//! ```
//!
//! An operator's abort makes `Draining` into `Active` again and what was to be put in into `Held`,
//! so that agents don't begin the same change anew.
//!
//! Limits: 256 KiB, 1,024 entries, 1,024 datasets in half of the bytes, 64 past changes.
//! Non-goals: no times of one host's clock that another would compare with its own.

mod check;
mod codec;
mod step;

use std::{fmt, time::Duration};

use larder_base::{Member, Scheme, SnapshotId};

use crate::{BlobId, plan::Edit};

pub use step::{Audit, Refused};

/// What the coordinator keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Names the cluster, for ever.
    pub cluster: [u8; 16],
    /// Grows when another coordinator takes over for good. Who has seen a greater one goes by no
    /// record with a smaller one.
    pub generation: u64,
    /// The version of the committed ring.
    pub version: u64,
    /// All nodes that are known, sorted by id.
    pub members: Vec<Entry>,
    /// How the ring counts weights, and how many own a shard.
    pub scheme: Scheme,
    /// The exceptions of the committed placement; none when the ring says all.
    pub placement: Option<BlobId>,
    /// The ring before this one: new owners ask its owners before the origin.
    pub previous: Option<Previous>,
    /// The plan by which the committed ring came about, as long as shards are to be moved or old
    /// copies dropped by it; none when the ring has settled.
    pub settling: Option<BlobId>,
    /// What is being changed.
    pub change: Option<Change>,
    /// What an operator said of a change that a death ended, for the one that agents begin in its
    /// place. Gone when nobody waits for one any more.
    pub kept: Option<Terms>,
    /// The datasets that are known, the one that was opened longest ago first.
    pub datasets: Vec<Dataset>,
    /// Changes begun so far.
    pub changes: u64,
    /// The latest changes, the oldest first.
    pub history: Vec<Past>,
}

/// A node as the record knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, weight and addresses.
    pub member: Member,
    /// What it is to the ring.
    pub state: State,
    /// The ring version in which it got into this state.
    pub since: u64,
}

/// What a node is to the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Wants to be in the ring.
    Joining,
    /// In the ring.
    Active,
    /// In the ring and to leave it, by an operator's word.
    Draining {
        /// How long moving may take, from when an agent first sees this state; then the ring goes
        /// on without it, moved or not.
        deadline: Option<Duration>,
    },
    /// Out of the ring because it was dead; in it again when it has been back for long enough.
    Down,
    /// Out of the ring because an operator aborted the change that was to put it in. Only a plan
    /// that names it puts it in.
    Held,
    /// Dead by an operator's word: to leave the ring at once, and the record.
    Condemned,
}

impl State {
    /// Whether a node in this state owns shards.
    pub fn in_ring(self) -> bool {
        matches!(self, Self::Active | Self::Draining { .. } | Self::Condemned)
    }

    /// Whether a node in this state leaves by a deadline.
    pub fn is_pressed(self) -> bool {
        matches!(self, Self::Draining { deadline: Some(_) })
    }

    /// The state as one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Draining { .. } => "draining",
            Self::Down => "down",
            Self::Held => "held",
            Self::Condemned => "condemned",
        }
    }
}

/// The ring before the committed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previous {
    /// Its version.
    pub version: u64,
    /// What makes the committed ring's members into its members.
    pub undo: Vec<Edit>,
    /// What it went by.
    pub scheme: Scheme,
    /// Its exceptions.
    pub placement: Option<BlobId>,
}

/// How the shards of a change move, by an operator's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// As [`Change::paused`].
    pub paused: bool,
    /// As [`Change::rate`].
    pub rate: Option<u64>,
}

/// A planned change that is being moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its number among all changes of the cluster.
    pub number: u64,
    /// The plan.
    pub plan: BlobId,
    /// What becomes of the members.
    pub edits: Vec<Edit>,
    /// What the ring that it leads to goes by.
    pub scheme: Scheme,
    /// The exceptions of the placement it leads to.
    pub target: Option<BlobId>,
    /// Nothing is pulled while it is paused.
    pub paused: bool,
    /// Bytes a second that may be moved, over all nodes; none: as fast as reads allow, or as it
    /// goes while somebody is to leave by a deadline.
    pub rate: Option<u64>,
    /// Shards to be moved.
    pub moves: u64,
    /// Bytes to be moved.
    pub bytes: u64,
    /// Nodes that shards move to.
    pub receivers: u32,
    /// Who asked for it.
    pub asked_by: String,
}

/// A snapshot that somebody opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Where its dataset lies.
    pub uri: String,
    /// The object that its manifest was read from.
    pub manifest: String,
    /// Its shards.
    pub shards: u64,
    /// Bytes of all its shards.
    pub bytes: u64,
}

/// A change that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Its number.
    pub number: u64,
    /// Its plan. The blob may be gone.
    pub plan: BlobId,
    /// The ring version when it was over.
    pub version: u64,
    /// Whether it was committed; else it was aborted.
    pub committed: bool,
    /// What was done, and who asked.
    pub words: String,
}

impl Record {
    /// Whether somebody is to leave by a deadline: with the change in flight, or with one that it
    /// soon gives way to.
    pub fn is_pressed(&self) -> bool {
        self.members.iter().any(|entry| entry.state.is_pressed())
    }

    /// The entry of this node.
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        let index = self.members.binary_search_by(|entry| entry.member.id.as_str().cmp(id)).ok()?;
        Some(&self.members[index])
    }

    /// What is known of this snapshot.
    pub fn dataset(&self, snapshot: SnapshotId) -> Option<&Dataset> {
        self.datasets.iter().find(|dataset| dataset.snapshot == snapshot)
    }

    /// The members of the committed ring, sorted by id.
    pub fn ring_members(&self) -> Vec<Member> {
        self.in_ring().map(|entry| entry.member.clone()).collect()
    }

    /// The entries that are in the committed ring.
    pub fn in_ring(&self) -> impl Iterator<Item = &Entry> {
        self.members.iter().filter(|entry| entry.state.in_ring())
    }

    /// The members of the ring before the committed one, sorted by id.
    pub fn previous_members(&self) -> Option<Vec<Member>> {
        let undo = &self.previous.as_ref()?.undo;
        Some(crate::plan::edited(&self.ring_members(), undo))
    }

    /// All blobs that the record names.
    pub fn blobs(&self) -> Vec<BlobId> {
        let previous = self.previous.as_ref().and_then(|previous| previous.placement);
        let change = self.change.iter().flat_map(|change| [Some(change.plan), change.target]);
        let named = [self.placement, previous, self.settling].into_iter().chain(change);
        let mut blobs: Vec<BlobId> = named.flatten().collect();
        blobs.sort_unstable();
        blobs.dedup();
        blobs
    }
}

impl Change {
    /// What an operator said of it, if anything.
    fn terms(&self) -> Option<Terms> {
        let Self { paused, rate, .. } = *self;
        (paused || rate.is_some()).then_some(Terms { paused, rate })
    }

    /// How many are to own each shard, where it changes that of the record that it is in.
    pub fn replicas(&self, record: &Record) -> Option<u8> {
        let replicas = self.scheme.replicas;
        (replicas != record.scheme.replicas).then_some(replicas)
    }

    /// Whether this node is to leave the ring by it.
    pub fn takes_out(&self, id: &str) -> bool {
        self.edits.iter().any(|edit| matches!(edit, Edit::Remove(gone) if gone == id))
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { paused: true, rate: None } => write!(f, "paused"),
            Self { paused: true, rate: Some(rate) } => write!(f, "paused, {rate} bytes a second"),
            Self { paused: false, rate: Some(rate) } => write!(f, "{rate} bytes a second"),
            Self { paused: false, rate: None } => write!(f, "as fast as reads allow"),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
