//! What an agent is told and what it wants done: its whole interface to the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use larder_base::{Member, Scheme, SnapshotId};

use super::{order::LastUses, shard::Shard};
use crate::{
    BlobId, Planned, Revision,
    plan::{Edit, Task},
    record::Dataset,
};

/// Ties an answer to its question. Unique within one start of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The record as the coordinator has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Which write it is.
    pub revision: Revision,
    /// The record.
    pub bytes: Vec<u8>,
}

/// Who was announced at some moment, with what they said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alive {
    /// Grows with every change of the set, also across restarts of the coordinator: of two sets the
    /// one with the greater number is the newer.
    pub stamp: u64,
    /// Node ids and the bytes of their announcements.
    pub nodes: Vec<(String, Vec<u8>)>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing; time passed. Told about every second.
    Tick,
    /// The record changed: the newest that the watch has seen.
    Record(Stored),
    /// The set of announcements changed.
    Alive(Alive),
    /// An answer to [`Effect::Refresh`]: what was so at some moment after the question; no record
    /// when there is none yet. None at all when the coordinator did not answer.
    Refreshed(Ticket, Option<(Option<Stored>, Alive)>),
    /// The coordinator does not answer.
    Away,
    /// It answers again.
    Back,
    /// What became of an [`Effect::Propose`].
    Proposed(Ticket, Outcome),
    /// An answer to [`Effect::Plan`].
    Planned(Ticket, Result<Planned, String>),
    /// An answer to [`Effect::Fetch`]; no bytes when it could not be had now.
    Blob(BlobId, Option<Vec<u8>>),
    /// This version of the ring is in use here from now on.
    Installed(u64),
    /// How an [`Effect::Pull`] ended.
    Pulled(Shard, Pulled),
    /// An answer to [`Effect::AskLastUses`] for this plan: what of it the givers have. Who did not
    /// answer in time is left out.
    LastUses(BlobId, LastUses),
    /// A resident shard was evicted: the node has it no more.
    Lost(Shard),
    /// An operator asks; the answer is an [`Effect::Reply`] with the same ticket.
    Command(Ticket, Command),
    /// A dataset was opened here.
    Opened(Dataset),
    /// The node is about to end.
    Stop,
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is the record now, at this revision.
    Done(Revision),
    /// The record had moved on: this is it.
    Moved(Option<Stored>),
    /// No answer came: it may be the record, it may become it, or never.
    Unknown,
    /// The coordinator refuses for a reason that will not pass.
    Refused(String),
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// It is here, sealed and verified.
    Verified,
    /// There is no room for it.
    NoRoom,
    /// The origin has it no more, or another version of it, and nobody holds it; or this node may
    /// not open its dataset.
    Gone,
    /// It could not be had now.
    Failed,
}

/// What an operator can ask of any node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// What would this move? Nothing is changed.
    Plan {
        /// What becomes of members.
        edits: Vec<Edit>,
        /// How many are to own each shard; none: as many as now.
        replicas: Option<u8>,
    },
    /// Begin this planned change.
    Apply {
        /// What [`Command::Plan`] answered.
        planned: Planned,
        /// Bytes a second over all nodes.
        rate: Option<u64>,
        /// Who asks, for the audit log.
        asked_by: String,
    },
    /// Steer the change in flight.
    Steer {
        /// How.
        steer: Steer,
        /// The change that is meant: another is left alone. None: whichever is in flight.
        change: Option<u64>,
    },
    /// Move everything off this node, then let it leave.
    Drain {
        /// The node.
        id: String,
        /// How long that may take.
        deadline: Option<Duration>,
    },
    /// Let it stay.
    Undrain(String),
    /// These are dead for good.
    Remove(Vec<String>),
}

/// What becomes of the change in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Stop moving; keep what was moved.
    Pause,
    /// Go on.
    Resume,
    /// Give it up.
    Abort,
    /// Move at most so many bytes a second.
    Rate(Option<u64>),
}

impl Steer {
    /// Of whichever change is in flight.
    pub fn any(self) -> Command {
        Command::Steer { steer: self, change: None }
    }
}

/// The answer to a command that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is in the record.
    Done,
    /// The plan that was asked for.
    Planned(Planned),
}

/// A ring with the exceptions of its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingOf {
    /// Its version.
    pub version: u64,
    /// Its members, sorted by id.
    pub members: Vec<Member>,
    /// What it goes by.
    pub scheme: Scheme,
    /// Its exceptions; none when the ring says all.
    pub placement: Option<BlobId>,
}

/// One thing to be done. Those that have an answer say which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Keep this announced; renew it for as long as agents say so, and let it end
    /// [`Timing::announcement_ttl`](crate::Timing) after the last.
    Announce(Vec<u8>),
    /// End the announcement.
    Withdraw,
    /// Read record and announcements as they are now, not from a cache: [`Event::Refreshed`].
    Refresh(Ticket),
    /// Put the blobs, all of them, then replace the record: [`Event::Proposed`].
    Propose {
        /// For the answer.
        ticket: Ticket,
        /// What the record names and may not be there yet.
        blobs: Vec<Vec<u8>>,
        /// The revision it was computed from; none when there was no record.
        expected: Option<Revision>,
        /// The new record.
        record: Vec<u8>,
    },
    /// Ask the planner, not on this thread: [`Event::Planned`].
    Plan(Ticket, Task),
    /// Get a blob: [`Event::Blob`].
    Fetch(BlobId),
    /// Delete all other blobs that are not young, if the record is still at this revision.
    Sweep {
        /// The revision at which these were all that were named.
        at: Revision,
        /// What to keep.
        keep: Vec<BlobId>,
    },
    /// Go by this ring from now on, and tell clients: [`Event::Installed`].
    Install {
        /// The ring.
        ring: RingOf,
        /// The one before, whose owners are asked before the origin.
        previous: Option<RingOf>,
    },
    /// Bring a shard here and verify it: [`Event::Pulled`]. At once when it is here. From `from`,
    /// else from any node that has it, else from the origin.
    Pull {
        /// Which plan wants it.
        plan: BlobId,
        /// The shard.
        shard: Shard,
        /// Its size.
        bytes: u64,
        /// Who owns it and is giving it away.
        from: String,
        /// Those who read go first: neither an operator's rate nor a deadline says how fast it is
        /// to come.
        yields: bool,
    },
    /// Ask these nodes when each of their shards of these snapshots was last read:
    /// [`Event::LastUses`].
    AskLastUses {
        /// The plan that is to be put in order.
        plan: BlobId,
        /// Who gives shards away, and of which snapshots.
        givers: BTreeMap<String, BTreeSet<SnapshotId>>,
        /// The shards of the plan: of others nothing needs to be known.
        wanted: Arc<BTreeMap<Shard, usize>>,
    },
    /// Drop an old copy: who owns the shard now has it.
    Drop(Shard),
    /// The answer to a command.
    Reply(Ticket, Result<Answer, String>),
    /// A line for the audit log: what this agent did to the cluster.
    Audit(String),
    /// A line that an operator should see.
    Alarm(String),
}
