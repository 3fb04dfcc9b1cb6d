//! Another node takes over after the coordinating node is lost for good.
//!
//! The rule. Coordinators are numbered by *generation*. Revisions carry the generation in their
//! upper half, so every write of a greater generation is newer than all writes of a smaller one. An
//! operator orders the takeover on a node, and names the nodes that are lost with the coordinator.
//! It succeeds only if:
//!
//! 1. The coordinator does not answer this node, and no answering node reports that it reaches it.
//! 2. Every node not named as lost answers. None of them has seen a newer record than this node's
//!    whole copy. If one has, the operator must take over on that node.
//! 3. Each of them promises the next generation to this node, and this node has promised no later
//!    one to another node when it begins.
//!
//! A node promises a generation only once, and reports with the promise which revision it has seen.
//! So of two takeovers at the same time at most one succeeds.
//!
//! After its promise a node neither calls nor hears a coordinator of an earlier generation. So its
//! reported revision stays the newest it has seen, even if the old coordinator comes back. No
//! record that any living node used is lost.
//!
//! The promise ends when the node hears that the generation has begun, or never will. To learn
//! this, it asks the node it promised to. That node gives the promise up after a failed takeover,
//! and after a restart in the middle of one. If that node is lost for good, another takeover ends
//! the promise.
//!
//! After all promises this node writes its copy under the new generation and serves. It tells the
//! other nodes, which follow. It keeps telling the old place until the node there has heard it.
//!
//! The fence. Every call names the greatest generation that its caller knows, and every answer
//! names that of its coordinator. An old coordinator that comes back is refused by all nodes that
//! know the greater generation. It asks them when it starts, so it learns of that generation before
//! its node acts. Otherwise it learns it from their first call, or from this node's repeated
//! message. From then on it refuses all calls and names the new coordinator.
//!
//! One gap remains: a new node may join the cluster at the old place before that message. It sees
//! the old record until the message arrives. No other node uses anything that it has.
//!
//! Thread rule: async; the coordinator's role does not change meanwhile.

use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use larder_base::{Error, ErrorKind, limits};
use larder_wire::control::{
    FollowRequest, LocateResponse, PromiseGenerationRequest, coordinator_client::CoordinatorClient,
};
use tokio::time::timeout;
use tonic::transport::Channel;

use super::durable_state::DurableState;
use super::{EmbeddedCoordinator, EmbeddedOptions};
use crate::message::{PersistedState, Promise, alive_message};
use crate::peer::{Caller, Effect, LeaderAddress};
use crate::token::JoinToken;
use crate::types::{CoordinatorError, Revision};

/// A node of the cluster, as named by an operator or the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPeer {
    /// Its name.
    pub node_id: String,
    /// Its control port: `http://host:port`.
    pub address: String,
}

/// A takeover that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    /// The generation that this node coordinates.
    pub generation: u32,
    /// The record's new revision; `None` without a record.
    pub revision: Option<Revision>,
    /// Nodes that promised but could not be told yet. They learn it from any other node.
    pub untold: Vec<String>,
}

impl EmbeddedCoordinator {
    /// Makes this node the coordinator in place of one that is lost for good, by the rule of this
    /// module. `nodes` are all nodes of the cluster. `lost` names the nodes that are lost, by an
    /// operator's order; it may include the old coordinator. Runs to its end even if the caller is
    /// gone, so that nodes with a promise get an answer.
    ///
    /// # Errors
    /// A message that names the failed part of the rule and a remedy. Nothing has changed then but
    /// promises.
    pub async fn take_over(
        self: &Arc<Self>,
        nodes: &[ClusterPeer],
        lost: &[String],
    ) -> Result<Takeover, Error> {
        let (coordinator, nodes, lost) = (Arc::clone(self), nodes.to_vec(), lost.to_vec());
        let taken =
            tokio::spawn(async move { coordinator.take_over_now(&nodes, &lost).await }).await;
        taken.unwrap_or_else(|death| Err(Error::new(ErrorKind::Internal, death.to_string())))
    }

