//! The one door that brings a shard here: a fill from a node that has it, else from the origin.
//!
//! Thread rule: async. A blocking thread waits for the fill. Non-goals: making room.

use std::sync::Arc;

use larder_base::{ErrorKind, limits};
use tokio::task;

use crate::cache::{Awaited, Cache, FoundShard, Priority, Waited};
use crate::catalog::leaves::Leaves;
use crate::dataset::Dataset;

/// The end of an attempt to bring a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    /// It is here, and was verified.
    Here,
    /// There is no room for it.
    NoRoom,
    /// Its bytes are not on the origin any more.
    Gone,
    /// It can't be had at the moment.
    Failed,
}

impl Brought {
    /// Returns the end that an error of this kind leads to.
    pub(crate) fn by_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::DataChanged | ErrorKind::DataLoss | ErrorKind::NotFound => Self::Gone,
            _ => Self::Failed,
        }
    }
}

/// Fills a shard unless it is here.
pub(crate) async fn bring(
    cache: &Arc<Cache>,
    leaves: &Leaves,
    dataset: &Arc<Dataset>,
    shard: u32,
    priority: Priority,
) -> Brought {
    if let Err(why) = leaves.ready(dataset, &[shard]).await {
        return Brought::by_error(why.kind());
    }
    match cache.find(dataset, &[shard], priority).pop() {
        Some(FoundShard::Resident(_)) => Brought::Here,
        Some(FoundShard::InFlight(flight)) => {
            let landed = task::spawn_blocking(move || landed(&flight)).await;
            landed.unwrap_or(Brought::Failed)
        }
        Some(FoundShard::NotKept) | None => Brought::NoRoom,
    }
}

/// Waits for the end of a fill. Blocks.
fn landed(flight: &Awaited) -> Brought {
    match flight.wait_for_all(limits::FILL_DEADLINE) {
        Waited::Sealed(_) => Brought::Here,
        Waited::Failed(why) => Brought::by_error(why.kind()),
        Waited::Ready(_) | Waited::TimedOut => Brought::Failed,
    }
}
