//! Keeps the agreed state of a cluster in one place:
//!
//! - one small record that changes only by compare-and-set;
//! - blobs that never change;
//! - announcements that expire unless renewed.
//!
//! The coordinator keeps bytes and does not interpret them. [`Coordinator`] has two
//! implementations, and one test suite runs over both:
//!
//! - [`EmbeddedCoordinator`]: one of the nodes keeps the state in files and serves it to the others
//!   over gRPC. A coordinator [serves](embedded::leader) or [follows](embedded::follower). If the
//!   serving node is lost, an operator has a follower [take over](takeover).
//! - [`Etcd`]: etcd keeps the state.
//!
//! Guarantees to callers:
//!
//! - A revision names one content for ever. Of two revisions the greater is newer, across restarts
//!   and takeovers.
//! - An acknowledged change survives kill -9 and loss of power. A change without an answer
//!   ([`CoordinatorError::Unknown`]) may be done, or yet become done: read again.
//! - A record never names a blob that is missing.
//! - A [`Watch`] shows the latest state and may skip states in between. After an absence of the
//!   coordinator it shows everything that changed meanwhile.
//! - An announcement lasts at least its time to live from the last renewal. Its end is a suspicion,
//!   not a proof of death.
//!
//! Thread rule: async, on any tokio runtime; blocking threads touch the files. Non-goals:
//! interpreting the bytes, agreement among several coordinators (etcd does that).

mod embedded;
mod etcd;
mod message;
mod peer;
mod token;
mod types;
mod watch;

pub use embedded::service::{Guarded, Service, TokenInterceptor};
pub use embedded::takeover::{ClusterPeer, Takeover};
pub use embedded::{EmbeddedCoordinator, EmbeddedOptions};
pub use etcd::{Etcd, EtcdOptions, EtcdTls, Password};
pub use token::JoinToken;
pub use types::{
    Alive, Announcement, BlobId, CoordinatorError, CoordinatorView, RecordAtRevision, Replaced,
    Revision,
};
pub use watch::Watch;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::BootId;

/// Returns the time of the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this crate's one reading of the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Returns a random time from half of `wait` to all of it, for waits between attempts.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Keeps the agreed state of a cluster. See the [module](self) for its guarantees.
///
/// # Errors
/// All calls: [`CoordinatorError`].
#[tonic::async_trait]
pub trait Coordinator: Debug + Send + Sync {
    /// Returns record and announcements as of some moment after the call began; never from a cache.
    async fn read(&self) -> Result<CoordinatorView, CoordinatorError>;

    /// Sets the record to these bytes, at most
    /// [`RECORD_BYTES_MAX`](larder_wire::limits::RECORD_BYTES_MAX). Only if it is still at revision
    /// `expected` (`None`: there is none) and all its `blobs` are there.
    async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError>;

    /// Keeps a blob of at most [`BLOB_BYTES_MAX`](larder_wire::limits::BLOB_BYTES_MAX) bytes until
    /// it is [swept](Self::sweep). Repeating the call changes nothing.
    async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError>;

    /// Returns the blob with that id, if there is one. Its bytes are checked against the id.
    async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError>;

    /// Deletes all blobs that the record does not need, if it is still at revision `at`. Returns
    /// their number, or `None` if the record has changed.
    async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError>;

    /// Announces a node until its time to live is over. A repeated call renews the announcement, or
    /// replaces that of an earlier boot of the node.
    async fn announce(&self, announcement: Announcement) -> Result<(), CoordinatorError>;

    /// Ends the announcement that this boot of the node made, if it is there.
    async fn withdraw(&self, node_id: &str, boot: BootId) -> Result<(), CoordinatorError>;

    /// Follows changes, starting with the state known now.
    fn watch(&self) -> Watch;
}

#[cfg(test)]
mod tests;
