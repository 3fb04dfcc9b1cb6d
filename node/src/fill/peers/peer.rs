//! One peer: its addresses, whether it answers, and the connections to it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::{ShardId, SnapshotId, Ticket, data_address, limits};
use larder_wire::control::node_client::NodeClient;
use larder_wire::control::{self, IntroduceRequest, ListLastUsesRequest, TellPlansRequest};
use larder_wire::data::{Part, ReadPart};
use larder_wire::status::from_status;
use tokio::sync::Semaphore;
use tokio::{task, time};
use tonic::transport::{Channel, Endpoint};

use super::connection::{Missed, PeerConnection};
use crate::clock;
use crate::fill::ByteSink;

/// Connections from one node to another, to read its shards. Enough for a link of 25 Gbit/s, and
/// few threads on the other side.
pub(super) const PEER_CONNECTIONS_MAX: usize = 4;

/// Longest message about last uses: ids of 16 bytes, times of at most ten each, and the framing.
const LAST_USES_PIECE_BYTES_MAX: usize = limits::LAST_USES_PIECE * 26 + 256;

/// Timeout of one part of a shard from another node; the part is then read from the origin. A link
/// that takes longer for 8 MiB is not worth the wait.
pub(super) const PEER_PART_TIMEOUT: Duration = Duration::from_secs(4);

/// Another member of the ring.
#[derive(Debug)]
pub(crate) struct Peer {
    id: String,
    control: String,
    own_id: String,
    /// A permit is held while a part is read, which bounds the connections.
    turns: Semaphore,
    state: Mutex<State>,
    /// The connection over which it is told read plans.
    plans: tokio::sync::Mutex<Option<NodeClient<Channel>>>,
}

#[derive(Debug, Default)]
struct State {
    access: Option<Access>,
    idle: Vec<PeerConnection>,
    /// The peer is not asked before this.
    away_until: Option<Instant>,
}

/// The peer's data address and the ticket for it, since its last start.
#[derive(Debug, Clone)]
struct Access {
    address: String,
    ticket: Ticket,
}

impl Peer {
    pub(super) fn new(id: &str, control: &str, own_id: &str) -> Self {
        let [id, control, own_id] = [id, control, own_id].map(str::to_owned);
        let turns = Semaphore::new(PEER_CONNECTIONS_MAX);
        let plans = tokio::sync::Mutex::default();
        Self { id, control, own_id, turns, state: Mutex::default(), plans }
    }

    /// Creates a peer with a known data address.
    #[cfg(test)]
    pub(super) fn met(id: &str, address: &str) -> Self {
        let peer = Self::new(id, "http://127.0.0.1:1", "n1");
        let (address, ticket) = (address.to_owned(), Ticket::from_bytes([0; 16]));
        peer.lock().access = Some(Access { address, ticket });
        peer
    }

    /// Returns its name in the ring.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns true unless it was found away within the last seconds.
    pub(crate) fn answers(&self) -> bool {
        self.lock().away_until.is_none_or(|until| clock::now() >= until)
    }

    /// Fills `target` with a part of a shard. Gives up if the peer says nothing for `patience`.
    /// Returns the peer's statement about the part.
    pub(crate) async fn read(
        &self,
        wanted: &ReadPart,
        target: &mut impl ByteSink,
        patience: Duration,
    ) -> Result<Part, Missed> {
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        // The reader before may have found the peer away. Then no reader in the queue waits for it
        // again.
        if !self.answers() {
            return Err(Missed::Away("it was found away a moment ago".to_owned()));
        }
        let reading = self.try_read(wanted, target, patience);
        let read = time::timeout(PEER_PART_TIMEOUT, reading).await;
        let read = read.unwrap_or(Err(Missed::Silent));
        if let Err(missed) = &read
            && !matches!(missed, Missed::NotThere)
        {
            tracing::debug!(peer = %self.id, %missed, "a peer is skipped for a while");
            let mut state = self.lock();
            *state = State { away_until: Some(clock::now() + AWAY), ..State::default() };
        }
        read
    }

    /// Reads over an idle connection if there is one. Replaces a connection that the peer's restart
    /// broke.
    async fn try_read(
        &self,
        wanted: &ReadPart,
        target: &mut impl ByteSink,
        patience: Duration,
    ) -> Result<Part, Missed> {
        let idle = self.lock().idle.pop();
        if let Some(mut connection) = idle {
            connection.patience = patience;
            match self.read_over(connection, wanted, target).await {
                Err(Missed::Away(_) | Missed::Stranger) => *self.lock() = State::default(),
                answer => return answer,
            }
        }
        let known = self.lock().access.clone();
        let connection = match known {
            Some(access) => match self.connect(&access, patience).await {
                Err(Missed::Away(_) | Missed::Stranger) => self.meet(patience).await?,
                connected => connected?,
            },
            None => self.meet(patience).await?,
        };
        self.read_over(connection, wanted, target).await
    }

