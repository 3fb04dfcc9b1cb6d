//! The entry of a node: its first contact with the cluster, before its agent acts.
//!
//! The node enters once the coordinator has answered, and no other process answers under the node's
//! name. A node that joins for the first time ends if no answer comes: its settings may be wrong. A
//! node that was in the cluster before waits for ever, because it serves reads meanwhile.

use larder_base::{Error, ErrorKind, Member, limits};
use larder_coordinator::{ClusterPeer, CoordinatorView};
use larder_membership::Record;
use larder_wire::control::{DescribeRequest, NodeDescription, node_client::NodeClient};
use tokio::time::{self, MissedTickBehavior};
use tonic::transport::Endpoint;

use super::Driver;
use crate::cluster::Cluster;

/// The answer to an operator before the entry.
const NO_RECORD: &str =
    "this node has not seen the cluster's record yet; try again, or another node";

impl Driver {
    /// Waits until this node may enter.
    ///
    /// # Errors
    /// `Unavailable` if the cluster does not answer a newcomer in time. `InvalidArgument` if
    /// another process has the node's name.
    pub(super) async fn enter(&mut self) -> Result<(), Error> {
        self.yield_to_successor().await;
        let mut tick = time::interval(self.shared.config.timing.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let view = self.watch.view();
            let Some(why) = self.watch.away() else {
                if std::mem::take(&mut self.seen.away) {
                    tracing::info!("the cluster answers");
                }
                return self.check_name(&view).await;
            };
            self.wait_on(&why)?;
            tokio::select! {
                _ = tick.tick() => {}
                more = self.watch.changed() => if !more {
                    return std::future::pending().await;
                },
                Some(request) = self.inbox.requests.recv() => {
                    // The operator may have gone.
                    let _ = request.answer.send(Err(NO_RECORD.to_owned()));
                }
            }
        }
    }

    /// Lets a coordinator that another one replaced follow it, before its agent goes by an old
    /// record: a member that sees itself removed stays out until its next start.
    async fn yield_to_successor(&mut self) {
        let view = self.watch.view();
        let seat = self.shared.cluster.as_ref().and_then(Cluster::seat);
        if let (Some(seat), Some(record)) = (seat, recorded(&view)) {
            let peers = record.members.into_iter().map(|entry| entry.member);
            let peers = peers
                .map(|Member { id, control, .. }| ClusterPeer { node_id: id, address: control });
            seat.yield_to_successor(&peers.collect::<Vec<_>>()).await;
        }
    }

    /// Tells the log, once, why the coordinator does not answer. Refuses a newcomer that has waited
    /// for too long.
    fn wait_on(&mut self, why: &str) -> Result<(), Error> {
        let (waited, timing) = (self.clock(), &self.shared.config.timing);
        if self.newcomer && waited >= timing.entry_wait_max {
            let limit = timing.entry_wait_max;
            let what = format!("no node of the cluster took this node in within {limit:?}: {why}");
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        if waited > timing.turn && !std::mem::replace(&mut self.seen.away, true) {
            tracing::warn!("this node has not reached its cluster yet, and goes on asking: {why}");
        }
        self.show();
        Ok(())
    }

    /// Refuses this node if another process answers under its name at another address.
    async fn check_name(&self, view: &CoordinatorView) -> Result<(), Error> {
        let record = recorded(view);
        let known = record.as_ref().and_then(|record| record.entry(&self.me.id));
        let Some(Member { id, control, .. }) = known.map(|entry| &entry.member) else {
            return Ok(());
        };
        // This process listens at its own address, so no other one does.
        if *control == self.me.control {
            return Ok(());
        }
        let other = described(control).await.filter(|node| {
            node.node_id == *id && !node.draining && *node.boot_id != self.shared.boot_id
        });
        other.map_or(Ok(()), |_| {
            let what = format!(
                "another node named '{id}' answers at {control}: give this node a name of its own with --node-id"
            );
            Err(Error::new(ErrorKind::InvalidArgument, what))
        })
    }
}

fn recorded(view: &CoordinatorView) -> Option<Record> {
    view.record.as_ref().and_then(|stored| Record::decode(&stored.record).ok())
}

/// Asks the node at an address for its description. `None` if no answer comes in time.
async fn described(control: &str) -> Option<NodeDescription> {
    let endpoint = Endpoint::from_shared(control.to_owned()).ok()?;
    let channel = endpoint.connect_timeout(limits::CONNECT_TIMEOUT).connect_lazy();
    let mut client =
        NodeClient::new(channel).max_decoding_message_size(limits::CONTROL_MESSAGE_BYTES_MAX);
    let asked = client.describe(DescribeRequest {});
    let answer = time::timeout(limits::OWNER_SILENT_TIMEOUT, asked).await.ok()?;
    answer.ok().map(tonic::Response::into_inner)
}
