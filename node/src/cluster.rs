//! Membership of a cluster: the async shell around the pure state machines.
//!
//! - [`Cluster`]: this node's place in its cluster, the coordinator of the cluster's record, and
//!   operators' requests.
//! - [`Standing`]: the state of the cluster as this node knows it.
//! - [`Placements`]: the owners of shards, by the ring in use and by the ring before it.
//!
//! Thread rule: async, on the node's runtime; disk work goes to blocking threads. Non-goals: the
//! state machines (`larder-membership`), and the agent's shell (`driver`).

mod forget;
mod placements;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use larder_base::{Error, ErrorKind, limits};
use larder_coordinator::{Coordinator, EmbeddedCoordinator, EmbeddedOptions, Etcd};
use larder_membership::agent::{Answer, Command};
use larder_membership::{Announcement, Record};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{ClusterConfig, Config};

pub(crate) use larder_membership::agent::PlanProgress;
pub(crate) use placements::Placements;

/// The cluster that a node belongs to.
#[derive(Debug)]
pub(crate) struct Cluster {
    coordinator: Arc<dyn Coordinator>,
    seat: Option<Arc<EmbeddedCoordinator>>,
    /// True if this node may found a cluster where there is none.
    founds: bool,
    /// True if this node has never seen the cluster that it joins.
    newcomer: bool,
    requests: mpsc::Sender<Request>,
    standing: watch::Receiver<Arc<Standing>>,
    inbox: Mutex<Option<Inbox>>,
}

impl Cluster {
    /// Takes the node's place in its configured cluster, if there is one. No other node needs to
    /// answer yet. `address` is the URL of this node's control port. Call it inside a runtime.
    ///
    /// # Errors
    /// The state folder or a certificate can't be used, or the folder is of another cluster than
    /// the node to join.
    pub(crate) async fn start(config: &Config, address: String) -> Result<Option<Self>, Error> {
        match config.cluster.as_ref() {
            None => Ok(None),
            Some(ClusterConfig::Etcd { options, .. }) => {
                let coordinator: Arc<dyn Coordinator> = Arc::new(Etcd::start(options)?);
                Ok(Some(Self::new(coordinator, None, true, false)))
            }
            Some(ClusterConfig::EmbeddedCoordinator { state, token, join, forget }) => {
                forget::check(state, join, *forget).await?;
                let options = EmbeddedOptions {
                    state: state.clone(),
                    node_id: config.node_id.clone(),
                    address,
                    token: token.clone(),
                    join: join.clone(),
                };
                let seat = EmbeddedCoordinator::start(options).await?;
                // Also true for a node started with `--join` that coordinates: it may have ended
                // before it founded.
                let (founds, newcomer) = (seat.serves(), seat.is_newcomer());
                Ok(Some(Self::new(Arc::clone(&seat) as _, Some(seat), founds, newcomer)))
            }
        }
    }

    fn new(
        coordinator: Arc<dyn Coordinator>,
        seat: Option<Arc<EmbeddedCoordinator>>,
        founds: bool,
        newcomer: bool,
    ) -> Self {
        let (send, requests) = mpsc::channel(limits::COMMANDS_QUEUED_MAX);
        let (publish, standing) = watch::channel(Arc::default());
        let inbox = Mutex::new(Some(Inbox { requests, standing: publish }));
        Self { coordinator, seat, founds, newcomer, requests: send, standing, inbox }
    }

    /// Returns the inbox for the agent's shell, and whether the agent may found a cluster.
    ///
    /// # Panics
    /// When taken twice.
    pub(crate) fn take_inbox(&self) -> (Inbox, bool) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        (inbox.expect("a node takes part once"), self.founds)
    }

    /// Returns true if this node has never seen the cluster that it joins.
    pub(crate) fn is_newcomer(&self) -> bool {
        self.newcomer
    }

    /// Returns the coordinator of the cluster.
    pub(crate) fn coordinator(&self) -> &Arc<dyn Coordinator> {
        &self.coordinator
    }

    /// Returns this node's seat, if nodes keep the record themselves.
    pub(crate) fn seat(&self) -> Option<&Arc<EmbeddedCoordinator>> {
        self.seat.as_ref()
    }

    /// Passes a command to the agent and waits for its answer, for at most about one minute.
    ///
    /// # Errors
    /// `InvalidArgument` with the agent's reason if the command is refused; `Unavailable` if the
    /// node stops.
    pub(crate) async fn command(&self, command: Command) -> Result<Answer, Error> {
        let stopping = || Error::new(ErrorKind::Unavailable, "the node is stopping; ask another");
        let (answer, answered) = oneshot::channel();
        let request = Request { command, answer };
        self.requests.send(request).await.map_err(|_| stopping())?;
        let answered = answered.await.map_err(|_| stopping())?;
        answered.map_err(|why| Error::new(ErrorKind::InvalidArgument, why))
    }

    /// Returns the state of the cluster as this node knows it now.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.borrow())
    }

    /// Ends the watches of other nodes, so that their connections can close.
    pub(crate) fn stop(&self) {
        if let Some(seat) = &self.seat {
            seat.stop();
        }
    }
}

/// The state of the cluster as this node knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Standing {
    /// The newest record that this node saw.
    pub(crate) record: Option<Arc<Record>>,
    /// The announced nodes, by node id.
    pub(crate) alive: BTreeMap<String, Announcement>,
    /// Why the coordinator changes nothing, if so.
    pub(crate) away: Option<Arc<str>>,
    /// The ring version in use on this node.
    pub(crate) installed: u64,
    /// Set while too many members are silent at once: only an operator removes members.
    pub(crate) braked: bool,
    /// The progress of the ring change in flight, for shards that move to this node.
    pub(crate) progress: Option<PlanProgress>,
}

/// A command, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) answer: oneshot::Sender<Result<Answer, String>>,
}

/// The agent's side: operators' requests, and the state that the agent publishes.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) standing: watch::Sender<Arc<Standing>>,
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
