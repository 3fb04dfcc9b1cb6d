//! Asking those who give shards to this node when each was last read.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, future, stream};
use larder_base::{SnapshotId, limits};
use larder_membership::agent::{LastUses, Shard};
use tokio::time;

use crate::peers::{Missed, Peers};

/// The shards of a plan.
type Wanted = BTreeMap<Shard, usize>;

/// What the givers say, a few side by side. Of one that does not answer in time only what it has
/// said is known, and nothing of those whose turn has not come when the time for all is over.
pub(super) async fn of_all(
    peers: &Peers,
    givers: BTreeMap<String, BTreeSet<SnapshotId>>,
    wanted: &Wanted,
) -> LastUses {
    let asked = givers.into_iter().map(|(giver, asked)| of_one(peers, giver, asked, wanted));
    let mut all = LastUses::default();
    let answers = stream::iter(asked).buffer_unordered(limits::LAST_USES_ASKED_MAX);
    let merged = answers.for_each(|one| {
        all.merge(one);
        future::ready(())
    });
    let _ = time::timeout(limits::LAST_USES_ALL_TIMEOUT, merged).await;
    all
}

async fn of_one(
    peers: &Peers,
    giver: String,
    snapshots: BTreeSet<SnapshotId>,
    wanted: &Wanted,
) -> LastUses {
    let mut uses = LastUses::default();
    let asking = ask(peers, &giver, &snapshots, wanted, &mut uses);
    let asked = time::timeout(limits::LAST_USES_TIMEOUT, asking).await;
    if let Err(missed) = asked.unwrap_or(Err(Missed::Silent)) {
        tracing::debug!(%giver, %missed, "it does not say of all it gives what is needed soonest");
    }
    uses
}

async fn ask(
    peers: &Peers,
    giver: &str,
    snapshots: &BTreeSet<SnapshotId>,
    wanted: &Wanted,
    uses: &mut LastUses,
) -> Result<(), Missed> {
    let peer = peers.named(giver).ok_or_else(|| Missed::Away("it has left".to_owned()))?;
    let note = |snapshot, shard, idle| {
        // Of others nobody asked.
        if snapshots.contains(&snapshot) {
            uses.note(Shard { snapshot, shard }, idle, wanted);
        }
    };
    let asked = snapshots.iter().copied().take(limits::LAST_USES_SNAPSHOTS_MAX);
    peer.last_uses(asked, note).await
}
