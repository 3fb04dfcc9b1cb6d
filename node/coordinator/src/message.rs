//! Converts between the contract's types and the messages on the wire and in the folder.

use std::time::Duration;

use bytes::Bytes;
use larder_base::{Error, ErrorKind};
use larder_wire::control::{
    Announcement as AnnouncementMessage, Announcements, ClusterView, StoredRecord, boot_id,
};

use super::types::{Alive, Announcement, BlobId, CoordinatorView, RecordAtRevision, Revision};

/// The state that a coordinator keeps in its folder.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PersistedState {
    /// The greatest generation heard of.
    #[prost(uint32, tag = "1")]
    pub(super) generation: u32,
    /// Whether this coordinator is the coordinator of that generation.
    #[prost(bool, tag = "2")]
    pub(super) coordinates: bool,
    /// If not: the address of that coordinator, as far as known.
    #[prost(string, tag = "3")]
    pub(super) coordinator: String,
    /// The record. On a coordinator it is the one in force, else the newest with all its blobs
    /// here.
    #[prost(message, optional, tag = "4")]
    pub(super) record: Option<StoredRecord>,
    /// The announced nodes; only on a coordinator.
    #[prost(message, optional, tag = "5")]
    pub(super) announcements: Option<Announcements>,
    /// The greatest promised generation, and the node it was promised to.
    #[prost(uint32, tag = "6")]
    pub(super) promised: u32,
    #[prost(string, tag = "7")]
    pub(super) promised_to: String,
    /// Former coordinators that have not yet heard that they were replaced.
    #[prost(string, repeated, tag = "8")]
    pub(super) supersedes: Vec<String>,
    /// The address of the node that the generation was promised to.
    #[prost(string, tag = "9")]
    pub(super) promised_at: String,
}

/// A promised generation that has not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) generation: u32,
    pub(super) node_id: String,
    /// The address of that node: `http://host:port`.
    pub(super) address: String,
}

impl PersistedState {
    /// Returns the revision of the local record.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.record.as_ref().map(|record| Revision(record.revision))
    }

    /// Returns the promise that binds this coordinator. It then ignores coordinators of earlier
    /// generations.
    pub(super) fn promise(&self) -> Option<Promise> {
        let binds = self.promised > self.generation && !self.promised_to.is_empty();
        binds.then(|| Promise {
            generation: self.promised,
            node_id: self.promised_to.clone(),
            address: self.promised_at.clone(),
        })
    }

    /// Takes a promise back. The generation is not used again.
    pub(super) fn release(&mut self, promise: &Promise) {
        if self.promise().as_ref() == Some(promise) {
            self.promised_to.clear();
        }
    }

    /// Returns the least generation that this coordinator accepts.
    pub(super) fn least_generation(&self) -> u32 {
        self.promise().map_or(self.generation, |promise| promise.generation)
    }

    /// Returns a number above `number`: the generation in its upper half, a count in its lower.
    pub(super) fn number_after(&self, number: Option<u64>) -> u64 {
        let first = u64::from(self.generation) << 32;
        number.map_or(first, |number| number.max(first)) + 1
    }

    /// Converts to a view.
    pub(super) fn view(&self) -> Result<CoordinatorView, Error> {
        let message = ClusterView {
            record: self.record.clone(),
            announcements: Some(self.announcements.clone().unwrap_or_default()),
        };
        view(message)
    }
}

/// Decodes a view from a message that has all its parts.
pub(super) fn view(message: ClusterView) -> Result<CoordinatorView, Error> {
    Ok(CoordinatorView {
        record: message.record.map(stored).transpose()?,
        alive: alive(message.announcements.unwrap_or_default())?,
    })
}

/// Encodes a whole view.
pub(super) fn view_message(view: &CoordinatorView) -> ClusterView {
    ClusterView {
        record: view.record.as_ref().map(stored_message),
        announcements: Some(alive_message(&view.alive)),
    }
}

pub(super) fn stored(message: StoredRecord) -> Result<RecordAtRevision, Error> {
    Ok(RecordAtRevision {
        revision: Revision(message.revision),
        record: message.record,
        blobs: blob_ids(&message.blobs)?,
    })
}

pub(super) fn stored_message(stored: &RecordAtRevision) -> StoredRecord {
    StoredRecord {
        revision: stored.revision.0,
        record: stored.record.clone(),
        blobs: stored.blobs.iter().map(blob_field).collect(),
    }
}

pub(super) fn alive(message: Announcements) -> Result<Alive, Error> {
    let nodes = message.nodes.into_iter().map(|node| {
        let node = announcement(node)?;
        Ok((node.node_id.clone(), node))
    });
    Ok(Alive { stamp: message.stamp, nodes: nodes.collect::<Result<_, Error>>()? })
}

pub(super) fn alive_message(alive: &Alive) -> Announcements {
    Announcements {
        stamp: alive.stamp,
        nodes: alive.nodes.values().map(announcement_message).collect(),
    }
}

pub(super) fn announcement(message: AnnouncementMessage) -> Result<Announcement, Error> {
    Ok(Announcement {
        node_id: message.node_id,
        boot: boot_id(&message.boot_id)?,
        word: message.word,
        ttl: Duration::from_millis(message.ttl_ms),
    })
}

pub(super) fn announcement_message(announcement: &Announcement) -> AnnouncementMessage {
    AnnouncementMessage {
        node_id: announcement.node_id.clone(),
        boot_id: Bytes::copy_from_slice(announcement.boot.as_bytes()),
        word: announcement.word.clone(),
        ttl_ms: u64::try_from(announcement.ttl.as_millis()).unwrap_or(u64::MAX),
    }
}

pub(super) fn blob_ids(fields: &[Bytes]) -> Result<Vec<BlobId>, Error> {
    fields.iter().map(|field| blob_id(field)).collect()
}

pub(super) fn blob_id(field: &[u8]) -> Result<BlobId, Error> {
    let bytes = field.try_into().map_err(|_| {
        let why = format!("a blob is named by 16 bytes, not by {}", field.len());
        Error::new(ErrorKind::InvalidArgument, why)
    })?;
    Ok(BlobId::from_bytes(bytes))
}

pub(super) fn blob_field(id: &BlobId) -> Bytes {
    Bytes::copy_from_slice(id.as_bytes())
}
