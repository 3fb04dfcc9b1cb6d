//! A node's seat: it serves as the coordinator, or it follows the node that does. The folder keeps
//! the role, so a restart keeps it too. The role may change while the seat runs.
//!
//! ```text
//! unused folder, no --join ──▶ Serving (generation 1)
//!                                  │  a greater generation is heard of      ▲
//!                                  ▼                                        │ take_over (by an
//! unused folder, --join ─────▶ Following ───────────────────────────────────┘ operator)
//! ```
//!
//! A serving seat that learns that its generation is over never serves again on that record. The
//! folder keeps this, so the next start follows too. [`takeover`](super::takeover) explains why
//! this is safe.
//!
//! Thread rule: async, inside a runtime; a role change holds a lock across its awaits.

pub(super) mod takeover;

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use larder_base::{BootId, Error, ErrorKind, limits};
use larder_wire::control::LocateResponse;
use tokio::sync::{Mutex, Semaphore};

use takeover::knock;

use super::Coordinator;
use super::embedded::{Embedded, superseded};
use super::ledger::Ledger;
use super::message::Kept;
use super::peer::Whereabouts;
use super::remote::Remote;
use super::token::JoinToken;
use super::types::{Announcement, BlobId, CoordinatorError, Replaced, Revision, View};
use super::watch::{Publisher, Watch};

/// Options of a seat.
#[derive(Debug, Clone)]
pub struct SeatOptions {
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

/// A seat. Its tasks end when it is dropped.
#[derive(Debug)]
pub struct Seat {
    pub(super) options: SeatOptions,
    pub(super) ledger: Arc<Ledger>,
    pub(super) publisher: Arc<Publisher>,
    role: ArcSwap<Role>,
    /// Held while the role changes.
    pub(super) changing: Mutex<()>,
    /// Limits the blobs in transfer.
    pub(super) transfers: Arc<Semaphore>,
    /// Limits the watches of other nodes.
    pub(super) watches: Arc<Semaphore>,
}

/// The role of a seat.
#[derive(Debug)]
pub(super) enum Role {
    /// It is the coordinator.
    Serving(Embedded),
    /// Another node is the coordinator.
    Following(Remote),
}

impl Role {
    /// Ends its tasks, though calls may still be running.
    fn end(&self) {
        match self {
            Self::Serving(embedded) => embedded.ended().cancel(),
            Self::Following(remote) => remote.end(),
        }
    }
}

impl Seat {
    /// Opens the folder and continues in its role. In an unused folder it founds a cluster, or
    /// joins one. Call it inside a runtime.
    ///
    /// # Errors
    /// The folder can't be used or is damaged.
    /// When the folder can't be used or is damaged.
    pub async fn start(options: SeatOptions) -> Result<Arc<Self>, Error> {
        let state = options.state.clone();
        let opened = tokio::task::spawn_blocking(move || Ledger::open(&state)).await;
        let opened = opened.map_err(|why| Error::new(ErrorKind::Internal, why.to_string()))?;
        let ledger = Arc::new(opened?);
        if !ledger.was_used() && options.join.is_empty() {
            found(&ledger).await?;
        }
        give_up_own(&options, &ledger).await?;
        check_way(&options, &ledger.kept())?;
        let publisher = Arc::new(Publisher::new());
        let role = begin(&options, &ledger, &publisher)?;
        Ok(Arc::new(Self {
            options,
            ledger,
            publisher,
            role: ArcSwap::from_pointee(role),
            changing: Mutex::new(()),
            transfers: Arc::new(Semaphore::new(limits::BLOB_TRANSFERS_MAX)),
            watches: Arc::new(Semaphore::new(limits::WATCHES_MAX)),
        }))
    }

    pub(super) fn role(&self) -> Arc<Role> {
        self.role.load_full()
    }

    /// Returns true if this seat is the coordinator.
    #[must_use]
    pub fn serves(&self) -> bool {
        matches!(&*self.role(), Role::Serving(_))
    }

    /// Ends its tasks and the watches of other nodes, even if it is still referenced.
    pub fn stop(&self) {
        self.role().end();
    }

    /// Returns the greatest generation known here.
    pub(super) fn generation(&self) -> u32 {
        self.ledger.kept().generation
    }

    /// Returns the generation and the coordinator's address, as known here.
    pub(super) fn whereabouts(&self) -> Whereabouts {
        let kept = self.ledger.kept();
        let coordinator = if kept.coordinates { &self.options.address } else { &kept.coordinator };
        Whereabouts { generation: kept.generation, coordinator: coordinator.clone() }
    }

