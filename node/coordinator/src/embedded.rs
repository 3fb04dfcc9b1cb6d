//! A node's coordinator: it serves as the coordinator, or it follows the node that does. The folder
//! keeps the role, so a restart keeps it too. The role may change while the coordinator runs.
//!
//! ```text
//! unused folder, no --join ──▶ Serving (generation 1)
//!                                  │  a greater generation is heard of      ▲
//!                                  ▼                                        │ take_over (by an
//! unused folder, --join ─────▶ Following ───────────────────────────────────┘ operator)
//! ```
//!
//! A serving coordinator that learns that its generation is over never serves again on that record.
//! The folder keeps this, so the next start follows too. [`takeover`](takeover) explains why this
//! is safe.
//!
//! Thread rule: async, inside a runtime; a role change holds a lock across its awaits.

mod durable_state;
mod follower;
mod leader;
mod leases;
pub(super) mod service;
mod state_dir;
pub(super) mod takeover;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use larder_base::{BootId, Error, ErrorKind, limits};
use larder_wire::control::LocateResponse;
use tokio::sync::{Mutex, Semaphore};

use takeover::announce_leader;

use super::Coordinator;
use super::message::PersistedState;
use super::peer::LeaderAddress;
use super::token::JoinToken;
use super::types::{Announcement, BlobId, CoordinatorError, CoordinatorView, Replaced, Revision};
use super::watch::{Publisher, Watch};
use durable_state::DurableState;
use follower::Follower;
use leader::{Leader, superseded};
use state_dir::StateDir;

/// Blobs under way at once, to and from one coordinator: each may be held in memory whole.
const BLOB_TRANSFERS_MAX: usize = 4;

/// Watches of one embedded coordinator: one for each node, and as many again that are being
/// replaced after a break.
const WATCHES_MAX: usize = 2 * limits::RING_MEMBERS_MAX;

/// Options of a coordinator.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The folder for its state. No other process may use it.
    pub state: PathBuf,
    /// This node's name.
    pub node_id: String,
    /// URL of this node's control port for other nodes: `http://host:port`.
    pub address: String,
    /// The token that other nodes must send, and that is sent to them.
    pub token: JoinToken,
    /// Nodes of the cluster to follow, `http://host:port`. None founds a cluster in an unused
    /// folder.
    pub join: Vec<String>,
}

/// A coordinator. Its tasks end when it is dropped.
#[derive(Debug)]
pub struct EmbeddedCoordinator {
    options: EmbeddedOptions,
    pub(crate) durable: Arc<DurableState>,
    pub(crate) publisher: Arc<Publisher>,
    role: ArcSwap<Role>,
    /// Held while the role changes.
    changing: Mutex<()>,
    /// Limits the blobs in transfer.
    transfers: Arc<Semaphore>,
    /// Limits the watches of other nodes.
    watches: Arc<Semaphore>,
}

/// The role of a coordinator.
#[derive(Debug)]
pub(crate) enum Role {
    /// It is the coordinator.
    Serving(Leader),
    /// Another node is the coordinator.
    Following(Follower),
}

impl Role {
    /// Ends its tasks, though calls may still be running.
    fn end(&self) {
        match self {
            Self::Serving(leader) => leader.ended().cancel(),
            Self::Following(follower) => follower.end(),
        }
    }
}

impl EmbeddedCoordinator {
    /// Opens the folder and continues in its role. In an unused folder it founds a cluster, or
    /// joins one. Call it inside a runtime.
    ///
    /// # Errors
    /// When the folder can't be used or is damaged.
    pub async fn start(options: EmbeddedOptions) -> Result<Arc<Self>, Error> {
        let state = options.state.clone();
        let opened = tokio::task::spawn_blocking(move || DurableState::open(&state)).await;
        let opened = opened.map_err(|why| Error::new(ErrorKind::Internal, why.to_string()))?;
        let durable = Arc::new(opened?);
        if !durable.was_used() && options.join.is_empty() {
            found(&durable).await?;
        }
        give_up_own(&options, &durable).await?;
        check_way(&options, &durable.kept())?;
        let publisher = Arc::new(Publisher::new());
        let role = begin(&options, &durable, &publisher)?;
        Ok(Arc::new(Self {
            options,
            durable,
            publisher,
            role: ArcSwap::from_pointee(role),
            changing: Mutex::new(()),
            transfers: Arc::new(Semaphore::new(BLOB_TRANSFERS_MAX)),
            watches: Arc::new(Semaphore::new(WATCHES_MAX)),
        }))
    }

