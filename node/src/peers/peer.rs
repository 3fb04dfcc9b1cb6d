//! One peer: how it is reached, whether it answers, and the connections to it.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_base::{Error, ErrorKind, ShardId, SnapshotId, Ticket, data_address, limits};
use larder_wire::{
    control::{self, IntroduceRequest, ListLastUsesRequest, node_client::NodeClient},
    data::{Part, ReadPart, WireError},
    status::from_status,
};
use tokio::sync::Semaphore;
use tokio::{task, time};
use tonic::transport::{Channel, Endpoint};

use super::connection::Connection;
use crate::clock;
use crate::target::Target;

/// A member of the ring that is not this node.
#[derive(Debug)]
pub(crate) struct Peer {
    id: String,
    control: String,
    own_id: String,
    /// One of these is held while a part is read, so there are never more connections.
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    access: Option<Access>,
    idle: Vec<Connection>,
    /// It is not asked before this.
    away_until: Option<Instant>,
}

/// Where its data plane is and the right to use it, since its last start.
#[derive(Debug, Clone)]
struct Access {
    address: String,
    ticket: Ticket,
}

/// Why a peer did not give what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Missed {
    /// It does not have the shard.
    #[error("it does not have the shard")]
    NotThere,
    /// It does not know us any more: it was started anew.
    #[error("it does not know this node any more")]
    Stranger,
    /// It says nothing: it stands still, or what is sent to it gets lost.
    #[error("it is silent")]
    Silent,
    /// It can't be reached, or does not answer as it should.
    #[error("it can't be asked: {0}")]
    Away(String),
    /// It gave what is not right.
    #[error("it gave wrong bytes: {0}")]
    Wrong(String),
}

impl From<io::Error> for Missed {
    fn from(why: io::Error) -> Self {
        Self::Away(why.to_string())
    }
}

impl From<WireError> for Missed {
    fn from(why: WireError) -> Self {
        Self::Away(why.to_string())
    }
}

impl From<Error> for Missed {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotThere,
            ErrorKind::Unauthenticated => Self::Stranger,
            _ => Self::Away(error.to_string()),
        }
    }
}

impl Peer {
    pub(super) fn new(id: &str, control: &str, own_id: &str) -> Self {
        let [id, control, own_id] = [id, control, own_id].map(str::to_owned);
        let turns = Semaphore::new(limits::PEER_CONNECTIONS_MAX);
        Self { id, control, own_id, turns, state: Mutex::default() }
    }

    /// One of which is known how it is reached.
    #[cfg(test)]
    pub(super) fn met(id: &str, address: &str) -> Self {
        let peer = Self::new(id, "http://127.0.0.1:1", "n1");
        let (address, ticket) = (address.to_owned(), Ticket::from_bytes([0; 16]));
        peer.lock().access = Some(Access { address, ticket });
        peer
    }

    /// Its name in the ring.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether it is worth asking: it was not found away within the last seconds.
    pub(crate) fn answers(&self) -> bool {
        self.lock().away_until.is_none_or(|until| clock::now() >= until)
    }

    /// Fills `target` with a part of a shard, of a peer that says nothing for no longer than `patience`. Returns what it
    /// said of it.
    pub(crate) async fn read(
        &self,
        wanted: &ReadPart,
        target: &mut impl Target,
        patience: Duration,
    ) -> Result<Part, Missed> {
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        // Who had the turn before may have found it away: then nobody in the queue waits for that again.
        if !self.answers() {
            return Err(Missed::Away("it was found away a moment ago".to_owned()));
        }
        let reading = self.try_read(wanted, target, patience);
        let read = time::timeout(limits::PEER_PART_TIMEOUT, reading).await;
        let read = read.unwrap_or(Err(Missed::Silent));
        if let Err(missed) = &read
            && !matches!(missed, Missed::NotThere)
        {
            tracing::debug!(peer = %self.id, %missed, "a peer is passed over for a while");
            let mut state = self.lock();
            *state = State { away_until: Some(clock::now() + AWAY), ..State::default() };
        }
        read
    }

    /// A connection that has outlived the peer's last start is replaced once.
    async fn try_read(
        &self,
        wanted: &ReadPart,
        target: &mut impl Target,
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
        mut connection: Connection,
        wanted: &ReadPart,
        target: &mut impl Target,
    ) -> Result<Part, Missed> {
        let read = connection.read(wanted, target).await;
        if matches!(read, Ok(_) | Err(Missed::NotThere)) {
            self.lock().idle.push(connection);
        }
        read
    }

    /// When its shards of these snapshots were last read: tells `note` of one after the other. Takes as long as it takes.
    pub(crate) async fn last_uses(
        &self,
        snapshots: impl IntoIterator<Item = SnapshotId>,
        mut note: impl FnMut(SnapshotId, ShardId, Duration),
    ) -> Result<(), Missed> {
        let snapshots = snapshots.into_iter().map(|id| Bytes::copy_from_slice(id.as_bytes()));
        let request = ListLastUsesRequest { snapshots: snapshots.collect() };
        let failed = |status| Missed::from(from_status(status));
        let mut client =
            self.call().await?.max_decoding_message_size(limits::LAST_USES_PIECE_BYTES_MAX);
        let mut pieces = client.list_last_uses(request).await.map_err(failed)?.into_inner();
        while let Some(piece) = pieces.message().await.map_err(failed)? {
            let snapshot = control::snapshot_id(&piece.snapshot).map_err(Missed::from)?;
            let (ids, rest) = piece.shard_ids.as_chunks::<16>();
            if !rest.is_empty() || ids.len() != piece.idle_ms.len() {
                return Err(Missed::Wrong("not as many ids as times".to_owned()));
            }
            // Pieces may come faster than they are noted: then this would never be pending, and no deadline would end it.
            task::yield_now().await;
            for (id, idle) in ids.iter().zip(&piece.idle_ms) {
                note(snapshot, ShardId::from_bytes(*id), Duration::from_millis(*idle));
            }
        }
        Ok(())
    }

    /// Its control plane.
    async fn call(&self) -> Result<NodeClient<Channel>, Missed> {
        let endpoint = Endpoint::from_shared(self.control.clone());
        let endpoint = endpoint.map_err(|why| Missed::Away(why.to_string()))?;
        let endpoint = endpoint.connect_timeout(limits::CONNECT_TIMEOUT);
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|why| Missed::Away(larder_base::root_cause(&why)))?;
        Ok(NodeClient::new(channel))
    }

    /// Asks how it is reached, and connects.
    async fn meet(&self, patience: Duration) -> Result<Connection, Missed> {
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

    async fn connect(&self, access: &Access, patience: Duration) -> Result<Connection, Missed> {
        let (connection, ok) =
            Connection::open(&access.address, access.ticket, &self.own_id, patience).await?;
        if ok.node_id == self.id {
            return Ok(connection);
        }
        Err(Missed::Away(format!("node {} answers at {}", ok.node_id, access.address)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a peer that did not answer, or answered wrongly, is passed over.
const AWAY: Duration = limits::NODE_RETRY_AFTER;
