//! Reports when local shards were last read, to the nodes that they move to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use larder_base::{Error, ErrorKind, ShardId, limits};
use larder_wire::control::{LastUses, ListLastUsesRequest, snapshot_id};
use tokio::sync::mpsc;
use tokio::{task, time};
use tonic::Status;

use crate::dataset::Dataset;
use crate::serve::Context;

type Pieces = mpsc::Sender<Result<LastUses, Status>>;

/// Streams the local shards of some snapshots in pieces. A caller that does not take the pieces in
/// time loses the rest, so that the next caller gets its turn.
pub(super) fn pieces(
    context: &Arc<Context>,
    request: &ListLastUsesRequest,
) -> Result<impl Stream<Item = Result<LastUses, Status>> + use<>, Error> {
    if request.snapshots.len() > limits::LAST_USES_SNAPSHOTS_MAX {
        let most = limits::LAST_USES_SNAPSHOTS_MAX;
        let message = format!("at most {most} snapshots may be asked about at once");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let asked: Result<BTreeSet<_>, _> =
        request.snapshots.iter().map(|id| snapshot_id(id)).collect();
    let (asked, open) = (asked?, context.shared.catalog.list().into_iter());
    // This request does not count as a use of a dataset.
    let open: Vec<_> = open.filter(|dataset| asked.contains(&dataset.snapshot())).collect();
    let (pieces, taken) = mpsc::channel(1);
    let context = Arc::clone(context);
    task::spawn(async move {
        let asker = pieces.clone();
        tokio::select! {
            () = asker.closed() => {}
            // Pieces not taken by then are of no use any more.
            _ = time::timeout(limits::LAST_USES_TIMEOUT, send_all(&context, open, pieces)) => {}
        }
    });
    let next = |mut taken: mpsc::Receiver<_>| async move { Some((taken.recv().await?, taken)) };
    Ok(stream::unfold(taken, next))
}

async fn send_all(context: &Context, open: Vec<Arc<Dataset>>, pieces: Pieces) {
    if open.is_empty() {
        return;
    }
    let Ok(_turn) = context.last_uses.acquire().await else { return };
    let cache = Arc::clone(&context.shared.cache);
    let Ok(here) = task::spawn_blocking(move || cache.idle_times()).await else { return };
    let here = Arc::new(here);
    for dataset in open {
        for part in (0..here.len()).step_by(limits::LAST_USES_PIECE) {
            let (here, dataset) = (Arc::clone(&here), Arc::clone(&dataset));
            let end = here.len().min(part + limits::LAST_USES_PIECE);
            let piece = task::spawn_blocking(move || piece(&dataset, &here[part..end])).await;
            let Ok(piece) = piece else { return };
            if !piece.idle_ms.is_empty() && pieces.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    }
}

/// Selects the shards of this dataset. The first lookup by id sorts the dataset's shards.
fn piece(dataset: &Dataset, here: &[(ShardId, Duration)]) -> LastUses {
    let mut piece = LastUses {
        snapshot: Bytes::copy_from_slice(dataset.snapshot().as_bytes()),
        ..LastUses::default()
    };
    let mut ids = Vec::new();
    for (id, idle) in here.iter().filter(|(id, _)| dataset.find_shard(*id).is_some()) {
        ids.extend_from_slice(id.as_bytes());
        piece.idle_ms.push(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
    }
    piece.shard_ids = ids.into();
    piece
}