    /// Returns the record in a state folder that no coordinator uses. `None` if there is none.
    /// Blocks.
    ///
    /// # Errors
    /// When the folder can't be used or is damaged.
    pub fn kept_record(state: &Path) -> Result<Option<Bytes>, Error> {
        let durable = DurableState::open(state)?;
        let kept = durable.kept();
        Ok(kept.record.as_ref().map(|stored| stored.record.clone()))
    }

    /// Empties a state folder that no coordinator uses. Blocks.
    ///
    /// # Errors
    /// When the folder can't be used.
    pub fn forget(state: &Path) -> Result<(), Error> {
        StateDir::open(state)?.clear()
    }

    pub(super) fn role(&self) -> Arc<Role> {
        self.role.load_full()
    }

    /// Returns true if this coordinator is the coordinator.
    pub fn serves(&self) -> bool {
        matches!(&*self.role(), Role::Serving(_))
    }

    /// Returns true if this node has never known a coordinator: it joins for the first time.
    pub fn is_newcomer(&self) -> bool {
        let kept = self.durable.kept();
        !kept.coordinates && kept.generation == 0 && kept.coordinator.is_empty()
    }

    /// Returns why the disk of this coordinator refused the last write, if it did. `None` if this
    /// node is not the coordinator.
    pub fn disk_fault(&self) -> Option<Arc<str>> {
        self.durable.disk_fault().filter(|_| self.serves())
    }

    /// Ends its tasks and the watches of other nodes, even if it is still referenced.
    pub fn stop(&self) {
        self.role().end();
    }

    /// Returns the greatest generation known here.
    pub(super) fn generation(&self) -> u32 {
        self.durable.kept().generation
    }

    /// Returns the generation and the coordinator's address, as known here.
    pub(super) fn whereabouts(&self) -> LeaderAddress {
        let kept = self.durable.kept();
        let coordinator = if kept.coordinates { &self.options.address } else { &kept.coordinator };
        LeaderAddress { generation: kept.generation, coordinator: coordinator.clone() }
    }

    /// Returns the same for a remote caller, with the revision of the copy here and the promise
    /// made.
    pub fn located(&self) -> LocateResponse {
        let role = self.role();
        let place = self.whereabouts();
        let kept = self.durable.kept();
        let seen = self.publisher.view().record.as_ref().map(|record| record.revision);
        LocateResponse {
            node_id: self.options.node_id.clone(),
            generation: place.generation,
            coordinator: place.coordinator,
            coordinates: kept.coordinates,
            revision: seen.max(kept.revision()).map_or(0, |revision| revision.0),
            promised: kept.promised,
            promised_to: kept.promised_to.clone(),
            reaches: match &*role {
                Role::Serving(_) => true,
                Role::Following(follower) => follower.reaches(),
            },
        }
    }

    /// Adopts a greater generation: a serving coordinator stops serving, and follows. Runs to its
    /// end even if the caller is gone, so that saved and actual role agree.
    pub(super) async fn follow(
        self: &Arc<Self>,
        place: LeaderAddress,
    ) -> Result<(), CoordinatorError> {
        let coordinator = Arc::clone(self);
        let followed = tokio::spawn(async move { coordinator.follow_now(place).await }).await;
        followed.unwrap_or_else(|death| Err(CoordinatorError::unknown(death.to_string())))
    }

