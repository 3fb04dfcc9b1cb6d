//! What a cluster agrees on, kept in one place: one small record that changes only by
//! compare-and-set, blobs that never change, and announcements that end unless they are renewed.
//!
//! The coordinator keeps bytes and understands none of them. There are two implementations behind
//! [`Coordinator`], and one suite of tests runs over both:
//!
//! - [`Seat`]: one of the nodes keeps it in files and serves it to the others over gRPC. A seat
//!   [serves](embedded) or [follows](remote); an operator can have a follower [take over](takeover)
//!   when the node that served is lost.
//! - [`Etcd`]: etcd keeps it.
//!
//! What a caller may build on:
//!
//! - A revision names one content for ever, and of two revisions the greater is the newer, across
//!   restarts and takeovers.
//! - What was answered as done is kept through kill -9 and loss of power. What came without an
//!   answer ([`CoordinatorError::Unknown`]) may be done, or yet become done: read again.
//! - A record never names a blob that is not there.
//! - A [`Watch`] shows the latest; what lies between may be left out. Whatever happened while the
//!   coordinator was away is in what is shown when it is back.
//! - An announcement lasts at least its time to live from the last renewal. Its end is a suspicion,
//!   not a death.
//!
//! Thread rule: async, on any tokio runtime; files are touched on blocking threads. Non-goals: what
//! the bytes mean, agreement among several coordinators (that is etcd's business).

mod clock;
mod embedded;
mod etcd;
mod folder;
mod leases;
mod ledger;
mod message;
mod peer;
mod remote;
mod seat;
mod service;
mod token;
mod types;
mod watch;

pub use etcd::{Etcd, EtcdOptions, EtcdTls, Password};
pub use seat::takeover::{Peer, Takeover};
pub use seat::{Seat, SeatOptions};
pub use service::{Doorkeeper, Guarded, Service};
pub use token::JoinToken;
pub use types::{Alive, Announcement, BlobId, CoordinatorError, Replaced, Revision, Stored, View};
pub use watch::Watch;

use std::fmt::Debug;

use bytes::Bytes;
use larder_base::BootId;

/// Where a cluster keeps what it agrees on. See the [module](self) for what a caller may build on.
///
/// # Errors
/// All calls: [`CoordinatorError`].
#[tonic::async_trait]
pub trait Coordinator: Debug + Send + Sync {
    /// Record and announcements as they are at some moment after the call began; never from a
    /// cache.
    async fn read(&self) -> Result<View, CoordinatorError>;

    /// Sets the record to these bytes, at most
    /// [`RECORD_BYTES_MAX`](larder_base::limits::RECORD_BYTES_MAX), if it is still at the revision
    /// `expected` (none: if there is none) and all `blobs` that it needs are there.
    async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError>;

    /// Keeps a blob of at most [`BLOB_BYTES_MAX`](larder_base::limits::BLOB_BYTES_MAX) bytes until
    /// it is [swept](Self::sweep). Done again it changes nothing.
    async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError>;

    /// The blob of that name, if there is one; its bytes were checked against the name.
    async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError>;

    /// Deletes all blobs that the record does not need, if it is still at revision `at`. Says how
    /// many, or none when it had moved on.
    async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError>;

    /// Announces a node until its time to live is over; done again it is renewed, or takes the
    /// place of what an earlier start of the node said.
    async fn announce(&self, announcement: Announcement) -> Result<(), CoordinatorError>;

    /// Ends the announcement that this start of the node made, if it is there.
    async fn withdraw(&self, node_id: &str, boot: BootId) -> Result<(), CoordinatorError>;

    /// Follows what changes, beginning with what is known now.
    fn watch(&self) -> Watch;
}

#[cfg(test)]
mod tests;