    async fn read_over(
        &self,
        mut connection: PeerConnection,
        wanted: &ReadPart,
        target: &mut impl ByteSink,
    ) -> Result<Part, Missed> {
        let read = connection.read(wanted, target).await;
        if matches!(read, Ok(_) | Err(Missed::NotThere)) {
            self.lock().idle.push(connection);
        }
        read
    }

    /// Calls `note` for each shard of these snapshots that the peer holds, with the time since its
    /// last read. A peer that does not finish in time counts with the part that it has listed.
    pub(crate) async fn last_uses(
        &self,
        snapshots: &BTreeSet<SnapshotId>,
        note: impl FnMut(SnapshotId, ShardId, Duration),
    ) {
        let asked = snapshots.iter().copied().take(limits::LAST_USES_SNAPSHOTS_MAX);
        let listing = time::timeout(limits::LAST_USES_TIMEOUT, self.list_last_uses(asked, note));
        if let Err(missed) = listing.await.unwrap_or(Err(Missed::Silent)) {
            tracing::debug!(peer = %self.id, %missed, "it does not list the last reads of all its shards");
        }
    }

    /// Calls `note` for each shard of these snapshots that the peer holds. Has no deadline.
    pub(crate) async fn list_last_uses(
        &self,
        snapshots: impl IntoIterator<Item = SnapshotId>,
        mut note: impl FnMut(SnapshotId, ShardId, Duration),
    ) -> Result<(), Missed> {
        let snapshots = snapshots.into_iter().map(|id| Bytes::copy_from_slice(id.as_bytes()));
        let request = ListLastUsesRequest { snapshots: snapshots.collect() };
        let failed = |status| Missed::from(from_status(status));
        let mut client = self.call().await?.max_decoding_message_size(LAST_USES_PIECE_BYTES_MAX);
        let mut pieces = client.list_last_uses(request).await.map_err(failed)?.into_inner();
        while let Some(piece) = pieces.message().await.map_err(failed)? {
            let snapshot = control::snapshot_id(&piece.snapshot).map_err(Missed::from)?;
            let (ids, rest) = piece.shard_ids.as_chunks::<16>();
            if !rest.is_empty() || ids.len() != piece.idle_ms.len() {
                return Err(Missed::Wrong("not as many ids as times".to_owned()));
            }
            // Pieces may arrive faster than they are noted. Without this the future never pends,
            // and no deadline ends it.
            task::yield_now().await;
            for (id, idle) in ids.iter().zip(&piece.idle_ms) {
                note(snapshot, ShardId::from_bytes(*id), Duration::from_millis(*idle));
            }
        }
        Ok(())
    }

    /// Tells it read plans. If that fails, the next message makes up for it.
    pub(crate) async fn tell_plans(&self, plans: TellPlansRequest) {
        let telling = async {
            let mut client = self.plans.lock().await;
            if client.is_none() {
                *client = Some(self.call().await?);
            }
            let told = client.as_mut().expect("connected").tell_plans(plans).await;
            told.map_err(|status| Missed::from(from_status(status)))
        };
        let told = time::timeout(limits::READ_PLAN_INTERVAL, telling).await;
        if let Err(missed) = told.unwrap_or(Err(Missed::Silent)) {
            tracing::debug!(peer = %self.id, %missed, "it was not told the read plans");
            *self.plans.lock().await = None;
        }
    }

    /// Connects to its control plane.
    async fn call(&self) -> Result<NodeClient<Channel>, Missed> {
        let endpoint = Endpoint::from_shared(self.control.clone());
        let endpoint = endpoint.map_err(|why| Missed::Away(why.to_string()))?;
        let endpoint = endpoint.connect_timeout(limits::CONNECT_TIMEOUT);
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|why| Missed::Away(larder_base::root_cause(&why)))?;
        Ok(NodeClient::new(channel))
    }

    /// Asks for its data address and a ticket, and connects.
    async fn meet(&self, patience: Duration) -> Result<PeerConnection, Missed> {
        let request = IntroduceRequest { node_id: self.own_id.clone() };
        let mut client = self.call().await?;
        let met = time::timeout(patience, client.introduce(request)).await;
        let met = met.map_err(|_| Missed::Silent)?;
        let met = met.map_err(|status| Missed::from(from_status(status)))?.into_inner();
        if met.node_id != self.id {
            return Err(Missed::Away(format!("node {} answers at {}", met.node_id, self.control)));
        }
        let access = Access {
            address: data_address(&met.data_address, &self.control),
            ticket: control::ticket(&met.ticket).map_err(Missed::from)?,
        };
        let connection = self.connect(&access, patience).await?;
        self.lock().access = Some(access);
        Ok(connection)
    }

    async fn connect(&self, access: &Access, patience: Duration) -> Result<PeerConnection, Missed> {
        let (connection, ok) =
            PeerConnection::open(&access.address, access.ticket, &self.own_id, patience).await?;
        if ok.node_id == self.id {
            return Ok(connection);
        }
        Err(Missed::Away(format!("node {} answers at {}", ok.node_id, access.address)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a peer that did not answer, or answered wrongly, is skipped.
const AWAY: Duration = limits::NODE_RETRY_AFTER;
