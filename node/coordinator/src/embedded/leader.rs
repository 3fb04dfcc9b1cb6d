//! The coordinator in one of the nodes: a [`DurableState`] with leases.
//!
//! The durable keeps record, blobs and announcements over a restart. It does not keep when
//! announcements expire, so a restart gives each its full time again. Leases use this process's
//! monotonic clock.
//!
//! Thread rule: changes run one after the other in the durable; a task checks the leases.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use larder_base::{BootId, ErrorKind, limits};
use larder_wire::control::{Announcements, StoredRecord};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::durable_state::DurableState;
use super::leases::{LEASE_CHECK_INTERVAL, Leases};
use crate::message::{PersistedState, announcement_message, blob_field, blob_ids, stored};
use crate::now;
use crate::types::{
    self, Announcement, BlobId, CoordinatorError, CoordinatorView, Replaced, Revision,
    no_room_for_blobs,
};
use crate::watch::Publisher;

/// A serving coordinator. Its lease task ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Leader {
    core: Arc<Core>,
    /// Cancelled when another coordinator has replaced it, and on drop.
    ended: CancellationToken,
    _end: DropGuard,
}

#[derive(Debug)]
struct Core {
    durable: Arc<DurableState>,
    leases: Mutex<Leases>,
    publisher: Arc<Publisher>,
    generation: u32,
}

impl Leader {
    /// Serves the state of the durable, in which this node is the coordinator. Call it inside a
    /// runtime.
    pub(super) fn start(durable: &Arc<DurableState>, publisher: &Arc<Publisher>) -> Self {
        let core = Core::new(durable, publisher);
        let ended = CancellationToken::new();
        let looking = look_at_leases(Arc::clone(&core));
        tokio::spawn(ended.clone().run_until_cancelled_owned(looking));
        Self { core, _end: ended.clone().drop_guard(), ended }
    }

    /// Returns its generation.
    pub(super) fn generation(&self) -> u32 {
        self.core.generation
    }

    /// Returns a token that is cancelled when another coordinator has replaced it.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    pub(super) fn read(&self) -> Result<CoordinatorView, CoordinatorError> {
        self.core.durable.check()?;
        self.core.check(&self.core.durable.kept())?;
        self.core.durable.kept().view().map_err(CoordinatorError::Refused)
    }

    pub(super) async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError> {
        types::check_record(&record, &blobs)?;
        let step = move |durable: &DurableState, kept: &mut PersistedState| {
            if kept.revision() != expected {
                let present = kept.record.clone().map(stored).transpose();
                return Ok(Replaced::Moved(present.map_err(CoordinatorError::Refused)?));
            }
            let missing: Vec<BlobId> =
                blobs.iter().copied().filter(|id| !durable.folder().has_blob(*id)).collect();
            if !missing.is_empty() {
                return Ok(Replaced::Missing(missing));
            }
            let revision = kept.number_after(expected.map(|expected| expected.0));
            let blobs = blobs.iter().map(blob_field).collect();
            kept.record = Some(StoredRecord { revision, record, blobs });
            Ok(Replaced::Done(Revision(revision)))
        };
        self.core.change(step).await
    }

    pub(super) async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError> {
        types::check_blob(bytes.len() as u64)?;
        let step = move |durable: &DurableState, _: &mut PersistedState| {
            let id = BlobId::of(&bytes);
            let there = durable.folder().blobs().map_err(unreadable)?;
            if !there.contains(&id) && there.len() >= limits::BLOBS_KEPT_MAX {
                return Err(no_room_for_blobs());
            }
            durable.folder().put_blob(id, &bytes).map_err(|why| durable.not_saved(why))?;
            Ok(id)
        };
        self.core.change(step).await
    }

    pub(super) async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        let durable = Arc::clone(&self.core.durable);
        let read = tokio::task::spawn_blocking(move || durable.folder().blob(id)).await;
        let read = read.map_err(|why| CoordinatorError::away(why.to_string()))?;
        read.map_err(CoordinatorError::Refused)
    }

    pub(super) async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError> {
        let step = move |durable: &DurableState, kept: &mut PersistedState| {
            let Some(record) = kept.record.as_ref().filter(|record| record.revision == at.0) else {
                return Ok(None);
            };
            let needed = blob_ids(&record.blobs).map_err(CoordinatorError::Refused)?;
            sweep_all_but(durable, &needed).map(Some)
        };
        self.core.change(step).await
    }

    pub(super) async fn announce(&self, node: Announcement) -> Result<(), CoordinatorError> {
        types::check_announcement(&node)?;
        let core = Arc::clone(&self.core);
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            let message = announcement_message(&node);
            let mut all = kept.announcements.clone().unwrap_or_default();
            let place = all.nodes.binary_search_by(|other| other.node_id.cmp(&node.node_id));
            match place {
                Ok(place) if all.nodes[place] == message => {}
                Ok(place) => all.nodes[place] = message,
                Err(_) if all.nodes.len() >= limits::ANNOUNCEMENTS_MAX => {
                    let max = limits::ANNOUNCEMENTS_MAX;
                    let why = format!("{max} nodes are announced, which is the limit");
                    return Err(CoordinatorError::refused(ErrorKind::ResourceExhausted, why));
                }
                Err(place) => all.nodes.insert(place, message),
            }
            kept.announce(all);
            core.leases().renew(&node.node_id, now(), node.ttl);
            Ok(())
        };
        self.core.change(step).await
    }

    pub(super) async fn withdraw(
        &self,
        node_id: &str,
        boot: BootId,
    ) -> Result<(), CoordinatorError> {
        let node_id = node_id.to_owned();
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            let mut all = kept.announcements.clone().unwrap_or_default();
            all.nodes.retain(|node| node.node_id != node_id || node.boot_id != boot.as_bytes()[..]);
            kept.announce(all);
            Ok(())
        };
        self.core.change(step).await
    }
}