    /// Follows the coordinator that took over while this one was down, if another node knows it.
    /// Asks the other nodes once, all at once.
    pub async fn yield_to_successor(self: &Arc<Self>, nodes: &[ClusterPeer]) {
        if !self.serves() {
            return;
        }
        let known = self.generation();
        let ask = async |peer: &ClusterPeer| {
            let caller = Caller::new(&peer.address, &self.options.token).ok()?;
            let asked = timeout(limits::OWNER_SILENT_TIMEOUT, caller.locate(known)).await;
            asked.ok()?.ok().map(|(theirs, _)| theirs)
        };
        let others = nodes.iter().filter(|peer| peer.node_id != self.options.node_id);
        let answers = join_all(others.map(ask)).await.into_iter().flatten();
        let newest = answers.max_by_key(|theirs| theirs.generation);
        if let Some(LocateResponse { generation, coordinator, .. }) =
            newest.filter(|theirs| theirs.generation > known)
            && let Err(why) = self.follow(LeaderAddress { generation, coordinator }).await
        {
            tracing::warn!("the coordinator of generation {generation} is not followed: {why}");
        }
    }

    async fn take_over_now(
        &self,
        nodes: &[ClusterPeer],
        lost: &[String],
    ) -> Result<Takeover, Error> {
        let _changing = self.changing.lock().await;
        let kept = self.durable.kept().clone();
        if kept.coordinates {
            return Err(refuse("this node is the coordinator already"));
        }
        if kept.generation == 0 {
            return Err(refuse(
                "this node has never reached a coordinator: it has nothing to take over",
            ));
        }
        let others = self.others(nodes, lost, &kept)?;
        self.has_copied_what_it_saw(&kept)?;
        self.old_one_is_silent(&kept).await?;
        let mut generation = kept.generation.max(kept.promised);
        for (peer, caller) in &others {
            let theirs = ask(peer, caller, kept.generation).await?;
            may_go_on(peer, &theirs, &kept)?;
            generation = generation.max(theirs.promised);
        }
        generation =
            generation.checked_add(1).ok_or_else(|| refuse("there is no further generation"))?;
        let promise = self.own_promise(generation);
        self.promise(promise.clone()).await.map_err(|why| refuse(why.to_string()))?;
        let revision = match self.win(&others, &kept, generation, lost).await {
            Ok(revision) => revision,
            Err(why) => {
                self.give_up(promise).await;
                return Err(why);
            }
        };
        let untold = self.tell(&others, generation).await;
        tracing::warn!("this node took over as coordinator, generation {generation}");
        Ok(Takeover { generation, revision, untold })
    }

    /// Collects the promises of all others, and begins the generation.
    async fn win(
        &self,
        others: &[(ClusterPeer, Caller)],
        kept: &PersistedState,
        generation: u32,
        lost: &[String],
    ) -> Result<Option<Revision>, Error> {
        for (peer, caller) in others {
            let theirs = self.have_promised(peer, caller, generation).await?;
            may_go_on(peer, &theirs, kept)?;
        }
        self.old_one_is_silent(kept).await?;
        self.begin_generation(generation, lost).await
    }

