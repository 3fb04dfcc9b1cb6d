//! Asks other nodes which shards they hold.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use larder_base::{ShardId, SnapshotId, limits};
use tokio::time;

use crate::peers::{Missed, Peer, Peers};

/// The shards that one node holds, and how long ago each was last read there.
pub(super) struct Held {
    pub(super) peer: Arc<Peer>,
    pub(super) shards: Vec<(ShardId, Duration)>,
}

/// Asks the members `asked` which shards `of_interest` of these snapshots they hold. Returns the
/// answers in no order. A member that does not finish in time counts with the part that it has
/// listed.
pub(super) async fn all(
    peers: &Peers,
    asked: &[&str],
    snapshots: &BTreeSet<SnapshotId>,
    of_interest: &HashSet<ShardId>,
) -> Vec<Held> {
    let known = asked.iter().filter_map(|id| peers.named(id));
    let answering: Vec<_> = known.filter(|peer| peer.answers()).collect();
    let asking: Vec<_> =
        answering.into_iter().map(|peer| one(peer, snapshots, of_interest)).collect();
    stream::iter(asking).buffer_unordered(limits::LAST_USES_ASKED_MAX).collect().await
}

async fn one(
    peer: Arc<Peer>,
    snapshots: &BTreeSet<SnapshotId>,
    of_interest: &HashSet<ShardId>,
) -> Held {
    let mut shards = Vec::new();
    let note = |_, id: ShardId, idle| {
        if of_interest.contains(&id) && shards.len() < of_interest.len() {
            shards.push((id, idle));
        }
    };
    let asked = snapshots.iter().copied().take(limits::LAST_USES_SNAPSHOTS_MAX);
    let asking = time::timeout(limits::LAST_USES_TIMEOUT, peer.last_uses(asked, note));
    if let Err(missed) = asking.await.unwrap_or(Err(Missed::Silent)) {
        tracing::debug!(peer = %peer.id(), %missed, "it does not list all that it holds");
    }
    Held { peer, shards }
}