impl PersistedState {
    /// Sets the announcements. A changed set gets the next stamp.
    pub(super) fn announce(&mut self, mut all: Announcements) {
        let before = self.announcements.as_ref();
        let unchanged = before.map_or(all.nodes.is_empty(), |before| before.nodes == all.nodes);
        if !unchanged {
            all.stamp = self.number_after(before.map(|before| before.stamp));
            self.announcements = Some(all);
        }
    }
}

impl Core {
    fn new(durable: &Arc<DurableState>, publisher: &Arc<Publisher>) -> Arc<Self> {
        let now = now();
        let mut leases = Leases::new(now);
        let generation = {
            let kept = durable.kept();
            for node in kept.announcements.iter().flat_map(|all| &all.nodes) {
                let ttl = Duration::from_millis(node.ttl_ms);
                leases.renew(&node.node_id, now, ttl);
            }
            kept.generation
        };
        let core = Arc::new(Self {
            durable: Arc::clone(durable),
            leases: Mutex::new(leases),
            publisher: Arc::clone(publisher),
            generation,
        });
        core.publish(&durable.kept());
        core
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that this is still the coordinator, by the saved state.
    fn check(&self, kept: &PersistedState) -> Result<(), CoordinatorError> {
        if kept.coordinates && kept.generation == self.generation {
            return Ok(());
        }
        Err(superseded(self.generation, kept))
    }

    /// Runs a change by this coordinator. Refused after another has replaced it.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&DurableState, &mut PersistedState) -> Result<T, CoordinatorError>
        + Send
        + 'static,
    ) -> Result<T, CoordinatorError> {
        let (core, publisher) = (Arc::clone(self), Arc::clone(self));
        let fenced = move |durable: &DurableState, kept: &mut PersistedState| {
            core.check(kept)?;
            step(durable, kept)
        };
        let then = move |kept: &PersistedState| {
            publisher.tidy_leases(kept);
            publisher.publish(kept);
        };
        self.durable.change(fenced, then).await
    }

    /// Ends the leases of nodes that are no longer announced, after the change was saved. If the
    /// save fails, the announcement stays, and its lease is checked again.
    fn tidy_leases(&self, kept: &PersistedState) {
        let nodes = kept.announcements.iter().flat_map(|all| &all.nodes);
        let announced: HashSet<&str> = nodes.map(|node| node.node_id.as_str()).collect();
        self.leases().retain(|id| announced.contains(id));
    }

    fn publish(&self, kept: &PersistedState) {
        match kept.view() {
            Ok(view) => self.publisher.here(view),
            Err(why) => self.publisher.away(&why.to_string()),
        }
    }

    /// Ends the announcements with expired leases.
    async fn expire(self: &Arc<Self>) -> Result<(), CoordinatorError> {
        let over = self.leases().over(now());
        if over.is_empty() {
            return Ok(());
        }
        let core = Arc::clone(self);
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            // Some may have been renewed while other changes ran.
            let (leases, now) = (core.leases(), now());
            let over: Vec<String> = over.into_iter().filter(|id| leases.is_over(id, now)).collect();
            drop(leases);
            let mut all = kept.announcements.clone().unwrap_or_default();
            all.nodes.retain(|node| !over.contains(&node.node_id));
            kept.announce(all);
            Ok(over)
        };
        let over = self.change(step).await?;
        if !over.is_empty() {
            tracing::warn!("no sign of life from {}", over.join(", "));
        }
        Ok(())
    }
}

