//! Where operators' requests reach the agent, and what there is to see of it.
//!
//! Thread rule: shared freely; a command waits for the agent's answer, a look waits for nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_base::{Error, ErrorKind, limits};
use larder_membership::{
    Announcement, Record,
    agent::{Answer, Command},
};
use tokio::sync::{mpsc, oneshot, watch};

pub use larder_membership::agent::Progress;

/// The desk of one node.
#[derive(Debug)]
pub struct Desk {
    requests: mpsc::Sender<Request>,
    standing: watch::Receiver<Arc<Standing>>,
}

/// What a node knows of its cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Standing {
    /// The newest record it saw.
    pub record: Option<Arc<Record>>,
    /// Who is announced, by node id, with what they said.
    pub alive: BTreeMap<String, Announcement>,
    /// Why the coordinator is away, if it is.
    pub away: Option<Arc<str>>,
    /// The ring version in use on this node.
    pub installed: u64,
    /// Nothing is removed without an operator's word, as too much is gone at once.
    pub braked: bool,
    /// Of the change in flight, as far as it brings shards to this node.
    pub progress: Option<Progress>,
}

/// A command and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) answer: oneshot::Sender<Result<Answer, String>>,
}

/// The other side of a desk.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) standing: watch::Sender<Arc<Standing>>,
}

impl Desk {
    /// A desk and its other side.
    pub(crate) fn new() -> (Self, Inbox) {
        let (send, requests) = mpsc::channel(limits::COMMANDS_QUEUED_MAX);
        let (standing, look) = watch::channel(Arc::default());
        (Self { requests: send, standing: look }, Inbox { requests, standing })
    }

    /// Hands a command to the agent and waits for its answer, which takes at most about a minute.
    ///
    /// # Errors
    /// `InvalidArgument` with the agent's reason when it can't be done; `Unavailable` when the node stops.
    pub async fn command(&self, command: Command) -> Result<Answer, Error> {
        let stopping = || Error::new(ErrorKind::Unavailable, "the node is stopping; ask another");
        let (answer, answered) = oneshot::channel();
        let request = Request { command, answer };
        self.requests.send(request).await.map_err(|_| stopping())?;
        let answered = answered.await.map_err(|_| stopping())?;
        answered.map_err(|why| Error::new(ErrorKind::InvalidArgument, why))
    }

    /// What this node knows of its cluster now.
    #[must_use]
    pub fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.borrow())
    }

    /// Waits until there is something new to see. False when nothing more will come.
    pub async fn changed(&self, seen: &Arc<Standing>) -> bool {
        let mut look = self.standing.clone();
        look.wait_for(|standing| !Arc::ptr_eq(standing, seen)).await.is_ok()
    }
}
