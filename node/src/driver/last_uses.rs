//! Asks the sources of shards when each shard was last read.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, future, stream};
use larder_base::{SnapshotId, limits};
use larder_membership::agent::{LastUses, Shard};
use tokio::time;

use crate::fill::{Missed, Peers};

/// The shards of a plan.
type Wanted = BTreeMap<Shard, usize>;

/// Asks the sources, a few in parallel. A source that does not answer in time counts with the part
/// it has sent. Sources without a turn in the total time count with nothing.
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
        tracing::debug!(%giver, %missed, "it does not list the last reads of all its shards");
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
        // Ignore snapshots that were not requested.
        if snapshots.contains(&snapshot) {
            uses.note(Shard { snapshot, shard }, idle, wanted);
        }
    };
    let asked = snapshots.iter().copied().take(limits::LAST_USES_SNAPSHOTS_MAX);
    peer.last_uses(asked, note).await
}
