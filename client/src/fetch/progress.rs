//! Follows the fills that a reader waits for.
//!
//! Thread rule: a task of the client's runtime asks the nodes once a second, and the reader looks
//! at the latest answer. Non-goals: reading rows, which goes on without this.

use std::{
    fmt,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use larder_base::Bytes;
use tokio::time;

use super::Target;
use crate::{
    directory::LOOK_INTERVAL,
    process,
    progress::{Pace, Progress},
    runtime,
};

/// A failed read counts as the reason of a wait for this long.
const TROUBLE_LASTS: Duration = Duration::from_secs(10);

/// The shards of a snapshot that a reader waits for.
pub(crate) struct Awaited {
    pub(super) target: Arc<Target>,
    pub(super) shards: Vec<u32>,
}

/// A wait for rows, whose progress is followed until this is dropped.
pub struct RowsWait {
    latest: Arc<ArcSwapOption<Progress>>,
}

impl RowsWait {
    /// Begins to follow the fills of these shards. `reader` names the read that waits for them,
    /// such as `first batch`. Without a runtime there is no progress.
    pub(crate) fn begin(awaited: Vec<Awaited>, reader: &'static str) -> Self {
        let latest = Arc::default();
        let _ = runtime::spawn(follow(awaited, reader, Arc::downgrade(&latest)));
        Self { latest }
    }

    /// The latest progress. `None` before the nodes have answered.
    pub fn progress(&self) -> Option<Progress> {
        self.latest.load().as_deref().cloned()
    }
}

impl fmt::Debug for RowsWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsWait").field("latest", &self.latest.load()).finish()
    }
}

async fn follow(
    awaited: Vec<Awaited>,
    reader: &'static str,
    latest: Weak<ArcSwapOption<Progress>>,
) {
    let mut pace = Pace::default();
    let _followed: Vec<_> =
        awaited.iter().map(|awaited| Followed::begin(&awaited.target)).collect();
    while latest.strong_count() > 0 {
        let mut progress = look(&awaited, reader).await;
        progress.per_second = pace.speed(&progress, process::uptime());
        let Some(latest) = latest.upgrade() else { return };
        latest.store(Some(Arc::new(progress)));
        drop(latest);
        time::sleep(LOOK_INTERVAL).await;
    }
}

async fn look(awaited: &[Awaited], reader: &'static str) -> Progress {
    let (mut nodes, mut here, mut total, mut budget, mut missing) = (0, 0, 0_u64, u64::MAX, 0_u64);
    for Awaited { target, shards } in awaited {
        let (Some(cluster), manifest) = (&target.cluster, &target.manifest) else { continue };
        let fills = cluster.fills(manifest.snapshot(), shards).await;
        nodes += fills.nodes;
        budget = budget.min(fills.budget_bytes);
        total = total.saturating_add(manifest.total_bytes());
        here += fills.here_bytes.min(manifest.total_bytes());
        for (&shard, bytes) in shards.iter().zip(fills.missing_bytes) {
            missing = missing.saturating_add(bytes.min(manifest.shard(shard).bytes));
        }
    }
    let mut progress = match (nodes, missing) {
        (0, _) => Progress::of("reading rows from the origin"),
        (_, 0) => Progress::of("reading rows"),
        _ => {
            // What does not fit the memory of the nodes is never all here.
            let total = total.min(budget);
            Progress::new("filling", here.min(total), Some(total), "bytes")
        }
    };
    if nodes > 0 && missing > 0 {
        progress.note = format!("{reader} needs {} more", Bytes(missing));
    }
    progress.waiting(awaited.iter().find_map(|awaited| awaited.target.trouble()))
}

/// Counts as a follower of a snapshot's fills.
struct Followed(Arc<Target>);

impl Followed {
    fn begin(target: &Arc<Target>) -> Self {
        target.followers.fetch_add(1, Relaxed);
        Self(Arc::clone(target))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.followers.fetch_sub(1, Relaxed);
    }
}

impl Target {
    /// Whether the program follows the fills that it waits for.
    pub(super) fn is_followed(&self) -> bool {
        self.followers.load(Relaxed) > 0
    }

    /// Notes why rows have not come.
    pub(super) fn note_trouble(&self, why: impl fmt::Display) {
        self.trouble.store(Some(Arc::new((process::uptime(), why.to_string()))));
    }

    /// Why rows did not come lately.
    fn trouble(&self) -> Option<String> {
        let noted = self.trouble.load_full()?;
        let (at, why) = &*noted;
        (process::uptime().saturating_sub(*at) < TROUBLE_LASTS).then(|| why.clone())
    }
}
