//! The one small value that the coordinator keeps: the members of the ring, and the change in
//! flight.
//!
//! It changes only by compare-and-set, one [step](step) at a time. A step is a pure function from a
//! record to the next one, or a refusal in words. Agents decide which step to take.
//! [`Record::decode`] and [`Record::encode`] check that in every record:
//!
//! - the ring's version grows by one whenever its members, their weights or the placement change,
//!   and only then (a member's address is no part of it);
//! - at most one change is in flight;
//! - every blob that the record names was put before.
//!
//! ```text
//!          founded / commit              drain                 commit / death
//! Joining ─────────────────▶ Active ◀──────────────▶ Draining ────────────────▶ (gone)
//!    │                        │  ▲      undrain
//!    │ dead before       death│  │back for the hold: commit of a plan
//!    │ the commit             ▼  │
//!    ▼                        Down
//! (gone)
//! ```
//!
//! An operator's abort turns `Draining` into `Active` again, and `Joining` or `Down` into `Held`.
//! So agents do not begin the same change anew.
//!
//! Limits: 256 KiB, 1,024 entries, 1,024 datasets in half of the bytes, 64 past changes.
//! Non-goals: no times of one host's clock that another host would compare with its own.

mod format;
mod step;

use std::{fmt, time::Duration};

use larder_base::{Bytes, Member, Scheme, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::{BlobId, plan::Edit};

pub use step::{Audit, Refused};

/// The agreed state of the cluster, as the coordinator keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The permanent name of the cluster.
    #[serde(with = "serde_bytes")]
    pub cluster: [u8; 16],
    /// Grows when another coordinator takes over for good. An agent that has seen a greater one
    /// takes no record with a smaller one.
    pub generation: u64,
    /// The version of the committed ring.
    pub version: u64,
    /// All known nodes, sorted by id.
    pub members: Vec<Entry>,
    /// How the ring counts weights, and how many own a shard.
    pub scheme: Scheme,
    /// The exceptions of the committed placement; none when the ring alone decides every owner.
    pub placement: Option<BlobId>,
    /// The ring before this one: new owners ask its owners before the origin.
    pub previous: Option<Previous>,
    /// The plan that led to the committed ring, while shards are still to be moved or old copies to
    /// be dropped by it; none when the ring has settled.
    pub settling: Option<BlobId>,
    /// The change in flight.
    pub change: Option<Change>,
    /// The pause and rate of a change that a death ended, for the change that agents begin in its
    /// place. Gone when no node waits for such a change.
    pub kept: Option<Terms>,
    /// The known datasets, the longest open first.
    pub datasets: Vec<DatasetRecord>,
    /// Changes begun so far.
    pub changes: u64,
    /// The latest changes, the oldest first.
    pub history: Vec<Past>,
}

/// The record's entry of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name, weight and addresses.
    pub member: Member,
    /// Its part in the ring.
    pub state: State,
    /// The ring version in which it entered this state.
    pub since: u64,
}

/// The part of a node in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// To be added to the ring.
    Joining,
    /// In the ring.
    Active,
    /// In the ring, and to be removed by a planned change.
    Draining {
        /// The longest time that moving may take, from when an agent first sees this state. Then
        /// the ring goes on without the node, moved or not.
        deadline: Option<Duration>,
    },
    /// Out of the ring because it was dead. It returns when it has been back for long enough.
    Down,
    /// Out of the ring because an operator aborted the change that would have added it. Only a
    /// plan that names it adds it.
    Held,
    /// Dead, as an operator says. It leaves the ring and the record at once.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// Its version.
    pub version: u64,
    /// The edits that turn the committed ring's members into its members.
    pub undo: Vec<Edit>,
    /// Its scheme.
    pub scheme: Scheme,
    /// Its exceptions.
    pub placement: Option<BlobId>,
}

/// An operator's pause and rate for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// As [`Change::paused`].
    pub paused: bool,
    /// As [`Change::rate`].
    pub rate: Option<u64>,
}

/// A planned change in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number among all changes of the cluster.
    pub number: u64,
    /// The plan.
    pub plan: BlobId,
    /// The edits of the members.
    pub edits: Vec<Edit>,
    /// The scheme of the ring that it leads to.
    pub scheme: Scheme,
    /// The exceptions of the placement it leads to.
    pub target: Option<BlobId>,
    /// Whether pulls are paused.
    pub paused: bool,
    /// Bytes a second that may be moved, over all nodes. None: as fast as reads allow, or at full
    /// speed while a member has a deadline.
    pub rate: Option<u64>,
    /// Shards to be moved.
    pub moves: u64,
    /// Bytes to be moved.
    pub bytes: u64,
    /// Nodes that shards move to.
    pub receivers: u32,
    /// The operator or agent that asked for it.
    pub asked_by: String,
}

/// A snapshot that a client opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The URI of its dataset.
    pub uri: String,
    /// The object that its manifest was read from.
    pub manifest: String,
    /// Its shards.
    pub shards: u64,
    /// Bytes of all its shards.
    pub bytes: u64,
}

/// A change that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its number.
    pub number: u64,
    /// Its plan. The blob may be gone.
    pub plan: BlobId,
    /// The ring version when it was over.
    pub version: u64,
    /// Whether it was committed; else it was aborted.
    pub committed: bool,
    /// A sentence about the change and the operator or agent that asked for it.
    pub words: String,
    /// The operator or agent that asked for it. Empty in records of earlier versions.
    #[serde(default)]
    pub asked_by: String,
    /// When it was over, in milliseconds of Unix time, by the clock of the node that wrote it. 0 in
    /// records of earlier versions.
    #[serde(default)]
    pub at_ms: u64,
}

impl Record {
    /// Whether a member leaves by a deadline, with the change in flight or with one that soon
    /// replaces it.
    pub fn is_pressed(&self) -> bool {
        self.members.iter().any(|entry| entry.state.is_pressed())
    }

    /// The entry of this node.
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        let index = self.members.binary_search_by(|entry| entry.member.id.as_str().cmp(id)).ok()?;
        Some(&self.members[index])
    }

    /// Returns the dataset of this snapshot.
    pub fn dataset(&self, snapshot: SnapshotId) -> Option<&DatasetRecord> {
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
    /// Returns its pause and rate, if an operator set any.
    fn terms(&self) -> Option<Terms> {
        let Self { paused, rate, .. } = *self;
        (paused || rate.is_some()).then_some(Terms { paused, rate })
    }

    /// Returns the owners of each shard, if the change alters their number.
    pub fn replicas(&self, record: &Record) -> Option<u8> {
        let replicas = self.scheme.replicas;
        (replicas != record.scheme.replicas).then_some(replicas)
    }

    /// Whether it removes this node from the ring.
    pub fn takes_out(&self, id: &str) -> bool {
        self.edits.iter().any(|edit| matches!(edit, Edit::Remove(gone) if gone == id))
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { paused: true, rate: None } => write!(f, "paused"),
            Self { paused: true, rate: Some(rate) } => write!(f, "paused, {}/s", Bytes(*rate)),
            Self { paused: false, rate: Some(rate) } => write!(f, "{}/s", Bytes(*rate)),
            Self { paused: false, rate: None } => write!(f, "as fast as reads allow"),
        }
    }
}

#[cfg(test)]
mod tests;