    /// Takes back the promise by which this node may begin a generation, unless it has begun. Nodes
    /// that promised it the generation ask this node.
    pub(crate) async fn give_up(&self, promise: Promise) {
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            kept.release(&promise);
            Ok(())
        };
        if let Err(why) = self.durable.change(step, |_| ()).await {
            tracing::warn!("{why}");
        }
    }

    fn own_promise(&self, generation: u32) -> Promise {
        let EmbeddedOptions { node_id, address, .. } = &self.options;
        Promise { generation, node_id: node_id.clone(), address: address.clone() }
    }

    /// Refuses if this node saw a newer record than it has copied: that record would be lost.
    fn has_copied_what_it_saw(&self, kept: &PersistedState) -> Result<(), Error> {
        if self.located().revision > kept.revision().map_or(0, |revision| revision.0) {
            return Err(refuse(
                "this node has seen a newer record than it has a whole copy of: take over on another \
                 node, or restart this one, which gives that record up",
            ));
        }
        Ok(())
    }

    /// Returns the nodes that must agree.
    fn others(
        &self,
        nodes: &[ClusterPeer],
        lost: &[String],
        kept: &PersistedState,
    ) -> Result<Vec<(ClusterPeer, Caller)>, Error> {
        let others = nodes.iter().filter(|peer| {
            peer.node_id != self.options.node_id
                && !lost.contains(&peer.node_id)
                && peer.address != kept.coordinator
        });
        others
            .map(|peer| Ok((peer.clone(), Caller::new(&peer.address, &self.options.token)?)))
            .collect()
    }

    async fn old_one_is_silent(&self, kept: &PersistedState) -> Result<(), Error> {
        if kept.coordinator.is_empty() || kept.coordinator == self.options.address {
            return Ok(());
        }
        let caller = Caller::new(&kept.coordinator, &self.options.token)?;
        match caller.locate(kept.generation).await {
            Ok((theirs, _)) if theirs.coordinates => {
                let place = &kept.coordinator;
                Err(refuse(format!("the coordinator at {place} is alive: stop it first")))
            }
            _ => Ok(()),
        }
    }

    /// Promises a generation to a node, once; says what this coordinator has.
    pub(crate) async fn promise(
        &self,
        promise: Promise,
    ) -> Result<LocateResponse, CoordinatorError> {
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            let Promise { generation, node_id, address } = promise;
            let again = kept.promised == generation && kept.promised_to == node_id;
            let newer = generation > kept.promised.max(kept.generation);
            if node_id.is_empty() || !(again || newer) {
                let why = format!(
                    "generation {generation} can't be promised to {node_id:?}: {} is in force and {} was promised to {:?}",
                    kept.generation, kept.promised, kept.promised_to
                );
                return Err(CoordinatorError::refused(ErrorKind::DataChanged, why));
            }
            kept.promised = generation;
            kept.promised_to = node_id;
            kept.promised_at = address;
            Ok(())
        };
        self.durable.change(step, |_| ()).await?;
        Ok(self.located())
    }

    async fn have_promised(
        &self,
        peer: &ClusterPeer,
        caller: &Caller,
        generation: u32,
    ) -> Result<LocateResponse, Error> {
        let Promise { generation, node_id, address } = self.own_promise(generation);
        let request = PromiseGenerationRequest { generation, node_id, address };
        let send = async |mut client: CoordinatorClient<Channel>, request| {
            client.promise_generation(request).await
        };
        let answered = caller.call(self.generation(), Effect::Writes, request, send).await;
        let refused = |why: CoordinatorError| {
            refuse(format!("node {} does not promise generation {generation}: {why}", peer.node_id))
        };
        answered.map(|(answer, _)| answer).map_err(|fault| refused(fault.error))
    }

    /// Writes the copy under the new generation and serves it.
    async fn begin_generation(
        &self,
        generation: u32,
        lost: &[String],
    ) -> Result<Option<Revision>, Error> {
        // Nodes announced at the last news of the old coordinator. Each gets its full time to
        // announce here.
        let mut alive = self.publisher.view().alive.clone();
        alive.nodes.retain(|id, _| !lost.contains(id));
        let announcements = alive_message(&alive);
        let node_id = self.options.node_id.clone();
        let step = move |_: &DurableState, kept: &mut PersistedState| {
            if (kept.promised, &kept.promised_to) != (generation, &node_id) {
                let why = format!("{} is taking over at the same time", kept.promised_to);
                return Err(CoordinatorError::refused(ErrorKind::DataChanged, why));
            }
            kept.supersedes =
                Some(kept.coordinator.clone()).filter(|old| !old.is_empty()).into_iter().collect();
            kept.generation = generation;
            kept.coordinates = true;
            kept.coordinator.clear();
            let first = kept.number_after(None);
            if let Some(record) = &mut kept.record {
                record.revision = first;
            }
            kept.announcements = None;
            kept.announce(announcements);
            Ok(kept.revision())
        };
        let begun = self.durable.change(step, |_| ()).await;
        let revision = begun.map_err(|why| refuse(why.to_string()))?;
        self.take_role().map_err(|why| refuse(why.to_string()))?;
        Ok(revision)
    }

    /// Tells the other nodes. Returns those that did not hear it.
    async fn tell(&self, others: &[(ClusterPeer, Caller)], generation: u32) -> Vec<String> {
        let mut untold = Vec::new();
        for (peer, caller) in others {
            if let Err(why) = follow_me(caller, generation, &self.options.address).await {
                tracing::warn!("node {} could not be told of the takeover: {why}", peer.node_id);
                untold.push(peer.node_id.clone());
            }
        }
        untold
    }
}

