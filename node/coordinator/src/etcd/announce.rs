//! Announcements as keys on leases.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use larder_base::{BootId, ErrorKind, limits};
use larder_wire::control::Announcement as Message;
use prost::Message as _;
use tokio::sync::Mutex;

use super::wire::{
    self, KeyValue, LeaseClient, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    TxnRequest,
};
use super::{Store, nonsense};
use crate::message::{announcement, announcement_message};
use crate::peer::Effect;
use crate::types::{Announcement, CoordinatorError};

/// The leases that this process holds, by node id.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<BTreeMap<String, Lease>>);

#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    ttl: Duration,
}

impl Leases {
    /// Renews the node's lease, or takes one, and puts its key on the lease.
    pub(super) async fn announce(
        &self,
        store: &Store,
        node: &Announcement,
    ) -> Result<(), CoordinatorError> {
        let mut held = self.0.lock().await;
        let known = held.get(&node.node_id).filter(|lease| lease.ttl == node.ttl).copied();
        let lease = match known {
            Some(lease) if renew(store, lease).await? => lease,
            _ => grant(store, node.ttl).await?,
        };
        held.insert(node.node_id.clone(), lease);
        let put = put(store, node, lease).await;
        if let Err(CoordinatorError::Refused(why)) = &put
            && why.kind() == ErrorKind::NotFound
        {
            // The lease ended between the two calls. Nothing changed; the next call takes a new
            // lease.
            held.remove(&node.node_id);
            return Err(CoordinatorError::away(
                "the lease ended before the announcement was on it",
            ));
        }
        put
    }

    /// Deletes the announcement that this boot of the node made.
    pub(super) async fn withdraw(
        &self,
        store: &Store,
        node_id: &str,
        boot: BootId,
    ) -> Result<(), CoordinatorError> {
        let held = self.0.lock().await.remove(node_id);
        let key = store.keys.node(node_id);
        let present = store.list(wire::get(key.clone())).await?.into_iter().next();
        let Some(present) = present else { return Ok(()) };
        if decode(&present)?.boot == boot {
            let compare = vec![wire::is_at(key.clone(), present.mod_revision)];
            let success = vec![wire::delete(key)];
            store.line.write(TxnRequest { compare, success, failure: Vec::new() }).await?;
        }
        if let Some(lease) = held {
            revoke(store, lease).await;
        }
        Ok(())
    }
}

/// Decodes the announcement that a key holds.
pub(super) fn decode(entry: &KeyValue) -> Result<Announcement, CoordinatorError> {
    let message = Message::decode(entry.value.clone());
    let message = message.map_err(|_| nonsense("an announcement"))?;
    announcement(message).map_err(CoordinatorError::Refused)
}

/// Puts the key, unless it already has this value and lease.
async fn put(store: &Store, node: &Announcement, lease: Lease) -> Result<(), CoordinatorError> {
    let key = store.keys.node(&node.node_id);
    let value = Bytes::from(announcement_message(node).encode_to_vec());
    let compare =
        vec![wire::has_value(key.clone(), value.clone()), wire::is_on(key.clone(), lease.id)];
    let failure = vec![wire::put(key, value, lease.id)];
    let request = TxnRequest { compare, success: Vec::new(), failure };
    store.line.write(request).await.map(drop)
}

/// Renews a lease. Returns false if it has ended.
async fn renew(store: &Store, lease: Lease) -> Result<bool, CoordinatorError> {
    let send = |channel, request: tonic::Request<LeaseKeepAliveRequest>| async move {
        let (metadata, extensions, message) = request.into_parts();
        let messages = stream::iter([message]);
        let request = tonic::Request::from_parts(metadata, extensions, messages);
        let mut answers = LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
        let answer = answers.message().await?;
        Ok(tonic::Response::new(answer.is_some_and(|answer| answer.ttl > 0)))
    };
    store.line.call(Effect::Writes, LeaseKeepAliveRequest { id: lease.id }, send).await
}

async fn grant(store: &Store, ttl: Duration) -> Result<Lease, CoordinatorError> {
    let whole_seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let seconds = whole_seconds.min(limits::ANNOUNCEMENT_TTL_MAX.as_secs());
    let request = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX), id: 0 };
    let send =
        |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
    let granted = store.line.call(Effect::Writes, request, send).await?;
    Ok(Lease { id: granted.id, ttl })
}

/// Revokes a lease early. If this fails, the lease expires.
async fn revoke(store: &Store, lease: Lease) {
    let request = LeaseRevokeRequest { id: lease.id };
    let send =
        |channel, request| async move { LeaseClient::new(channel).lease_revoke(request).await };
    if let Err(why) = store.line.call(Effect::Writes, request, send).await {
        tracing::debug!("a lease was not given back: {why}");
    }
}
