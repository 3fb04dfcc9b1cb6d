//! Membership of a cluster: the async shell around the pure state machines.
//!
//! - [`coordinator`]: keeps the cluster's agreed state in one place.
//! - `driver`: the agent's shell. It performs the agent's effects and feeds it events.
//! - [`handle`]: operators' requests and their view of the cluster.
//!
//! Thread rule: async, on the node's runtime; disk work goes to blocking threads. Non-goals: the
//! state machines themselves (`larder-cluster`), placement (`larder-plan`).

mod placements;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use larder_base::{Error, ErrorKind, limits};
use larder_coordinator::{Coordinator, EmbeddedCoordinator, EmbeddedOptions, Etcd};
use larder_membership::agent::{Answer, Command};
use larder_membership::{Announcement, Record};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{ClusterConfig, Config};

pub use larder_membership::agent::Progress;
pub use placements::Placements;

/// The cluster that a node belongs to.
#[derive(Debug)]
pub struct Cluster {
    coordinator: Arc<dyn Coordinator>,
    seat: Option<Arc<EmbeddedCoordinator>>,
    /// True if this node may found a cluster where there is none.
    founds: bool,
    handle: AdminHandle,
    inbox: Mutex<Option<Inbox>>,
}

impl Cluster {
    /// Takes the node's place in its configured cluster, if there is one. No other node needs to
    /// answer yet. `address` is the URL of this node's control port. Call it inside a runtime.
    ///
    /// # Errors
    /// The state folder or a certificate can't be used.
    pub async fn start(config: &Config, address: String) -> Result<Option<Self>, Error> {
        match config.cluster() {
            None => Ok(None),
            Some(ClusterConfig::Etcd { options, .. }) => {
                let coordinator: Arc<dyn Coordinator> = Arc::new(Etcd::start(options)?);
                Ok(Some(Self::new(coordinator, None, true)))
            }
            Some(ClusterConfig::EmbeddedCoordinator { state, token, join }) => {
                let options = EmbeddedOptions {
                    state: state.clone(),
                    node_id: config.node_id().to_owned(),
                    address,
                    token: token.clone(),
                    join: join.clone(),
                };
                let seat = EmbeddedCoordinator::start(options).await?;
                // Also true for a node started with `--join` that coordinates: it may have ended
                // before it founded.
                let founds = seat.serves();
                Ok(Some(Self::new(Arc::clone(&seat) as _, Some(seat), founds)))
            }
        }
    }

    fn new(
        coordinator: Arc<dyn Coordinator>,
        seat: Option<Arc<EmbeddedCoordinator>>,
        founds: bool,
    ) -> Self {
        let (handle, inbox) = AdminHandle::new();
        Self { coordinator, seat, founds, handle, inbox: Mutex::new(Some(inbox)) }
    }

    /// What the agent's shell takes over from operators, and whether the agent may found a cluster.
    ///
    /// # Panics
    /// When taken twice.
    pub(crate) fn take_inbox(&self) -> (Inbox, bool) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        (inbox.expect("a node takes part once"), self.founds)
    }

    /// Returns the admin handle for operators' requests.
    #[must_use]
    pub fn handle(&self) -> &AdminHandle {
        &self.handle
    }

    /// Returns the coordinator of the cluster.
    #[must_use]
    pub fn coordinator(&self) -> &Arc<dyn Coordinator> {
        &self.coordinator
    }

    /// Returns this node's seat, if nodes keep the record themselves.
    #[must_use]
    pub fn seat(&self) -> Option<&Arc<EmbeddedCoordinator>> {
        self.seat.as_ref()
    }

    /// Ends the watches of other nodes, so that their connections can close.
    pub fn stop(&self) {
        if let Some(seat) = &self.seat {
            seat.stop();
        }
    }
}

/// The admin handle of one node.
#[derive(Debug)]
pub struct AdminHandle {
    requests: mpsc::Sender<Request>,
    standing: watch::Receiver<Arc<Standing>>,
}

/// The state of the cluster as this node knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Standing {
    /// The newest record that this node saw.
    pub record: Option<Arc<Record>>,
    /// The announced nodes, by node id.
    pub alive: BTreeMap<String, Announcement>,
    /// Why the coordinator is away, if it is.
    pub away: Option<Arc<str>>,
    /// The ring version in use on this node.
    pub installed: u64,
    /// Set while too many members are silent at once: only an operator removes members.
    pub braked: bool,
    /// The progress of the ring change in flight, for shards that move to this node.
    pub progress: Option<Progress>,
}

/// A command, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) answer: oneshot::Sender<Result<Answer, String>>,
}

/// The agent's side of an admin handle.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) standing: watch::Sender<Arc<Standing>>,
}

impl AdminHandle {
    /// an admin handle and its other side.
    pub(crate) fn new() -> (Self, Inbox) {
        let (send, requests) = mpsc::channel(limits::COMMANDS_QUEUED_MAX);
        let (standing, look) = watch::channel(Arc::default());
        (Self { requests: send, standing: look }, Inbox { requests, standing })
    }

    /// Passes a command to the agent and waits for its answer, for at most about one minute.
    ///
    /// # Errors
    /// `InvalidArgument` with the agent's reason if the command is refused; `Unavailable` if the
    /// node stops.
    pub async fn command(&self, command: Command) -> Result<Answer, Error> {
        let stopping = || Error::new(ErrorKind::Unavailable, "the node is stopping; ask another");
        let (answer, answered) = oneshot::channel();
        let request = Request { command, answer };
        self.requests.send(request).await.map_err(|_| stopping())?;
        let answered = answered.await.map_err(|_| stopping())?;
        answered.map_err(|why| Error::new(ErrorKind::InvalidArgument, why))
    }

    /// Returns the state of the cluster as this node knows it now.
    #[must_use]
    pub fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.borrow())
    }

    /// Waits until the state differs from `seen`. Returns false when there will be no more changes.
    pub async fn changed(&self, seen: &Arc<Standing>) -> bool {
        let mut look = self.standing.clone();
        look.wait_for(|standing| !Arc::ptr_eq(standing, seen)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::config::Args;

    /// Returns true if a node with this command line founds a cluster, if there is none yet.
    fn founds(state: &std::path::Path, more: &[&str]) -> bool {
        let state = state.display().to_string();
        let typed =
            ["larder-node", "--origin", "file:///data", "--state", &state, "--node-id", "n1"];
        let typed = typed.iter().chain(&["--token", "a secret of this test"]).chain(more);
        let config = Config::try_from(Args::try_parse_from(typed).unwrap()).unwrap();
        // Its tasks end with it, and so does its lock on the folder.
        let runtime = Runtime::new().unwrap();
        let started = runtime.block_on(Cluster::start(&config, "http://127.0.0.1:7".to_owned()));
        started.unwrap().expect("it is one of a cluster").founds
    }

    #[test]
    fn coordinator_founds_after_any_restart() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (home.path().join("first"), home.path().join("second"));
        let join = ["--join", "127.0.0.1:7"];
        assert!(founds(&first, &[]));
        assert!(founds(&first, &join), "it ended before the record was there");
        assert!(!founds(&second, &join), "that is for the node it joins");
    }
}
