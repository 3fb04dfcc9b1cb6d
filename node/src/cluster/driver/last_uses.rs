//! Asking those who give shards to this node when each was last read.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use larder_cluster::agent::{LastUse, Shard};
use larder_dataset::SnapshotId;
use larder_wire::limits;
use tokio::time;

use crate::peers::{Missed, Peers};

/// What the givers say, side by side. Of one that does not answer in time nothing is known.
pub(super) async fn of_all(
    peers: &Peers,
    givers: BTreeMap<String, BTreeSet<SnapshotId>>,
) -> Vec<LastUse> {
    let asked = givers.into_iter().map(|(giver, snapshots)| of_one(peers, giver, snapshots));
    join_all(asked).await.into_iter().flatten().collect()
}

async fn of_one(peers: &Peers, giver: String, snapshots: BTreeSet<SnapshotId>) -> Vec<LastUse> {
    let asking = time::timeout(limits::LAST_USES_TIMEOUT, ask(peers, &giver, snapshots));
    match asking.await.unwrap_or(Err(Missed::Silent)) {
        Ok(uses) => uses,
        Err(missed) => {
            tracing::debug!(%giver, %missed, "what it gives comes last: it does not say what is needed soonest");
            Vec::new()
        }
    }
}

async fn ask(
    peers: &Peers,
    giver: &str,
    snapshots: BTreeSet<SnapshotId>,
) -> Result<Vec<LastUse>, Missed> {
    let peer = peers.named(giver).ok_or_else(|| Missed::Away("it has left".to_owned()))?;
    let mut uses = Vec::new();
    for snapshot in snapshots {
        let shards = match peer.last_uses(snapshot).await {
            // It has none of it.
            Err(Missed::NotThere) => continue,
            shards => shards?,
        };
        let used = |(shard, idle)| LastUse { shard: Shard { snapshot, shard }, idle };
        uses.extend(shards.into_iter().map(used));
    }
    Ok(uses)
}
