//! `larder.v1.Coordinator` on a node's control port: decodes, asks the coordinator, encodes.
//!
//! A caller must show the token before any part of the call is read. Blob transfers and watches are
//! counted. Lengths are checked against their limits before memory is taken.
//!
//! Thread rule: async, on the node's runtime.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use larder_base::{Error, ErrorKind, limits};
use larder_wire::{
    control::{
        AnnounceRequest, AnnounceResponse, BlobPiece, COORDINATOR_METADATA, ClusterView,
        FollowRequest, GENERATION_METADATA, GetBlobRequest, JOIN_TOKEN_METADATA, LocateRequest,
        LocateResponse, PromiseGenerationRequest, PutBlobRequest, PutBlobResponse,
        ReadClusterRequest, ReplaceRecordRequest, ReplaceRecordResponse, SweepBlobsRequest,
        SweepBlobsResponse, WatchClusterRequest, WithdrawRequest, WithdrawResponse, boot_id,
        coordinator_server::{Coordinator as Contract, CoordinatorServer},
        replace_record_response,
    },
    status::to_status,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

use super::leader::Leader;
use super::{EmbeddedCoordinator, Role};
use crate::message::{
    Promise, alive_message, announcement, blob_field, blob_id, blob_ids, stored_message,
    view_message,
};
use crate::peer::{self, Assembly, LeaderAddress};
use crate::types::{CoordinatorError, CoordinatorView, Replaced, Revision};
use crate::watch::Watch;

/// Serves a coordinator to the other nodes of its cluster.
#[derive(Debug, Clone)]
pub struct Service(Arc<EmbeddedCoordinator>);

type Answer<T> = Result<Response<T>, Status>;
type Sent<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A service that requires the cluster's token.
pub type Guarded = InterceptedService<CoordinatorServer<Service>, TokenInterceptor>;

impl Service {
    /// Creates the service for the control port.
    #[must_use]
    pub fn guarded(coordinator: &Arc<EmbeddedCoordinator>) -> Guarded {
        let service = CoordinatorServer::new(Self(Arc::clone(coordinator)))
            .max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX);
        let coordinator = Arc::clone(coordinator);
        let interceptor = TokenInterceptor { coordinator, refused: Arc::default() };
        InterceptedService::new(service, interceptor)
    }
}

/// Time between two log lines about callers of one host without the token.
const REFUSAL_TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// Admits callers that show the cluster's token.
#[derive(Debug, Clone)]
pub struct TokenInterceptor {
    coordinator: Arc<EmbeddedCoordinator>,
    /// The last one that the log told of.
    refused: Arc<Mutex<Option<Refusal>>>,
}

/// A refused host, and when the log told of it.
type Refusal = (Option<IpAddr>, Instant);

impl TokenInterceptor {
    /// Tells the log of a refused caller, once a minute for each host.
    fn tell(&self, request: &Request<()>) {
        let (from, now) = (request.remote_addr(), crate::now());
        let host = from.map(|from| from.ip());
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_some_and(|(known, at)| known == host && now < at + REFUSAL_TOLD_INTERVAL) {
            return;
        }
        *refused = Some((host, now));
        let from = from.map_or("an unknown address".to_owned(), |from| from.to_string());
        tracing::warn!(
            "a node at {from} was refused: its token is not that of this cluster; start it with the \
             --token-file of the other nodes"
        );
    }
}

impl tonic::service::Interceptor for TokenInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let shown = request.metadata().get_bin(JOIN_TOKEN_METADATA);
        let shown = shown.and_then(|shown| shown.to_bytes().ok()).unwrap_or_default();
        if self.coordinator.options.token.is(&shown) {
            return Ok(request);
        }
        self.tell(&request);
        let message = "that is not the token of this cluster: start the node with the --token that the others have";
        Err(to_status(Error::new(ErrorKind::Unauthenticated, message)))
    }
}

/// The coordinator in a role, held while a call is answered.
struct Serving(Arc<Role>);

impl Serving {
    fn leader(&self) -> &Leader {
        match &*self.0 {
            Role::Serving(leader) => leader,
            Role::Following(_) => unreachable!("made of a role that serves"),
        }
    }

    fn answer<T>(&self, message: T) -> Answer<T> {
        Ok(with_generation(self.leader().generation(), message))
    }
}

fn with_generation<T>(generation: u32, message: T) -> Response<T> {
    let mut answer = Response::new(message);
    answer.metadata_mut().insert(GENERATION_METADATA, MetadataValue::from(generation));
    answer
}

impl Service {
    /// Returns the coordinator if it is here and the caller knows of no later generation.
    async fn serving(&self, metadata: &MetadataMap) -> Result<Serving, Status> {
        self.heed(metadata).await?;
        let role = self.0.role();
        match &*role {
            Role::Serving(leader) if !leader.ended().is_cancelled() => Ok(Serving(role)),
            _ => Err(elsewhere(&self.0.whereabouts())),
        }
    }