async fn ask(
    peer: &ClusterPeer,
    caller: &Caller,
    generation: u32,
) -> Result<LocateResponse, Error> {
    let answered = caller.locate(generation).await;
    answered.map(|(answer, _)| answer).map_err(|fault| {
        let id = &peer.node_id;
        refuse(format!("node {id} does not answer ({}): start it, or name it as lost", fault.error))
    })
}

/// Checks whether another node's state allows a takeover with this copy.
fn may_go_on(
    peer: &ClusterPeer,
    theirs: &LocateResponse,
    kept: &PersistedState,
) -> Result<(), Error> {
    let id = &peer.node_id;
    if theirs.generation > kept.generation {
        let place = &theirs.coordinator;
        return Err(refuse(format!(
            "node {id} follows generation {}, coordinated at {place}: nothing is to be taken over",
            theirs.generation
        )));
    }
    if theirs.coordinates || theirs.reaches {
        let place = &theirs.coordinator;
        return Err(refuse(format!(
            "node {id} reaches the coordinator at {place}: stop that first"
        )));
    }
    if theirs.revision > kept.revision().map_or(0, |revision| revision.0) {
        return Err(refuse(format!("node {id} has seen a newer record: take over there")));
    }
    Ok(())
}

async fn follow_me(
    caller: &Caller,
    generation: u32,
    address: &str,
) -> Result<(), CoordinatorError> {
    let request = FollowRequest { generation, coordinator: address.to_owned() };
    let send = async |mut client: CoordinatorClient<Channel>, request| client.follow(request).await;
    let told = caller.call(generation, Effect::Writes, request, send).await;
    told.map(drop).map_err(|fault| fault.error)
}

/// Tells the former coordinator, until it has heard it or this coordinator no longer coordinates.
pub(super) fn announce_leader(durable: &Arc<DurableState>, options: &EmbeddedOptions) {
    let generation = durable.kept().generation;
    if durable.kept().supersedes.is_empty() {
        return;
    }
    let (token, address) = (options.token.clone(), options.address.clone());
    tokio::spawn(keep_knocking(Arc::downgrade(durable), generation, token, address));
}

async fn keep_knocking(
    durable: Weak<DurableState>,
    generation: u32,
    token: JoinToken,
    address: String,
) {
    loop {
        let Some(old) = durable.upgrade().and_then(|durable| {
            let kept = durable.kept();
            let still = kept.coordinates && kept.generation == generation;
            kept.supersedes.first().filter(|_| still).cloned()
        }) else {
            return;
        };
        let heard = match Caller::new(&old, &token) {
            Ok(caller) => follow_me(&caller, generation, &address).await.is_ok(),
            Err(_) => true,
        };
        let Some(durable) = durable.upgrade() else { return };
        if heard {
            let step = move |_: &DurableState, kept: &mut PersistedState| {
                kept.supersedes.retain(|place| *place != old);
                Ok(())
            };
            if let Err(why) = durable.change(step, |_| ()).await {
                tracing::warn!("{why}");
            }
        }
        drop(durable);
        tokio::time::sleep(limits::COORDINATOR_RETRY_MAX).await;
    }
}

fn refuse(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::DataChanged, format!("no takeover: {}", why.into()))
}
