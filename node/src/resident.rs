//! Pulls a shard to this node without a reader, and waits for it.

use std::sync::Arc;

use larder_base::{ErrorKind, limits};
use larder_membership::agent::Pulled;
use tokio::task;

use crate::cache::Priority;
use crate::cache::Waited;
use crate::cache::{Awaited, Cache, Found};
use crate::dataset::Dataset;

/// Fills a shard unless it is here: from a node that has it, else from the origin.
pub(crate) async fn ensure_resident(
    cache: &Arc<Cache>,
    dataset: &Arc<Dataset>,
    index: u32,
    priority: Priority,
) -> Pulled {
    match cache.find(dataset, &[index], priority).pop() {
        Some(Found::Resident(_)) => Pulled::Verified,
        Some(Found::InFlight(flight)) => {
            let landed = task::spawn_blocking(move || landed(&flight)).await;
            landed.unwrap_or(Pulled::Failed)
        }
        Some(Found::NotKept) | None => Pulled::NoRoom,
    }
}

/// Waits for the end of a fill. Blocks.
fn landed(flight: &Awaited) -> Pulled {
    match flight.wait_for_all(limits::FILL_DEADLINE) {
        Waited::Sealed(_) => Pulled::Verified,
        Waited::Failed(why) => failed(why.kind()),
        Waited::Ready(_) | Waited::TimedOut => Pulled::Failed,
    }
}

/// Maps the error kind of a failed fill to the outcome of a pull.
pub(crate) fn failed(kind: ErrorKind) -> Pulled {
    match kind {
        ErrorKind::DataChanged | ErrorKind::NotFound => Pulled::Gone,
        _ => Pulled::Failed,
    }
}