    /// Adopts a greater generation that the caller knows.
    async fn heed(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let theirs = peer::generation(metadata).unwrap_or(0);
        if theirs > self.0.generation() && self.0.serves() {
            let place = LeaderAddress { generation: theirs, coordinator: String::new() };
            self.0.follow(place).await.map_err(|why| self.status(why))?;
        }
        Ok(())
    }

    /// Maps an error to a status. `Away` here means that another node coordinates; unknown stays
    /// unknown.
    fn status(&self, why: CoordinatorError) -> Status {
        match why {
            CoordinatorError::Refused(why) => to_status(why),
            CoordinatorError::Away(_) => elsewhere(&self.0.whereabouts()),
            CoordinatorError::Unknown(why) => Status::unknown(why.message()),
        }
    }
}

/// Returns the status that refers a caller to the coordinator.
fn elsewhere(place: &LeaderAddress) -> Status {
    let known = match place.coordinator.as_str() {
        "" => "which node does is not known here".to_owned(),
        coordinator => format!("{coordinator} does"),
    };
    let message =
        format!("this node does not coordinate, {known} (generation {})", place.generation);
    let mut status = Status::unavailable(message);
    let metadata = status.metadata_mut();
    metadata.insert(GENERATION_METADATA, MetadataValue::from(place.generation));
    if let Ok(coordinator) = MetadataValue::try_from(&place.coordinator) {
        metadata.insert(COORDINATOR_METADATA, coordinator);
    }
    status
}

#[tonic::async_trait]
impl Contract for Service {
    async fn read_cluster(&self, request: Request<ReadClusterRequest>) -> Answer<ClusterView> {
        let serving = self.serving(request.metadata()).await?;
        let view = serving.leader().read().map_err(|why| self.status(why))?;
        serving.answer(view_message(&view))
    }

    type WatchClusterStream = Sent<ClusterView>;

    async fn watch_cluster(
        &self,
        request: Request<WatchClusterRequest>,
    ) -> Answer<Self::WatchClusterStream> {
        let serving = self.serving(request.metadata()).await?;
        let place = Arc::clone(&self.0.watches).try_acquire_owned().map_err(|_| {
            let max = super::WATCHES_MAX;
            let why = format!("{max} nodes watch already, which is the limit");
            to_status(Error::new(ErrorKind::ResourceExhausted, why))
        })?;
        let ended = serving.leader().ended().clone();
        let views = views(self.0.publisher.watch(), ended, place);
        serving.answer(Box::pin(views))
    }

    async fn replace_record(
        &self,
        request: Request<ReplaceRecordRequest>,
    ) -> Answer<ReplaceRecordResponse> {
        let serving = self.serving(request.metadata()).await?;
        let ReplaceRecordRequest { expected, record, blobs } = request.into_inner();
        let blobs = blob_ids(&blobs).map_err(to_status)?;
        let replaced = serving.leader().replace(expected.map(Revision), record, blobs).await;
        let outcome = outcome(replaced.map_err(|why| self.status(why))?);
        serving.answer(ReplaceRecordResponse { outcome: Some(outcome) })
    }

    async fn put_blob(
        &self,
        request: Request<Streaming<PutBlobRequest>>,
    ) -> Answer<PutBlobResponse> {
        let serving = self.serving(request.metadata()).await?;
        // The permit comes before the memory, and is held until the memory is freed.
        let _turn = self.0.transfers.acquire().await.map_err(closed)?;
        let received = self.receive(request.into_inner());
        let received = tokio::time::timeout(limits::BLOB_TRANSFER_TIMEOUT, received).await;
        let bytes =
            received.map_err(|_| Status::deadline_exceeded("the blob came too slowly"))??;
        let put = serving.leader().put_blob(bytes).await;
        let id = put.map_err(|why| self.status(why))?;
        serving.answer(PutBlobResponse { blob_id: blob_field(&id) })
    }

    type GetBlobStream = Sent<BlobPiece>;

    async fn get_blob(&self, request: Request<GetBlobRequest>) -> Answer<Self::GetBlobStream> {
        let serving = self.serving(request.metadata()).await?;
        let id = blob_id(&request.get_ref().blob_id).map_err(to_status)?;
        let turn = Arc::clone(&self.0.transfers).acquire_owned().await.map_err(closed)?;
        let blob = serving.leader().blob(id).await.map_err(|why| self.status(why))?;
        let blob = blob.ok_or_else(|| {
            to_status(Error::new(ErrorKind::NotFound, format!("there is no blob {id}")))
        })?;
        // The blob stays in memory until its last piece is sent.
        let pieces = peer::pieces(&blob).map(move |(bytes, piece)| {
            let _turn = &turn;
            Ok(BlobPiece { bytes, piece })
        });
        serving.answer(Box::pin(stream::iter(pieces)))
    }

