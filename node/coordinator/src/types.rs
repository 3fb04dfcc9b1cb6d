//! The types of the coordinator's contract.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use larder_base::{BootId, Error, ErrorKind, limits};
pub use larder_membership::{BlobId, Revision};

/// Blobs that one record may need: those of the committed, the previous and the next placement, and
/// plans, several times over. All their names fit in one etcd transaction, which takes 128
/// operations.
pub(crate) const RECORD_BLOBS_MAX: usize = 32;

/// Shortest lifetime of an announcement: etcd counts in seconds, and rounds up.
const ANNOUNCEMENT_TTL_MIN: Duration = Duration::from_secs(1);

/// The record at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordAtRevision {
    /// The write that made it.
    pub revision: Revision,
    /// The record.
    pub record: Bytes,
    /// The blobs that it needs.
    pub blobs: Vec<BlobId>,
}

/// A node's announcement that it is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The node.
    pub node_id: String,
    /// The boot of the node that made it.
    pub boot: BootId,
    /// Its payload.
    pub word: Bytes,
    /// How long this lasts from the last renewal. etcd counts in whole seconds and rounds up.
    pub ttl: Duration,
}

/// The announced nodes at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alive {
    /// Grows with every change, across restarts and takeovers. Of two different sets, the greater
    /// stamp marks the newer.
    pub stamp: u64,
    /// The announcements, by node id.
    pub nodes: BTreeMap<String, Announcement>,
}

/// The state that the coordinator keeps at one moment, without blobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoordinatorView {
    /// The record, unless there is none yet.
    pub record: Option<RecordAtRevision>,
    /// The announced nodes.
    pub alive: Alive,
}

/// The outcome of a [`replace`](super::Coordinator::replace).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaced {
    /// It is the record now.
    Done(Revision),
    /// The record was at another revision: this one.
    Moved(Option<RecordAtRevision>),
    /// These blobs are missing: put them, and try again.
    Missing(Vec<BlobId>),
}

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CoordinatorError {
    /// Nothing changed, and nothing will. The request must change, or an operator must act.
    #[error("the coordinator refuses: {0}")]
    Refused(Error),
    /// Nothing changed: the coordinator could not be reached.
    #[error("the coordinator is away: {0}")]
    Away(Error),
    /// No answer came to the request. It may be done, or yet become done.
    #[error("the coordinator did not say whether it was done: {0}")]
    Unknown(Error),
}

impl CoordinatorError {
    pub(super) fn refused(kind: ErrorKind, why: impl Into<String>) -> Self {
        Self::Refused(Error::new(kind, why))
    }

    pub(super) fn away(why: impl Into<String>) -> Self {
        Self::Away(Error::new(ErrorKind::Unavailable, why))
    }

    pub(super) fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown(Error::new(ErrorKind::Unavailable, why))
    }
}

/// Refuses a record or blob list above its limit, before any work on it.
pub(super) fn check_record(record: &[u8], blobs: &[BlobId]) -> Result<(), CoordinatorError> {
    within("a record", record.len(), limits::RECORD_BYTES_MAX)?;
    if blobs.len() > RECORD_BLOBS_MAX {
        let (count, max) = (blobs.len(), RECORD_BLOBS_MAX);
        let why = format!("a record that needs {count} blobs; the limit is {max}");
        return Err(CoordinatorError::refused(ErrorKind::InvalidArgument, why));
    }
    Ok(())
}

/// Refuses a blob above its limit. Returns its length.
pub(super) fn check_blob(bytes: u64) -> Result<usize, CoordinatorError> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    within("a blob", bytes, limits::BLOB_BYTES_MAX)?;
    Ok(bytes)
}

/// Refuses an announcement above its limits. Its id becomes part of a key.
pub(super) fn check_announcement(announcement: &Announcement) -> Result<(), CoordinatorError> {
    within("an announcement", announcement.word.len(), limits::ANNOUNCEMENT_BYTES_MAX)?;
    check_node_id(&announcement.node_id)?;
    let (ttl, least, most) = (announcement.ttl, ANNOUNCEMENT_TTL_MIN, limits::ANNOUNCEMENT_TTL_MAX);
    if ttl < least || ttl > most {
        let why = format!("an announcement that lasts {ttl:?}: say {least:?} to {most:?}");
        return Err(CoordinatorError::refused(ErrorKind::InvalidArgument, why));
    }
    Ok(())
}

fn check_node_id(id: &str) -> Result<(), CoordinatorError> {
    within("a node id", id.len(), limits::MEMBER_ID_BYTES_MAX as usize)?;
    if id.is_empty() || id.contains(|c: char| c == '/' || c.is_control()) {
        let why = format!("{id:?} can't be announced: a node id has letters and no '/'");
        return Err(CoordinatorError::refused(ErrorKind::InvalidArgument, why));
    }
    Ok(())
}

fn within(what: &str, bytes: usize, max: usize) -> Result<(), CoordinatorError> {
    if bytes <= max {
        return Ok(());
    }
    let why = format!("{what} of {bytes} bytes; the limit is {max}");
    Err(CoordinatorError::refused(ErrorKind::InvalidArgument, why))
}

/// Returns the error for a full set of blobs.
pub(super) fn no_room_for_blobs() -> CoordinatorError {
    let max = limits::BLOBS_KEPT_MAX;
    let why = format!("{max} blobs are kept, which is the limit: sweep those that no record needs");
    CoordinatorError::refused(ErrorKind::ResourceExhausted, why)
}
