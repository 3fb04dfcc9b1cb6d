//! The coordinator in etcd (3.4 or later), under a prefix of its own.
//!
//! ```text
//! PREFIX/state/record       the record and its blobs' names; its revision is the mod_revision
//! PREFIX/state/alive/NODE   an announcement, on a lease of its node
//! PREFIX/blobs/HASH         the length of a blob; written when all its pieces are there
//! PREFIX/pieces/HASH/NNNN   its pieces, below etcd's limit on a request
//! ```
//!
//! Every change is one transaction that names the revisions it depends on. So a record never names
//! a blob that another node has swept. Several endpoints are tried in turn. Permissions, users and
//! certificates are etcd's own.
//!
//! Thread rule: one task watches; calls come from anywhere. Non-goals: compaction and backup, which
//! belong to the operation of etcd. Its history is not used.

mod announce;
mod connection;
mod follow;
mod keys;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use larder_base::{BootId, Error, ErrorKind, limits};
use larder_wire::control::StoredRecord;
use prost::Message;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Coordinator;
use super::message::{blob_field, stored};
use super::peer::{Assembly, pieces};
use super::types::{
    self, Announcement, BlobId, CoordinatorError, CoordinatorView, RecordAtRevision, Replaced,
    Revision, no_room_for_blobs,
};
use super::watch::{Publisher, Watch};
use announce::Leases;
use connection::EtcdConnection;
use keys::Keys;
use wire::{KeyValue, Op, TxnRequest};

/// Tries for a blob, in case another node sweeps its pieces during the write.
const PUT_TRIES_MAX: usize = 3;

/// Blobs swept by one transaction: two operations each, and etcd accepts 128.
const SWEPT_AT_ONCE_MAX: usize = 60;

/// How to reach etcd.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`, tried in turn.
    pub endpoints: Vec<String>,
    /// The prefix of all keys; each cluster needs its own.
    pub prefix: String,
    /// Name and password, if etcd asks for them.
    pub user: Option<(String, Password)>,
    /// Certificates, for `https`.
    pub tls: Option<EtcdTls>,
}

/// A password, which is never printed.
#[derive(Clone)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Certificates, in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// The authority that certifies etcd's servers.
    pub ca: Vec<u8>,
    /// This node's certificate and key, if etcd asks for them.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTls")
            .field("identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// A cluster's coordinator in etcd. Its watch ends when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    store: Arc<Store>,
    leases: Leases,
    publisher: Arc<Publisher>,
    _end: DropGuard,
}

/// The state that calls and the watch share.
#[derive(Debug)]
struct Store {
    line: EtcdConnection,
    keys: Keys,
}

impl Etcd {
    /// Begins to follow the state under the prefix. Call it inside a runtime; etcd need not answer
    /// yet.
    ///
    /// # Errors
    /// An endpoint is no address, the prefix is empty, or a certificate can't be read.
    pub fn start(options: &EtcdOptions) -> Result<Self, Error> {
        let store = Arc::new(Store {
            line: EtcdConnection::new(options)?,
            keys: Keys::new(&options.prefix)?,
        });
        let publisher = Arc::new(Publisher::new());
        let end = CancellationToken::new();
        let following = follow::follow(Arc::clone(&store), Arc::clone(&publisher));
        tokio::spawn(end.clone().run_until_cancelled_owned(following));
        Ok(Self { store, leases: Leases::default(), publisher, _end: end.drop_guard() })
    }
}

#[tonic::async_trait]
impl Coordinator for Etcd {
    async fn read(&self) -> Result<CoordinatorView, CoordinatorError> {
        Ok(self.store.read().await?.0)
    }

    async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError> {
        types::check_record(&record, &blobs)?;
        self.store.replace(expected, record, &blobs).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError> {
        types::check_blob(bytes.len() as u64)?;
        let id = BlobId::of(&bytes);
        let put = self.store.put_blob(id, &bytes);
        let put = tokio::time::timeout(limits::BLOB_TRANSFER_TIMEOUT, put).await;
        put.unwrap_or_else(|_| Err(CoordinatorError::unknown("the blob was not taken in time")))?;
        Ok(id)
    }

    async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        let get = tokio::time::timeout(limits::BLOB_TRANSFER_TIMEOUT, self.store.blob(id)).await;
        get.unwrap_or_else(|_| Err(CoordinatorError::away("the blob did not come in time")))
    }

