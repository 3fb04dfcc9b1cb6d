//! Calls from one node's coordinator to another's, and the meaning of their failures.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use larder_base::{Error, ErrorKind, limits};
use larder_wire::{
    control::{
        BlobPiece, COORDINATOR_METADATA, GENERATION_METADATA, GetBlobRequest, JOIN_TOKEN_METADATA,
        LocateResponse, PutBlobRequest, coordinator_client::CoordinatorClient,
    },
    status,
};
use tonic::metadata::{BinaryMetadataValue, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::message::{blob_field, blob_id};
use super::token::JoinToken;
use super::types::{self, BlobId, CoordinatorError};

/// How often a silent connection is probed, and how long the probe's answer may take.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a broken call may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It only reads.
    Reads,
    /// It changes something.
    Writes,
}

/// The place of the coordinator, as some node states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaderAddress {
    pub(super) generation: u32,
    /// `http://host:port`; empty if unknown.
    pub(super) coordinator: String,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) struct CallFault {
    pub(super) error: CoordinatorError,
    /// Set if the node does not coordinate: the place of the coordinator.
    pub(super) elsewhere: Option<LeaderAddress>,
}

/// An answer, with the generation of the answering node.
pub(super) type Answered<T> = Result<(T, u32), CallFault>;

/// Another node.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    address: String,
    client: CoordinatorClient<Channel>,
    token: JoinToken,
}

impl Caller {
    /// Creates a connection that opens at the first call. `address` is `http://host:port`.
    pub(super) fn new(address: &str, token: &JoinToken) -> Result<Self, Error> {
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|why| {
            Error::new(ErrorKind::InvalidArgument, format!("{address} is no address: {why}"))
        })?;
        let channel = endpoint
            .connect_timeout(limits::CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
            .connect_lazy();
        let client = CoordinatorClient::new(channel)
            .max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX);
        Ok(Self { address: address.to_owned(), client, token: token.clone() })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Makes one call, in bounded time. `generation` is the greatest that this node knows.
    pub(super) async fn call<M, T, F>(
        &self,
        generation: u32,
        effect: Effect,
        message: M,
        send: impl FnOnce(CoordinatorClient<Channel>, Request<M>) -> F,
    ) -> Answered<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let sent = send(self.client.clone(), self.request(generation, message));
        self.answer(limits::COORDINATOR_CALL_TIMEOUT, effect, sent).await
    }

    /// Asks for the node's view of the coordinator's place.
    pub(super) async fn locate(&self, generation: u32) -> Answered<LocateResponse> {
        let message = larder_wire::control::LocateRequest {};
        let send =
            async |mut client: CoordinatorClient<Channel>, request| client.locate(request).await;
        self.call(generation, Effect::Reads, message, send).await
    }

    /// Sends a blob.
    pub(super) async fn put_blob(&self, generation: u32, bytes: &Bytes) -> Answered<BlobId> {
        let pieces: Vec<PutBlobRequest> =
            pieces(bytes).map(|(bytes, piece)| PutBlobRequest { bytes, piece }).collect();
        let mut client = self.client.clone();
        let request = self.request(generation, stream::iter(pieces));
        let sent = async move { client.put_blob(request).await };
        let limit = limits::BLOB_TRANSFER_TIMEOUT;
        let (answer, theirs) = self.answer(limit, Effect::Writes, sent).await?;
        let id = blob_id(&answer.blob_id).map_err(refused)?;
        Ok((id, theirs))
    }

    /// Gets a blob, and checks it against its id.
    pub(super) async fn blob(&self, generation: u32, id: BlobId) -> Answered<Option<Bytes>> {
        let request = self.request(generation, GetBlobRequest { blob_id: blob_field(&id) });
        let mut client = self.client.clone();
        let get = async {
            let answer = client.get_blob(request).await?;
            let metadata = answer.metadata().clone();
            Ok(Response::from_parts(
                metadata,
                collect(answer.into_inner()).await?,
                tonic::Extensions::default(),
            ))
        };
        match self.answer(limits::BLOB_TRANSFER_TIMEOUT, Effect::Reads, get).await {
            Ok((bytes, theirs)) if BlobId::of(&bytes) == id => Ok((Some(bytes), theirs)),
            Ok(_) => {
                let why = format!("{} sent other bytes than blob {id}", self.address);
                Err(refused(Error::new(ErrorKind::DataLoss, why)))
            }
            Err(CallFault { error: CoordinatorError::Refused(why), .. })
                if why.kind() == ErrorKind::NotFound =>
            {
                Ok((None, generation))
            }
            Err(fault) => Err(fault),
        }
    }

    fn request<M>(&self, generation: u32, message: M) -> Request<M> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        let token = BinaryMetadataValue::from_bytes(self.token.as_bytes());
        metadata.insert_bin(JOIN_TOKEN_METADATA, token);
        metadata.insert(GENERATION_METADATA, MetadataValue::from(generation));
        request
    }

    async fn answer<T>(
        &self,
        limit: Duration,
        effect: Effect,
        sent: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Answered<T> {
        let answered = tokio::time::timeout(limit, sent).await;
        let answered = answered.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("no answer within {limit:?}")))
        });
        match answered {
            Ok(answer) => {
                let theirs = generation(answer.metadata()).unwrap_or(0);
                Ok((answer.into_inner(), theirs))
            }
            Err(status) => {
                let elsewhere = whereabouts(status.metadata());
                let effect = if elsewhere.is_some() { Effect::Reads } else { effect };
                Err(CallFault { error: outcome(&self.address, &status, effect), elsewhere })
            }
        }
    }
}

