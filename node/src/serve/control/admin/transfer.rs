//! Plans in pieces, both ways, in bounded time and memory.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use larder_base::limits;
use larder_wire::{
    control::{ApplyPlanRequest, ApplyTerms, PlanFigures, PlanPiece},
    status::to_status,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::command::invalid;

/// Streams the figures, then the plan. A slow caller gets no more after a time limit, which ends
/// its `turn`.
pub(super) fn send(
    figures: PlanFigures,
    planned: Bytes,
    turn: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<PlanPiece, Status>> + Send {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let fed = timeout(limits::BLOB_TRANSFER_TIMEOUT, feed(sender, figures, planned)).await;
        if fed.is_err() {
            tracing::debug!("a plan was taken too slowly");
        }
        drop(turn);
    });
    stream::unfold(receiver, async |mut receiver: mpsc::Receiver<PlanPiece>| {
        let piece = receiver.recv().await?;
        Some((Ok(piece), receiver))
    })
}

async fn feed(sender: mpsc::Sender<PlanPiece>, figures: PlanFigures, mut planned: Bytes) {
    let bytes = planned.len() as u64;
    let mut first = Some(figures);
    while first.is_some() || !planned.is_empty() {
        let piece = planned.split_to(planned.len().min(limits::BLOB_PIECE_BYTES));
        let bytes = if first.is_some() { bytes } else { 0 };
        let message = PlanPiece { figures: first.take(), bytes, piece };
        if sender.send(message).await.is_err() {
            return;
        }
    }
}

/// Receives the terms and the whole plan.
pub(super) async fn receive(
    pieces: Streaming<ApplyPlanRequest>,
) -> Result<(ApplyTerms, BytesMut), Status> {
    let received = timeout(limits::BLOB_TRANSFER_TIMEOUT, collect(pieces)).await;
    received.unwrap_or_else(|_| Err(Status::deadline_exceeded("the plan came too slowly")))
}

async fn collect(
    mut pieces: Streaming<ApplyPlanRequest>,
) -> Result<(ApplyTerms, BytesMut), Status> {
    let first = pieces.message().await?.unwrap_or_default();
    let terms = first.terms.ok_or_else(|| refused("the first message holds no terms"))?;
    let announced = usize::try_from(terms.bytes).unwrap_or(usize::MAX);
    if announced > limits::PLANNED_BYTES_MAX {
        let max = limits::PLANNED_BYTES_MAX;
        return Err(refused(format!("a plan of {announced} bytes; the limit is {max}")));
    }
    let mut bytes = BytesMut::new();
    let mut next = Some(first.piece);
    while let Some(piece) = next {
        if bytes.len() + piece.len() > announced {
            return Err(refused(format!(
                "the plan is longer than the {announced} bytes announced"
            )));
        }
        bytes.extend_from_slice(&piece);
        next = pieces.message().await?.map(|message| message.piece);
    }
    if bytes.len() < announced {
        let got = bytes.len();
        return Err(refused(format!("the plan ended after {got} of {announced} bytes")));
    }
    Ok((terms, bytes))
}

fn refused(why: impl Into<String>) -> Status {
    to_status(invalid(why))
}
