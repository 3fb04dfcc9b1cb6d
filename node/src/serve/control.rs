//! The control plane: decodes calls of `larder.v1.Node`, runs them and encodes the answers.
//! [`admin`] serves operators.
//!
//! Thread rule: async, on the node's runtime; walks over many shards go to a blocking thread.

mod describe;
mod list;
mod open;
mod progress;

pub(super) mod admin;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use larder_base::placement::Exceptions;
use larder_base::{Error, ErrorKind, limits};
use larder_wire::control::node_server::Node;
use larder_wire::control::{
    DescribeRequest, ExceptionsChunk, FetchManifestRequest, FillProgress, GetExceptionsRequest,
    GetFillProgressRequest, GetOpenProgressRequest, GetRingRequest, IntroduceRequest,
    IntroduceResponse, LastUses, ListDatasetsRequest, ListDatasetsResponse, ListFailuresRequest,
    ListFailuresResponse, ListLastUsesRequest, ListShardsRequest, ListShardsResponse,
    ManifestChunk, NodeDescription, OpenDatasetRequest, OpenDatasetResponse, OpenProgress, Ring,
    TellPlansRequest, TellPlansResponse, snapshot_id,
};
use larder_wire::status::to_status;
use tonic::{Request, Response, Status};

use super::Context;
use crate::catalog::Requester;
use crate::cluster::Placements;
use crate::{clock, on_thread};

/// Bytes of one piece of a table of exceptions: the same as for a manifest.
pub(super) const EXCEPTIONS_CHUNK_BYTES: usize = limits::MANIFEST_CHUNK_BYTES;

/// Answers control calls.
#[derive(Debug)]
pub(super) struct Service(pub(super) Arc<Context>);