    /// Returns the same for a remote caller, with the revision of the copy here and the promise
    /// made.
    #[must_use]
    pub fn located(&self) -> LocateResponse {
        let role = self.role();
        let place = self.whereabouts();
        let kept = self.ledger.kept();
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
                Role::Following(remote) => remote.reaches(),
            },
        }
    }

    /// Adopts a greater generation: a serving seat stops serving, and follows. Runs to its end even
    /// if the caller is gone, so that saved and actual role agree.
    pub(super) async fn follow(
        self: &Arc<Self>,
        place: Whereabouts,
    ) -> Result<(), CoordinatorError> {
        let seat = Arc::clone(self);
        let followed = tokio::spawn(async move { seat.follow_now(place).await }).await;
        followed.unwrap_or_else(|death| Err(CoordinatorError::unknown(death.to_string())))
    }

    async fn follow_now(&self, place: Whereabouts) -> Result<(), CoordinatorError> {
        let _changing = self.changing.lock().await;
        let served = self.serves();
        let step = move |_: &Ledger, kept: &mut Kept| {
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
        let kept = self.ledger.change(step, |_| ()).await?;
        if served && !kept.coordinates {
            tracing::error!("{}; this node follows it from now on", superseded(0, &kept));
        }
        // A follower restarts as well, to ask at the new place at once.
        if !kept.coordinates {
            self.take_role()?;
        }
        Ok(())
    }

    /// Begins the role that the ledger names, in place of the present one.
    pub(super) fn take_role(&self) -> Result<(), CoordinatorError> {
        let role = begin(&self.options, &self.ledger, &self.publisher);
        let before = self.role.swap(Arc::new(role.map_err(CoordinatorError::Refused)?));
        before.end();
        Ok(())
    }
}

/// Begins generation 1.
async fn found(ledger: &Arc<Ledger>) -> Result<(), Error> {
    let first = |kept: &mut Kept| {
        kept.generation = 1;
        kept.coordinates = true;
    };
    keep(ledger, first).await
}

async fn keep(
    ledger: &Arc<Ledger>,
    step: impl FnOnce(&mut Kept) + Send + 'static,
) -> Result<(), Error> {
    let step = move |_: &Ledger, kept: &mut Kept| {
        step(kept);
        Ok(())
    };
    let kept = ledger.change(step, |_| ()).await;
    kept.map_err(|why| Error::new(ErrorKind::Unavailable, why.to_string()))
}

/// Gives up a takeover that was running when this process ended. The nodes that promised may learn
/// it.
async fn give_up_own(options: &SeatOptions, ledger: &Arc<Ledger>) -> Result<(), Error> {
    let promise = ledger.kept().promise();
    let Some(own) = promise.filter(|promise| promise.node_id == options.node_id) else {
        return Ok(());
    };
    keep(ledger, move |kept| kept.release(&own)).await
}

/// Refuses a seat that does not coordinate and has no node to ask.
fn check_way(options: &SeatOptions, kept: &Kept) -> Result<(), Error> {
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

/// Begins the role that the ledger names.
fn begin(
    options: &SeatOptions,
    ledger: &Arc<Ledger>,
    publisher: &Arc<Publisher>,
) -> Result<Role, Error> {
    let kept = ledger.kept().clone();
    let publisher = &Arc::new(publisher.successor());
    if kept.coordinates {
        if !options.join.is_empty() {
            tracing::info!(
                "this node coordinates the cluster of its --state folder: --join is not needed"
            );
        }
        let embedded = Embedded::start(ledger, publisher);
        knock(ledger, options);
        return Ok(Role::Serving(embedded));
    }
    let SeatOptions { token, join, address, .. } = options;
    Ok(Role::Following(Remote::start(ledger, publisher, token, join, address)))
}

#[tonic::async_trait]
impl Coordinator for Seat {
    async fn read(&self) -> Result<View, CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.read(),
            Role::Following(remote) => remote.read().await,
        }
    }

    async fn replace(
        &self,
        expected: Option<Revision>,
        record: Bytes,
        blobs: Vec<BlobId>,
    ) -> Result<Replaced, CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.replace(expected, record, blobs).await,
            Role::Following(remote) => remote.replace(expected, record, blobs).await,
        }
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<BlobId, CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.put_blob(bytes).await,
            Role::Following(remote) => remote.put_blob(bytes).await,
        }
    }

    async fn blob(&self, id: BlobId) -> Result<Option<Bytes>, CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.blob(id).await,
            Role::Following(remote) => remote.blob(id).await,
        }
    }

    async fn sweep(&self, at: Revision) -> Result<Option<u64>, CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.sweep(at).await,
            Role::Following(remote) => remote.sweep(at).await,
        }
    }

    async fn announce(&self, announcement: Announcement) -> Result<(), CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.announce(announcement).await,
            Role::Following(remote) => remote.announce(announcement).await,
        }
    }

    async fn withdraw(&self, node_id: &str, boot: BootId) -> Result<(), CoordinatorError> {
        match &*self.role() {
            Role::Serving(embedded) => embedded.withdraw(node_id, boot).await,
            Role::Following(remote) => remote.withdraw(node_id, boot).await,
        }
    }

    fn watch(&self) -> Watch {
        self.publisher.watch()
    }
}