    async fn sweep_blobs(&self, request: Request<SweepBlobsRequest>) -> Answer<SweepBlobsResponse> {
        let serving = self.serving(request.metadata()).await?;
        let swept = serving.leader().sweep(Revision(request.get_ref().revision)).await;
        serving.answer(SweepBlobsResponse { swept: swept.map_err(|why| self.status(why))? })
    }

    async fn announce(&self, request: Request<AnnounceRequest>) -> Answer<AnnounceResponse> {
        let serving = self.serving(request.metadata()).await?;
        let node = announcement(request.into_inner().announcement.unwrap_or_default())
            .map_err(to_status)?;
        serving.leader().announce(node).await.map_err(|why| self.status(why))?;
        serving.answer(AnnounceResponse {})
    }

    async fn withdraw(&self, request: Request<WithdrawRequest>) -> Answer<WithdrawResponse> {
        let serving = self.serving(request.metadata()).await?;
        let WithdrawRequest { node_id, boot_id: boot } = request.into_inner();
        let withdrawn =
            serving.leader().withdraw(&node_id, boot_id(&boot).map_err(to_status)?).await;
        withdrawn.map_err(|why| self.status(why))?;
        serving.answer(WithdrawResponse {})
    }

    async fn locate(&self, request: Request<LocateRequest>) -> Answer<LocateResponse> {
        self.heed(request.metadata()).await?;
        Ok(with_generation(self.0.generation(), self.0.located()))
    }

    async fn promise_generation(
        &self,
        request: Request<PromiseGenerationRequest>,
    ) -> Answer<LocateResponse> {
        self.heed(request.metadata()).await?;
        let PromiseGenerationRequest { generation, node_id, address } = request.into_inner();
        let promised = self.0.promise(Promise { generation, node_id, address }).await;
        let located = promised.map_err(|why| self.status(why))?;
        Ok(with_generation(self.0.generation(), located))
    }

    async fn follow(&self, request: Request<FollowRequest>) -> Answer<LocateResponse> {
        let FollowRequest { generation, coordinator } = request.into_inner();
        let place = LeaderAddress { generation, coordinator };
        self.0.follow(place).await.map_err(|why| self.status(why))?;
        Ok(with_generation(self.0.generation(), self.0.located()))
    }
}

impl Service {
    /// Receives a blob in pieces.
    async fn receive(&self, mut pieces: Streaming<PutBlobRequest>) -> Result<Bytes, Status> {
        let mut assembly = Assembly::default();
        while let Some(PutBlobRequest { bytes, piece }) = pieces.message().await? {
            assembly.take(bytes, &piece).map_err(|why| self.status(why))?;
        }
        assembly.finish().map_err(|why| self.status(why))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of an error mapping")]
fn closed(why: tokio::sync::AcquireError) -> Status {
    Status::unavailable(why.to_string())
}

fn outcome(replaced: Replaced) -> replace_record_response::Outcome {
    use replace_record_response::Outcome;
    match replaced {
        Replaced::Done(revision) => Outcome::Revision(revision.0),
        Replaced::Moved(present) => Outcome::Moved(ClusterView {
            record: present.as_ref().map(stored_message),
            announcements: None,
        }),
        Replaced::Missing(names) => {
            let names: Vec<u8> = names.iter().flat_map(|id| *id.as_bytes()).collect();
            Outcome::Missing(Bytes::from(names))
        }
    }
}

/// Streams a watch: the whole state first, then changes, until the coordinator's generation is
/// over.
fn views(
    watch: Watch,
    ended: CancellationToken,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<ClusterView, Status>> {
    let told: Option<Arc<CoordinatorView>> = None;
    stream::unfold((watch, told, place), move |(mut watch, told, place)| {
        let ended = ended.clone();
        async move {
            let changed = ended.run_until_cancelled(watch.changed()).await;
            if changed != Some(true) || ended.is_cancelled() {
                return None;
            }
            let view = watch.view();
            let news = news(told.as_deref(), &view);
            Some((Ok(news), (watch, Some(view), place)))
        }
    })
}

/// Returns the parts of a view that were not sent yet.
fn news(told: Option<&CoordinatorView>, view: &CoordinatorView) -> ClusterView {
    let record = view.record.as_ref();
    let known = told.and_then(|told| told.record.as_ref()).map(|known| known.revision);
    let record = record.filter(|record| Some(record.revision) != known).map(stored_message);
    let known = told.map(|told| told.alive.stamp);
    let alive = Some(&view.alive).filter(|alive| Some(alive.stamp) != known).map(alive_message);
    ClusterView { record, announcements: alive }
}
