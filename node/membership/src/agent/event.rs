//! Events and effects: the whole interface of an agent to the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use larder_base::{Member, Scheme, SnapshotId};

use super::order::LastUses;
use crate::{
    BlobId, PlanBlobs, Revision,
    id::Shard,
    plan::{Edit, Task},
    record::DatasetRecord,
};

/// Ties an answer to its question. Unique within one start of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The record as the coordinator stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The write that it comes from.
    pub revision: Revision,
    /// The record.
    pub bytes: Vec<u8>,
}

/// The nodes announced at some moment, with their announcements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alive {
    /// Grows with every change of the set, also across restarts of the coordinator. Of two sets
    /// the one with the greater stamp is the newer.
    pub stamp: u64,
    /// Node ids and the bytes of their announcements.
    pub nodes: Vec<(String, Vec<u8>)>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time passed; nothing else happened. Comes about every second.
    Tick,
    /// The record changed. This is the newest one that the watch has seen.
    Record(StoredRecord),
    /// The set of announcements changed.
    Alive(Alive),
    /// The answer to [`Effect::Refresh`]: the state at some moment after the question. It has no
    /// record when there is none yet. None when the coordinator did not answer.
    Refreshed(Ticket, Option<(Option<StoredRecord>, Alive)>),
    /// The coordinator does not answer.
    Away,
    /// The coordinator answers again.
    Back,
    /// The outcome of an [`Effect::Propose`].
    Proposed(Ticket, ProposalOutcome),
    /// The answer to [`Effect::Plan`].
    Planned(Ticket, Result<PlanBlobs, String>),
    /// The answer to [`Effect::Fetch`]; no bytes when the blob could not be read now.
    Blob(BlobId, Option<Vec<u8>>),
    /// This version of the ring is in use here from now on.
    Installed(u64),
    /// How an [`Effect::Pull`] ended.
    Pulled(Shard, Pulled),
    /// The answer to [`Effect::AskLastUses`] for this plan. Sources that did not answer in time
    /// are left out.
    LastUses(BlobId, LastUses),
    /// A resident shard was evicted from this node.
    Lost(Shard),
    /// An operator sends a command. The answer is an [`Effect::Reply`] with the same ticket.
    Command(Ticket, Command),
    /// A dataset was opened here.
    Opened(DatasetRecord),
    /// The node is about to end.
    Stop,
}

/// The outcome of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It was written: the record has this revision now.
    Done(Revision),
    /// The record had changed before. This is the current one.
    Moved(Option<StoredRecord>),
    /// No answer came. It may be written already, be written later, or never.
    Unknown,
    /// The coordinator refuses it for a reason that will not pass.
    Refused(String),
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// The shard is here, sealed and verified.
    Verified,
    /// The node has no room for the shard.
    NoRoom,
    /// No node has the shard, and the origin lacks it, or has another version or damaged bytes. Or
    /// this node may not open its dataset.
    Gone,
    /// The shard could not be read now.
    Failed,
}

/// A command that an operator can send to any node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Plan a change, and change nothing.
    Plan {
        /// The edits of the ring's members.
        edits: Vec<Edit>,
        /// Owners of each shard; none: as many as now.
        replicas: Option<u8>,
    },
    /// Begin a planned change.
    Apply {
        /// The answer to [`Command::Plan`].
        planned: PlanBlobs,
        /// Bytes a second over all nodes.
        rate: Option<u64>,
        /// The operator, for the audit log.
        asked_by: String,
    },
    /// Steer the change in flight.
    Steer {
        /// The action.
        steer: Steer,
        /// The change that is meant; another one is not touched. None: the one in flight.
        change: Option<u64>,
    },
    /// Move all shards off this node, then remove it from the ring.
    Drain {
        /// The node.
        id: String,
        /// The longest time that may take.
        deadline: Option<Duration>,
    },
    /// Keep a draining node in the ring.
    Undrain(String),
    /// Remove these nodes, which are dead for good.
    Remove(Vec<String>),
}

/// An action on the change in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Stop pulls; keep the shards that were pulled.
    Pause,
    /// Pull again.
    Resume,
    /// Give the change up.
    Abort,
    /// Move at most this many bytes a second; none: no rate.
    Rate(Option<u64>),
}

impl Steer {
    /// Returns the command for the change in flight, whichever it is.
    pub fn any(self) -> Command {
        Command::Steer { steer: self, change: None }
    }
}

/// The answer to a command that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The record shows the result.
    Done,
    /// The plan that was asked for.
    Planned(PlanBlobs),
}

/// A ring with the exceptions of its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingOf {
    /// Its version.
    pub version: u64,
    /// Its members, sorted by id.
    pub members: Vec<Member>,
    /// How the ring counts weights, and how many nodes own a shard.
    pub scheme: Scheme,
    /// Its exceptions; none when the ring alone decides every owner.
    pub placement: Option<BlobId>,
}

/// One thing that the shell is to do. Each effect with an answer names its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Announce these bytes, and renew the announcement as long as agents ask for it. It ends
    /// [`Timing::announcement_ttl`](crate::Timing) after the last request.
    Announce(Vec<u8>),
    /// End the announcement.
    Withdraw,
    /// Read record and announcements from the coordinator, not from a cache: [`Event::Refreshed`].
    Refresh(Ticket),
    /// Put all the blobs, then replace the record: [`Event::Proposed`].
    Propose {
        /// The ticket of the answer.
        ticket: Ticket,
        /// Blobs that the record names and the coordinator may lack.
        blobs: Vec<Vec<u8>>,
        /// The revision that the record was computed from; none when there was no record.
        expected: Option<Revision>,
        /// The new record.
        record: Vec<u8>,
    },
    /// Ask the planner, on another thread: [`Event::Planned`].
    Plan(Ticket, Task),
    /// Get a blob: [`Event::Blob`].
    Fetch(BlobId),
    /// Delete all blobs but these and young ones, if the record still has this revision.
    Sweep {
        /// The revision of the record that names exactly the blobs in `keep`.
        at: Revision,
        /// The blobs to keep.
        keep: Vec<BlobId>,
    },
    /// Use this ring from now on, and tell clients: [`Event::Installed`].
    Install {
        /// The ring.
        ring: RingOf,
        /// The ring before it. Its owners are asked before the origin.
        previous: Option<RingOf>,
    },
    /// Pull a shard and verify it: [`Event::Pulled`], at once when the shard is here. Read it from
    /// `from`, else from any node that has it, else from the origin.
    Pull {
        /// The plan that moves it.
        plan: BlobId,
        /// The shard.
        shard: Shard,
        /// Its size.
        bytes: u64,
        /// The owner that gives it away.
        from: String,
        /// Whether client reads take precedence. False when an operator's rate or a deadline sets
        /// the speed.
        yields: bool,
    },
    /// Ask these nodes when each of their shards of these snapshots was last read:
    /// [`Event::LastUses`].
    AskLastUses {
        /// The plan to be sorted.
        plan: BlobId,
        /// The sources, each with the snapshots that it gives shards of.
        givers: BTreeMap<String, BTreeSet<SnapshotId>>,
        /// The shards of the plan. Only their uses are needed.
        wanted: Arc<BTreeMap<Shard, usize>>,
    },
    /// Drop an old copy, as its new owner has the shard.
    Drop(Shard),
    /// The answer to a command.
    Reply(Ticket, Result<Answer, String>),
    /// A line for the audit log: what this agent did to the cluster.
    Audit(String),
    /// A line that an operator should see.
    Alarm(String),
}