    async fn follow_now(&self, place: LeaderAddress) -> Result<(), CoordinatorError> {
        let _changing = self.changing.lock().await;
        let served = self.serves();
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            let newer = place.generation > kept.generation;
            let more = place.generation == kept.generation
                && !kept.coordinates
                && !place.coordinator.is_empty();
            if newer || more {
                kept.generation = place.generation;
                kept.coordinator = place.coordinator;
                kept.coordinates = false;
                kept.announcements = None;
                kept.supersedes.clear();
            }
            Ok(kept.clone())
        };
        let kept = self.durable.change(step, |_| ()).await?;
        if served && !kept.coordinates {
            tracing::error!("{}; this node follows it from now on", superseded(0, &kept));
        }
        // A follower restarts as well, to ask at the new place at once.
        if !kept.coordinates {
            self.take_role()?;
        }
        Ok(())
    }

    /// Begins the role that the durable names, in place of the present one.
    pub(super) fn take_role(&self) -> Result<(), CoordinatorError> {
        let role = begin(&self.options, &self.durable, &self.publisher);
        let before = self.role.swap(Arc::new(role.map_err(CoordinatorError::Refused)?));
        before.end();
        Ok(())
    }
}

/// Begins generation 1.
async fn found(durable: &Arc<DurableState>) -> Result<(), Error> {
    let first = |kept: &mut PersistedState| {
        kept.generation = 1;
        kept.coordinates = true;
    };
    keep(durable, first).await
}

async fn keep(
    durable: &Arc<DurableState>,
    step: impl FnOnce(&mut PersistedState) + Send + 'static,
) -> Result<(), Error> {
    let step = move |_: &DurableState, kept: &mut PersistedState| {
        step(kept);
        Ok(())
    };
    let kept = durable.change(step, |_| ()).await;
    kept.map_err(|why| Error::new(ErrorKind::Unavailable, why.to_string()))
}

/// Gives up a takeover that was running when this process ended. The nodes that promised may learn
/// it.
async fn give_up_own(options: &EmbeddedOptions, durable: &Arc<DurableState>) -> Result<(), Error> {
    let promise = durable.kept().promise();
    let Some(own) = promise.filter(|promise| promise.node_id == options.node_id) else {
        return Ok(());
    };
    keep(durable, move |kept| kept.release(&own)).await
}

/// Refuses a coordinator that does not coordinate and has no node to ask.
fn check_way(options: &EmbeddedOptions, kept: &PersistedState) -> Result<(), Error> {
    if kept.coordinates || !options.join.is_empty() || !kept.coordinator.is_empty() {
        return Ok(());
    }
    let what = format!(
        "--state {}: this node does not coordinate (generation {} is known), and which one does is not known: name a \
         node of the cluster with --join",
        options.state.display(),
        kept.generation
    );
    Err(Error::new(ErrorKind::InvalidArgument, what))
}

/// Begins the role that the durable names.
fn begin(
    options: &EmbeddedOptions,
    durable: &Arc<DurableState>,
    publisher: &Arc<Publisher>,
) -> Result<Role, Error> {
    let kept = durable.kept().clone();
    let publisher = &Arc::new(publisher.successor());
    if kept.coordinates {
        if !options.join.is_empty() {
            tracing::info!(
                "this node coordinates the cluster of its --state folder: --join is not needed"
            );
        }
        let leader = Leader::start(durable, publisher);
        announce_leader(durable, options);
        return Ok(Role::Serving(leader));
    }
    let EmbeddedOptions { token, join, address, .. } = options;
    Ok(Role::Following(Follower::start(durable, publisher, token, join, address)))
}

#[tonic::async_trait]
impl Coordinator for EmbeddedCoordinator {
    async fn read(&self) -> Result<CoordinatorView, CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.read(),
            Role::Following(follower) => follower.read().await,
        }
    }

    async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.replace(expected, record, blobs).await,
            Role::Following(follower) => follower.replace(expected, record, blobs).await,
        }
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.put_blob(bytes).await,
            Role::Following(follower) => follower.put_blob(bytes).await,
        }
    }

    async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.blob(id).await,
            Role::Following(follower) => follower.blob(id).await,
        }
    }

    async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.sweep(at).await,
            Role::Following(follower) => follower.sweep(at).await,
        }
    }

    async fn announce(&self, announcement: Announcement) -> Result<(), CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.announce(announcement).await,
            Role::Following(follower) => follower.announce(announcement).await,
        }
    }

    async fn withdraw(&self, node_id: &str, boot: BootId) -> Result<(), CoordinatorError> {
        match &*self.role() {
            Role::Serving(leader) => leader.withdraw(node_id, boot).await,
            Role::Following(follower) => follower.withdraw(node_id, boot).await,
        }
    }

    fn watch(&self) -> Watch {
        self.publisher.watch()
    }
}