/// Time between two looks at a disk that refused a write.
const DISK_RETRY_INTERVAL: Duration = Duration::from_secs(5);

async fn look_at_leases(core: Arc<Core>) {
    let mut retried = now();
    let mut ticks = tokio::time::interval(LEASE_CHECK_INTERVAL);
    // After a pause run one check, not one for each missed tick.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(why) = core.expire().await {
            tracing::warn!("announcements that are over could not be ended: {why}");
        }
        if retried.elapsed() >= DISK_RETRY_INTERVAL {
            retried = now();
            core.durable.retry_disk().await;
        }
    }
}

/// Returns the error of a coordinator that was replaced.
pub(super) fn superseded(generation: u32, kept: &PersistedState) -> CoordinatorError {
    let place = match kept.coordinator.as_str() {
        "" => "another node".to_owned(),
        place => place.to_owned(),
    };
    let why = format!(
        "this coordinator's generation {generation} is over: {place} took over with generation {}",
        kept.generation
    );
    CoordinatorError::away(why)
}

/// Deletes all blobs but these. Returns their number.
pub(super) fn sweep_all_but(
    durable: &DurableState,
    needed: &[BlobId],
) -> Result<u64, CoordinatorError> {
    let mut swept = 0;
    for id in durable.folder().blobs().map_err(unreadable)? {
        if !needed.contains(&id) {
            durable.folder().remove_blob(id).map_err(unreadable)?;
            swept += 1;
        }
    }
    Ok(swept)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of an error mapping")]
fn unreadable(why: std::io::Error) -> CoordinatorError {
    CoordinatorError::refused(ErrorKind::Unavailable, format!("its folder can't be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a coordinator that checks its leases only when the test asks for it.
    async fn coordinator(state: &std::path::Path) -> Leader {
        let durable = Arc::new(DurableState::open(state).unwrap());
        let found = |_: &DurableState, kept: &mut PersistedState| {
            (kept.generation, kept.coordinates) = (1, true);
            Ok(())
        };
        durable.change(found, |_| ()).await.unwrap();
        let ended = CancellationToken::new();
        let core = Core::new(&durable, &Arc::new(Publisher::new()));
        Leader { core, _end: ended.clone().drop_guard(), ended }
    }

    fn boot() -> BootId {
        BootId::from_bytes([1; 16])
    }

    async fn announce(coordinator: &Leader, node_id: &str) {
        let (node_id, word, ttl) = (node_id.to_owned(), Bytes::new(), limits::ANNOUNCEMENT_TTL_MAX);
        coordinator.announce(Announcement { node_id, boot: boot(), word, ttl }).await.unwrap();
    }

    fn end_lease(coordinator: &Leader, node_id: &str) {
        coordinator.core.leases().renew(node_id, now(), Duration::ZERO);
    }

    fn announced(coordinator: &Leader) -> Vec<String> {
        coordinator.read().unwrap().alive.nodes.into_keys().collect()
    }

    #[tokio::test]
    async fn expiry_that_failed_to_save_is_retried() {
        let home = tempfile::tempdir().unwrap();
        let coordinator = coordinator(home.path()).await;
        announce(&coordinator, "dead").await;
        announce(&coordinator, "lives").await;
        end_lease(&coordinator, "dead");
        // A folder blocks the path of the next write.
        let in_the_way = home.path().join("state.tmp");
        std::fs::create_dir(&in_the_way).unwrap();
        coordinator.core.expire().await.unwrap_err();
        assert_eq!(announced(&coordinator), ["dead", "lives"]);
        std::fs::remove_dir(&in_the_way).unwrap();
        coordinator.core.expire().await.unwrap();
        assert_eq!(announced(&coordinator), ["lives"]);
    }

    #[tokio::test]
    async fn node_that_failed_to_withdraw_expires_later() {
        let home = tempfile::tempdir().unwrap();
        let coordinator = coordinator(home.path()).await;
        announce(&coordinator, "leaves").await;
        end_lease(&coordinator, "leaves");
        let in_the_way = home.path().join("state.tmp");
        std::fs::create_dir(&in_the_way).unwrap();
        coordinator.withdraw("leaves", boot()).await.unwrap_err();
        std::fs::remove_dir(&in_the_way).unwrap();
        coordinator.core.expire().await.unwrap();
        assert!(announced(&coordinator).is_empty());
    }
}