fn refused(why: Error) -> CallFault {
    CallFault { error: CoordinatorError::Refused(why), elsewhere: None }
}

/// Returns the generation that a message names.
pub(super) fn generation(metadata: &MetadataMap) -> Option<u32> {
    metadata.get(GENERATION_METADATA)?.to_str().ok()?.parse().ok()
}

/// Returns the coordinator's place, if a refusal names it.
fn whereabouts(metadata: &MetadataMap) -> Option<LeaderAddress> {
    let generation = generation(metadata)?;
    let coordinator = metadata.get(COORDINATOR_METADATA).and_then(|place| place.to_str().ok());
    Some(LeaderAddress { generation, coordinator: coordinator.unwrap_or_default().to_owned() })
}

/// Maps a failed call to an error for its caller.
pub(super) fn outcome(address: &str, status: &Status, effect: Effect) -> CoordinatorError {
    let cause = status.source();
    let message = match cause {
        Some(cause) => larder_base::root_cause(cause).to_string(),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    };
    let kind = status::kind(status.code());
    let error = Error::new(kind, format!("{address}: {message}"));
    match status.code() {
        // Only an answering node refuses. Statuses of the transport have a cause.
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
            if cause.is_none() =>
        {
            CoordinatorError::Refused(error)
        }
        _ if effect == Effect::Reads || was_never_sent(status) => CoordinatorError::Away(error),
        _ => CoordinatorError::Unknown(error),
    }
}

/// Returns true if not even a connection was made.
fn was_never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Splits a blob for the wire. The first piece carries the length. An empty blob is one piece.
pub(super) fn pieces(bytes: &Bytes) -> impl Iterator<Item = (u64, Bytes)> + use<> {
    let (bytes, length) = (bytes.clone(), bytes.len());
    (0..length.max(1)).step_by(limits::BLOB_PIECE_BYTES).map(move |from| {
        let to = length.min(from + limits::BLOB_PIECE_BYTES);
        (if from == 0 { length as u64 } else { 0 }, bytes.slice(from..to))
    })
}

/// Joins pieces, within the length that the first one names.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    length: Option<usize>,
    bytes: BytesMut,
}

impl Assembly {
    /// Takes the next piece.
    pub(super) fn take(&mut self, length: u64, piece: &Bytes) -> Result<(), CoordinatorError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let length = types::check_blob(length)?;
                self.bytes.reserve(length);
                *self.length.insert(length)
            }
        };
        if self.bytes.len() + piece.len() > length {
            let why = format!("more pieces of a blob than the {length} bytes it was said to have");
            return Err(CoordinatorError::refused(ErrorKind::InvalidArgument, why));
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Returns the whole blob.
    pub(super) fn finish(self) -> Result<Bytes, CoordinatorError> {
        if self.length != Some(self.bytes.len()) {
            let why = format!("a blob that broke off after {} bytes", self.bytes.len());
            return Err(CoordinatorError::refused(ErrorKind::InvalidArgument, why));
        }
        Ok(self.bytes.freeze())
    }
}

async fn collect(mut pieces: Streaming<BlobPiece>) -> Result<Bytes, Status> {
    let mut assembly = Assembly::default();
    while let Some(BlobPiece { bytes, piece }) = pieces.message().await? {
        assembly.take(bytes, &piece).map_err(|why| Status::data_loss(why.to_string()))?;
    }
    assembly.finish().map_err(|why| Status::data_loss(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_pieces(bytes: &Bytes) -> Bytes {
        let mut assembly = Assembly::default();
        pieces(bytes).for_each(|(length, piece)| assembly.take(length, &piece).unwrap());
        assembly.finish().unwrap()
    }

    #[test]
    fn blob_of_any_length_is_joined_from_its_pieces() {
        for length in [0, 1, limits::BLOB_PIECE_BYTES, 2 * limits::BLOB_PIECE_BYTES + 7] {
            let bytes = Bytes::from(vec![7; length]);
            assert_eq!(through_pieces(&bytes), bytes);
            assert!(pieces(&bytes).all(|(_, piece)| piece.len() <= limits::BLOB_PIECE_BYTES));
        }
    }

    #[test]
    fn pieces_beyond_the_stated_length_are_refused() {
        let piece = Bytes::from_static(b"12345");
        assert!(Assembly::default().take(u64::MAX, &piece).is_err());
        assert!(Assembly::default().take(limits::BLOB_BYTES_MAX as u64 + 1, &piece).is_err());
        assert!(Assembly::default().take(4, &piece).is_err());
        let mut short = Assembly::default();
        short.take(6, &piece).unwrap();
        assert!(short.finish().is_err());
        assert!(Assembly::default().finish().is_err());
    }
}
