//! Returns the bytes of evicted shards to the budget.
//!
//! An evicted shard is not free yet. A gather may still copy from it, and a client may map it, as
//! may a forked child of a killed client. The reaper drops the node's own hold first. Then it asks
//! the kernel at intervals, and after each release by a client, whether any mapping is left.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use larder_extent::{Filling, Retired, Sealed};
use larder_store::OrphanToken;

use super::Cache;
use crate::cache::InFlightFill;

/// How often freed extents are checked until the kernel confirms that no process maps them.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The memory behind an orphan.
#[derive(Debug)]
pub(super) enum Reclaimable {
    /// None was allocated.
    Nothing,
    /// A flight that ended without a shard, and the extent it began. Readers may still copy from
    /// the extent. A blocking thread may still work on it, or on an extent that is not yet visible.
    InFlightFill(Arc<InFlightFill>, Option<Arc<Filling>>),
    /// A shard that was served. Threads of this process may still read it.
    Sealed(Arc<Sealed>),
    /// No thread of this process holds it; other processes may.
    Retired(Retired),
}

impl Reclaimable {
    /// Returns the memory to the kernel if it has no holder any more. Else returns the remains.
    pub(super) fn try_free(self) -> Result<(), Self> {
        match self {
            Self::Nothing => Ok(()),
            Self::InFlightFill(flight, Some(filling)) => match Arc::try_unwrap(filling) {
                Ok(filling) => {
                    drop(filling);
                    Self::InFlightFill(flight, None).try_free()
                }
                Err(filling) => Err(Self::InFlightFill(flight, Some(filling))),
            },
            Self::InFlightFill(flight, None) if !flight.is_worked_on() => Ok(()),
            flight @ Self::InFlightFill(_, None) => Err(flight),
            Self::Sealed(sealed) => match Arc::try_unwrap(sealed) {
                Ok(sealed) => Self::Retired(sealed.retire()).try_free(),
                Err(sealed) => Err(Self::Sealed(sealed)),
            },
            Self::Retired(retired) if retired.is_free() => Ok(()),
            retired @ Self::Retired(_) => Err(retired),
        }
    }
}

/// The orphans, and the thread that frees them.
#[derive(Default)]
pub(super) struct Reaper(Arc<PendingReclaim>);

#[derive(Default)]
struct PendingReclaim {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    orphans: Vec<(OrphanToken, Reclaimable)>,
    /// A client released a shard since the last look.
    kicked: bool,
    stopped: bool,
}

impl Reaper {
    /// Starts the thread. It holds the cache only while it works, and ends with it.
    pub(super) fn start(&self, cache: Weak<Cache>) -> std::io::Result<()> {
        let ward = Arc::clone(&self.0);
        let run = move || {
            while let Some(orphans) = ward.next_round() {
                let Some(cache) = cache.upgrade() else { return };
                let left = reap(&cache, orphans);
                ward.lock().orphans.extend(left);
            }
        };
        thread::Builder::new().name("larder-reaper".to_owned()).spawn(run).map(drop)
    }

    pub(super) fn add(&self, token: OrphanToken, remains: Reclaimable) {
        self.0.lock().orphans.push((token, remains));
        self.0.changed.notify_one();
    }

    /// Makes the thread look again now, if there is an orphan.
    pub(super) fn kick(&self) {
        self.0.lock().kicked = true;
        self.0.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_one();
    }
}

impl PendingReclaim {
    /// Waits until the next look is due, and takes all orphans. Returns `None` once stopped.
    fn next_round(&self) -> Option<Vec<(OrphanToken, Reclaimable)>> {
        let idle = |state: &mut State| state.orphans.is_empty() && !state.stopped;
        let state = self.changed.wait_while(self.lock(), idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let calm = |state: &mut State| !state.kicked && !state.stopped;
        let waited = self.changed.wait_timeout_while(state, ORPHAN_CHECK_INTERVAL, calm);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.kicked = false;
        (!state.stopped).then(|| std::mem::take(&mut state.orphans))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the orphans that are free. Returns the others.
fn reap(
    cache: &Cache,
    orphans: Vec<(OrphanToken, Reclaimable)>,
) -> Vec<(OrphanToken, Reclaimable)> {
    let mut left = Vec::new();
    for (token, remains) in orphans {
        match remains.try_free() {
            Ok(()) => cache.lock().store.freed(token),
            Err(remains) => left.push((token, remains)),
        }
    }
    left
}
