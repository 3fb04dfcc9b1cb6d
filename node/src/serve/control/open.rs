//! Opens datasets, and sends manifests in pieces.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use larder_base::{Error, ErrorKind, limits};
use larder_dataset::{DatasetRef, LeftOutGroup, OriginUri, WritePolicy, left_out_by_reason};
use larder_wire::control::{
    FetchManifestRequest, ManifestChunk, OpenDatasetRequest, OpenDatasetResponse, snapshot_id,
};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::catalog::{Attempt, OpenedDataset, Queued, Requester, ResolveTurn, WantedDataset};
use crate::on_thread;
use crate::serve::Context;

/// Most bytes of the text about a left-out object: a key, a tensor's name and a reason. Longer ones
/// are cut.
const LEFT_OUT_BYTES_MAX: usize = 512;

pub(super) async fn open(
    context: &Arc<Context>,
    request: OpenDatasetRequest,
    requester: Requester,
) -> Result<OpenDatasetResponse, Error> {
    let (dataset, manifest) = named(&request.uri, &request.manifest_uri)?;
    let (identity, write) = (request.identity, request.write_never.then_some(WritePolicy::Never));
    let wanted = WantedDataset { dataset, manifest, write, requester, identity };
    let opened = open_in_turn(context, &wanted).await;
    // A client that is refused must not keep the node: see `when_unused`.
    context.local.note_open(opened.is_ok());
    let opened = opened?;
    let manifest = opened.dataset.manifest();
    let name = &request.client_name;
    let name = &name[..name.floor_char_boundary(limits::CLIENT_NAME_BYTES_MAX as usize)];
    let (indexed_now, left_out) = (opened.indexed_now, left_out_by_reason(&opened.left_out));
    tracing::info!(dataset = %wanted.dataset, client = %name, indexed_now, left_out = left_out.len(), "opened");
    Ok(OpenDatasetResponse {
        snapshot: Bytes::copy_from_slice(manifest.snapshot().as_bytes()),
        samples: manifest.samples(),
        shards: manifest.shard_count(),
        bytes: manifest.total_bytes(),
        manifest_bytes: manifest.as_bytes().len() as u64,
        ticket: Bytes::copy_from_slice(context.ticket.as_bytes()),
        indexed_now,
        manifest_uri: opened.dataset.manifest_uri().to_string(),
        left_out: left_out.iter().take(limits::LEFT_OUT_TOLD_MAX).map(in_short).collect(),
        left_out_count: left_out.len() as u64,
    })
}

fn in_short(left_out: &LeftOutGroup) -> String {
    let mut text = left_out.to_string();
    text.truncate(text.floor_char_boundary(LEFT_OUT_BYTES_MAX));
    text
}

/// Opens a dataset in this caller's turn. A caller that waits for another caller's open, or to
/// index a prefix, takes no place among the openings.
async fn open_in_turn(
    context: &Arc<Context>,
    wanted: &WantedDataset,
) -> Result<OpenedDataset, Error> {
    let queue = context.shared.catalog.queue(wanted);
    let queued = tokio::time::timeout(limits::OPEN_DATASET_TIMEOUT, queue).await;
    match queued.unwrap_or_else(|_| Err(too_long(&wanted.dataset)))? {
        Queued::Open(dataset) => Ok(OpenedDataset::as_it_was(dataset)),
        Queued::Turn(turn) => {
            let attempt =
                |turn, may_index| attempt_on_a_thread(context, turn, wanted.clone(), may_index);
            context.shared.catalog.open_in_turn(turn, attempt).await
        }
    }
}

/// Tries to open on a blocking thread, since indexing reads many headers. It goes on if the caller
/// is gone, and the next caller finds it done.
async fn attempt_on_a_thread(
    context: &Arc<Context>,
    turn: ResolveTurn,
    wanted: WantedDataset,
    may_index: Option<OwnedSemaphorePermit>,
) -> Result<Attempt, Error> {
    let place = Arc::clone(&context.opening).acquire_owned().await;
    let place = place.expect("the semaphore is never closed");
    let context = Arc::clone(context);
    let open = move || {
        let _place = place;
        context.shared.runtime.block_on(async {
            let catalog = &context.shared.catalog;
            let attempt = catalog.attempt(turn, &wanted, may_index);
            let ended = tokio::time::timeout(limits::OPEN_DATASET_TIMEOUT, Box::pin(attempt)).await;
            ended.unwrap_or_else(|_| Err(too_long(&wanted.dataset)))
        })
    };
    on_thread(open).await
}

fn too_long(wanted: &DatasetRef) -> Error {
    let waited = limits::OPEN_DATASET_TIMEOUT.as_secs();
    let message = format!("opening {wanted} took longer than {waited} s; index it beforehand");
    Error::new(ErrorKind::OriginUnavailable, message)
}

/// Parses the address of a dataset, and that of its manifest if one is given.
pub(super) fn named(uri: &str, manifest: &str) -> Result<(DatasetRef, Option<OriginUri>), Error> {
    let manifest = (!manifest.is_empty()).then(|| origin_uri(manifest)).transpose()?;
    Ok((dataset_ref(uri)?, manifest))
}

fn dataset_ref(text: &str) -> Result<DatasetRef, Error> {
    check_length(text)?;
    DatasetRef::parse(text).map_err(|why| Error::new(ErrorKind::InvalidArgument, why.to_string()))
}

fn origin_uri(text: &str) -> Result<OriginUri, Error> {
    check_length(text)?;
    OriginUri::parse(text).map_err(|why| Error::new(ErrorKind::InvalidArgument, why.to_string()))
}

fn check_length(text: &str) -> Result<(), Error> {
    let (bytes, max) = (text.len(), limits::URI_BYTES_MAX);
    if bytes <= max {
        return Ok(());
    }
    let message = format!("an address of {bytes} bytes; the limit is {max}");
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// Streams the manifest of an open snapshot, or a leaf of it, in order.
pub(super) async fn manifest_chunks(
    context: &Context,
    request: &FetchManifestRequest,
) -> Result<impl Stream<Item = Result<ManifestChunk, Status>> + use<>, Error> {
    let snapshot = snapshot_id(&request.snapshot)?;
    let dataset = context.shared.catalog.opened(snapshot)?;
    let extent = match request.leaf {
        None => Arc::clone(dataset.manifest_extent()),
        Some(leaf) => {
            dataset.check_leaf(leaf)?;
            context.shared.leaves.extent(&dataset, leaf).await?
        }
    };
    // The dataset stays open until its manifest is sent.
    Ok(stream::unfold((0, dataset), move |(sent, dataset)| {
        let bytes = extent.region(0);
        let chunk = &bytes[sent..bytes.len().min(sent + limits::MANIFEST_CHUNK_BYTES)];
        let next = (!chunk.is_empty()).then(|| {
            let chunk = Bytes::copy_from_slice(chunk);
            let sent = sent + chunk.len();
            (Ok(ManifestChunk { chunk }), (sent, dataset))
        });
        std::future::ready(next)
    }))
}