    async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError> {
        self.store.sweep(at).await
    }

    async fn announce(&self, node: Announcement) -> Result<(), CoordinatorError> {
        types::check_announcement(&node)?;
        self.leases.announce(&self.store, &node).await
    }

    async fn withdraw(&self, node_id: &str, boot: BootId) -> Result<(), CoordinatorError> {
        self.leases.withdraw(&self.store, node_id, boot).await
    }

    fn watch(&self) -> Watch {
        self.publisher.watch()
    }
}

impl Store {
    /// Reads the state, and the store's revision.
    async fn read(&self) -> Result<(CoordinatorView, i64), CoordinatorError> {
        let alive_max = i64::try_from(limits::ANNOUNCEMENTS_MAX).unwrap_or(i64::MAX);
        let operations =
            vec![wire::get(self.keys.record()), wire::get_all(self.keys.alive(), alive_max, false)];
        let request = TxnRequest { success: operations, ..TxnRequest::default() };
        let answer = self.line.read(request).await?;
        let revision = wire::revision(&answer);
        let [record, alive]: [Vec<KeyValue>; 2] = wire::ranges(answer)?;
        let mut view = CoordinatorView::default();
        view.alive.stamp = u64::try_from(revision).unwrap_or(0);
        view.record = record.into_iter().next().map(decode_record).transpose()?;
        for entry in alive {
            let node = announce::decode(&entry)?;
            view.alive.nodes.insert(node.node_id.clone(), node);
        }
        Ok((view, revision))
    }

