//! Passes operators' requests to the agent, and shows its state.
//!
//! Thread rule: shared freely. A command waits for the agent's answer; reading the state waits for
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_base::{Error, ErrorKind, limits};
use larder_membership::{
    Announcement, Record,
    agent::{Answer, Command},
};
use tokio::sync::{mpsc, oneshot, watch};

pub use larder_membership::agent::Progress;

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