type Answer<T> = Result<Response<T>, Status>;
/// An answer in pieces.
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Node for Service {
    async fn describe(&self, _: Request<DescribeRequest>) -> Answer<NodeDescription> {
        Ok(Response::new(describe::describe(&self.0)))
    }

    async fn get_ring(&self, _: Request<GetRingRequest>) -> Answer<Ring> {
        Ok(Response::new(self.0.shared.placements.load().ring().as_ref().into()))
    }

    type GetExceptionsStream = Pieces<ExceptionsChunk>;

    async fn get_exceptions(
        &self,
        request: Request<GetExceptionsRequest>,
    ) -> Answer<Self::GetExceptionsStream> {
        let placements = self.0.shared.placements.load_full();
        let chunks = chunks(&placements, request.get_ref()).map_err(to_status)?;
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn open_dataset(
        &self,
        request: Request<OpenDatasetRequest>,
    ) -> Answer<OpenDatasetResponse> {
        // A private node has one user, and identifies no callers.
        let requester = request.extensions().get().copied().unwrap_or(Requester::Node);
        let opened = open::open(&self.0, request.into_inner(), requester).await;
        let opened = opened.map_err(to_status)?;
        Ok(Response::new(opened))
    }

    async fn get_open_progress(
        &self,
        request: Request<GetOpenProgressRequest>,
    ) -> Answer<OpenProgress> {
        let progress = progress::of_opening(&self.0, request.get_ref()).map_err(to_status)?;
        Ok(Response::new(progress))
    }

    async fn get_fill_progress(
        &self,
        request: Request<GetFillProgressRequest>,
    ) -> Answer<FillProgress> {
        let context = Arc::clone(&self.0);
        walk(&self.0, move || progress::of_fills(&context, request.get_ref())).await
    }

    type FetchManifestStream = Pieces<ManifestChunk>;

    async fn fetch_manifest(
        &self,
        request: Request<FetchManifestRequest>,
    ) -> Answer<Self::FetchManifestStream> {
        let chunks = open::manifest_chunks(&self.0, &request.into_inner()).await;
        let chunks = chunks.map_err(to_status)?;
        Ok(Response::new(Box::pin(chunks)))
    }

    async fn introduce(&self, request: Request<IntroduceRequest>) -> Answer<IntroduceResponse> {
        let context = &self.0;
        tracing::debug!(peer = %request.get_ref().node_id, "met a peer");
        Ok(Response::new(IntroduceResponse {
            node_id: context.shared.config.node_id.clone(),
            data_address: context.data_address.clone(),
            ticket: Bytes::copy_from_slice(context.ticket.as_bytes()),
        }))
    }

    async fn tell_plans(&self, request: Request<TellPlansRequest>) -> Answer<TellPlansResponse> {
        let TellPlansRequest { plans, node_id } = request.into_inner();
        let shared = &self.0.shared;
        let shards_of = |snapshot| Some(shared.catalog.get(snapshot)?.manifest().shard_count());
        let told = shared.plans.tell(plans, node_id.is_empty(), shards_of, clock::now());
        told.map_err(to_status)?;
        Ok(Response::new(TellPlansResponse {}))
    }

    async fn list_datasets(
        &self,
        request: Request<ListDatasetsRequest>,
    ) -> Answer<ListDatasetsResponse> {
        let context = Arc::clone(&self.0);
        walk(&self.0, move || list::datasets(&context, &request.into_inner())).await
    }

    async fn list_shards(&self, request: Request<ListShardsRequest>) -> Answer<ListShardsResponse> {
        let context = Arc::clone(&self.0);
        walk(&self.0, move || list::shards(&context, &request.into_inner())).await
    }

    type ListLastUsesStream = Pieces<LastUses>;

    async fn list_last_uses(
        &self,
        request: Request<ListLastUsesRequest>,
    ) -> Answer<Self::ListLastUsesStream> {
        let pieces = list::last_uses(&self.0, request.get_ref()).map_err(to_status)?;
        Ok(Response::new(Box::pin(pieces)))
    }

    async fn list_failures(
        &self,
        request: Request<ListFailuresRequest>,
    ) -> Answer<ListFailuresResponse> {
        Ok(Response::new(list::failures(&self.0, request.into_inner().page_size)))
    }
}

/// Runs a walk over many shards on a blocking thread, a few at a time. A caller that is gone leaves
/// the queue, but a walk that has begun goes on.
async fn walk<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Answer<T> {
    let turn = Arc::clone(&context.listing).acquire_owned().await;
    let turn = turn.expect("the semaphore is never closed");
    let work = move || {
        let _turn = turn;
        work()
    };
    Ok(Response::new(on_thread(work).await.map_err(to_status)?))
}

/// Streams the table of a snapshot in pieces; the first piece carries its length. Streams nothing
/// for a snapshot without exceptions. Also knows the ring before the one in use, because clients
/// learn of a change at different times.
fn chunks(
    placements: &Arc<Placements>,
    request: &GetExceptionsRequest,
) -> Result<impl Stream<Item = Result<ExceptionsChunk, Status>> + use<>, Error> {
    let snapshot = snapshot_id(&request.snapshot)?;
    let known = [Some(placements), placements.previous()];
    let mut known = known.into_iter().flatten();
    let asked = known.find(|placements| placements.ring().version() == request.ring_version);
    let asked = asked.ok_or_else(|| goes_by_another(placements, request.ring_version))?;
    let table = asked.exceptions(snapshot).cloned();
    Ok(stream::iter(table.into_iter().flat_map(pieces)))
}

fn pieces(table: Exceptions) -> impl Iterator<Item = Result<ExceptionsChunk, Status>> {
    let length = table.as_bytes().len();
    (0..length).step_by(EXCEPTIONS_CHUNK_BYTES).map(move |begin| {
        let end = length.min(begin + EXCEPTIONS_CHUNK_BYTES);
        let chunk = Bytes::copy_from_slice(&table.as_bytes()[begin..end]);
        let table_bytes = if begin == 0 { length as u64 } else { 0 };
        Ok(ExceptionsChunk { table_bytes, chunk })
    })
}

fn goes_by_another(placements: &Placements, asked: u64) -> Error {
    let version = placements.ring().version();
    let message = format!(
        "exceptions to version {asked} of the ring were asked for, this node uses version {version}; \
         ask for the ring again"
    );
    Error::new(ErrorKind::NotFound, message)
}

/// Converts a count to the type of a message.
fn saturated(count: impl TryInto<u32>) -> u32 {
    count.try_into().unwrap_or(u32::MAX)
}