    async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: &[BlobId],
    ) -> Result<Replaced, CoordinatorError> {
        let mut compare = vec![wire::is_at(self.keys.record(), revision_number(expected))];
        compare.extend(blobs.iter().map(|id| wire::exists(self.keys.blob(*id))));
        let blobs_field = blobs.iter().map(blob_field).collect();
        let value = StoredRecord { revision: 0, record, blobs: blobs_field }.encode_to_vec();
        let success = vec![wire::put(self.keys.record(), Bytes::from(value), 0)];
        let mut failure = vec![wire::get(self.keys.record())];
        failure.extend(blobs.iter().map(|id| wire::get(self.keys.blob(*id))));
        let answer = self.line.write(TxnRequest { compare, success, failure }).await?;
        if answer.succeeded {
            let revision = u64::try_from(wire::revision(&answer)).unwrap_or(0);
            return Ok(Replaced::Done(Revision(revision)));
        }
        let mut found = wire::all_ranges(answer)?.into_iter();
        let present = found.next().and_then(|record| record.into_iter().next());
        let present = present.map(decode_record).transpose()?;
        if present.as_ref().map(|present| present.revision) != expected {
            return Ok(Replaced::Moved(present));
        }
        let missing = blobs.iter().zip(found).filter(|(_, head)| head.is_empty());
        Ok(Replaced::Missing(missing.map(|(id, _)| *id).collect()))
    }

    async fn put_blob(&self, id: BlobId, bytes: &Bytes) -> Result<(), CoordinatorError> {
        let there = self.blobs().await?;
        if there.contains(&id) {
            return Ok(());
        }
        if there.len() >= limits::BLOBS_KEPT_MAX {
            return Err(no_room_for_blobs());
        }
        for _ in 0..PUT_TRIES_MAX {
            let mut compare = Vec::new();
            for (number, (_, piece)) in pieces(bytes).enumerate() {
                let key = self.keys.piece(id, number);
                compare.push(wire::exists(key.clone()));
                let success = vec![wire::put(key, piece, 0)];
                self.line.write(TxnRequest { success, ..TxnRequest::default() }).await?;
            }
            let length = Bytes::copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            let success = vec![wire::put(self.keys.blob(id), length, 0)];
            let request = TxnRequest { compare, success, failure: Vec::new() };
            if self.line.write(request).await?.succeeded {
                return Ok(());
            }
        }
        Err(CoordinatorError::away("the pieces of a blob were swept while it was put: try again"))
    }

    /// Returns the complete blobs.
    async fn blobs(&self) -> Result<Vec<BlobId>, CoordinatorError> {
        let most = i64::try_from(limits::BLOBS_KEPT_MAX * 4).unwrap_or(i64::MAX);
        let found = self.list(wire::get_all(self.keys.blobs(), most, true)).await?;
        Ok(found.iter().filter_map(|entry| self.keys.blob_of(&entry.key)).collect())
    }

    async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        let head = self.list(wire::get(self.keys.blob(id))).await?;
        let Some(head) = head.into_iter().next() else { return Ok(None) };
        let length = head.value.as_ref().try_into().map(u64::from_le_bytes);
        let length = length.map_err(|_| nonsense("the length of a blob"))?;
        let mut assembly = Assembly::default();
        let count = length.div_ceil(limits::BLOB_PIECE_BYTES as u64).max(1);
        types::check_blob(length)?;
        for number in 0..usize::try_from(count).unwrap_or(usize::MAX) {
            let piece = self.list(wire::get(self.keys.piece(id, number))).await?;
            // It was swept meanwhile.
            let Some(piece) = piece.into_iter().next() else { return Ok(None) };
            assembly.take(length, &piece.value)?;
        }
        let bytes = assembly.finish()?;
        if BlobId::of(&bytes) != id {
            return Err(nonsense("the bytes of a blob"));
        }
        Ok(Some(bytes))
    }

    async fn list(&self, operation: Op) -> Result<Vec<KeyValue>, CoordinatorError> {
        let request = TxnRequest { success: vec![operation], ..TxnRequest::default() };
        let [found] = wire::ranges(self.line.read(request).await?)?;
        Ok(found)
    }

    async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError> {
        let record = self.list(wire::get(self.keys.record())).await?.into_iter().next();
        let record = record.map(decode_record).transpose()?;
        let Some(record) = record.filter(|record| record.revision == at) else { return Ok(None) };
        // Includes the pieces of a blob after its write broke off.
        let most = i64::try_from(limits::BLOBS_KEPT_MAX * 64).unwrap_or(i64::MAX);
        let pieces = self.list(wire::get_all(self.keys.pieces(), most, true)).await?;
        let mut ids = self.blobs().await?;
        ids.extend(pieces.iter().filter_map(|entry| self.keys.blob_of_piece(&entry.key)));
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| !record.blobs.contains(id));
        for some in ids.chunks(SWEPT_AT_ONCE_MAX) {
            let compare = vec![wire::is_at(self.keys.record(), revision_number(Some(at)))];
            let success = some.iter().flat_map(|id| {
                [wire::delete(self.keys.blob(*id)), wire::delete_all(self.keys.pieces_of(*id))]
            });
            let request = TxnRequest { compare, success: success.collect(), failure: Vec::new() };
            if !self.line.write(request).await?.succeeded {
                return Ok(None);
            }
        }
        Ok(Some(ids.len() as u64))
    }
}

/// Converts to etcd's number; 0 means that there is no such key.
fn revision_number(revision: Option<Revision>) -> i64 {
    revision.map_or(0, |revision| i64::try_from(revision.0).unwrap_or(i64::MAX))
}

fn decode_record(entry: KeyValue) -> Result<RecordAtRevision, CoordinatorError> {
    let mut message = StoredRecord::decode(entry.value).map_err(|_| nonsense("the record"))?;
    message.revision = u64::try_from(entry.mod_revision).unwrap_or(0);
    stored(message).map_err(CoordinatorError::Refused)
}

/// Returns the error for a foreign value under the prefix.
fn nonsense(what: &str) -> CoordinatorError {
    let why = format!(
        "{what} in etcd is not as Larder writes it: does something else write under this prefix?"
    );
    CoordinatorError::refused(ErrorKind::DataLoss, why)
}
