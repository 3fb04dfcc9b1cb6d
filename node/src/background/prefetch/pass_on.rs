//! Passes the plans of this node's clients on to the other nodes.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use larder_base::limits;
use larder_wire::control::{ReadPlan, TellPlansRequest};
use prost::Message;
use tokio::time;

use crate::clock;
use crate::fill::Peer;
use crate::shared::Shared;

/// Nodes that are told at once.
const TOLD_AT_ONCE: usize = 16;

/// News is passed on so many times as often as what is known, at most.
const NEWS_SHARE: u32 = 20;

/// Bytes of the plans of one message. A longer plan goes alone.
const MESSAGE_BYTES: usize = limits::CONTROL_REQUEST_BYTES_MAX / 2;

/// Starts the task. It ends when the node stops.
pub(super) fn start(shared: &Arc<Shared>) {
    let (told, stopping) = (Arc::clone(shared), shared.stopping.clone());
    shared.runtime.spawn(async move { stopping.run_until_cancelled_owned(run(told)).await });
}

async fn run(shared: Arc<Shared>) {
    loop {
        let placements = shared.placements.load_full();
        let members = placements.ring().members();
        // A loader that entered a window is news.
        let interval = shared.plans.interval(members.len());
        time::sleep(interval / NEWS_SHARE).await;
        let _ = time::timeout(interval, shared.plans.own_changed()).await;
        let messages = messages(shared.plans.own(clock::now()), &shared.config.node_id);
        if messages.is_empty() {
            continue;
        }
        let messages = Arc::new(messages);
        let peers = members.iter().filter_map(|member| shared.peers.named(&member.id));
        let peers = peers.filter(|peer| peer.answers());
        let telling: Vec<_> = peers.map(|peer| tell(peer, Arc::clone(&messages))).collect();
        // A slow node must not hold up what the others are told next.
        let all = stream::iter(telling).buffer_unordered(TOLD_AT_ONCE).collect::<()>();
        let _ = time::timeout(limits::READ_PLAN_LIFETIME, all).await;
    }
}

async fn tell(peer: Arc<Peer>, messages: Arc<Vec<TellPlansRequest>>) {
    for message in messages.iter() {
        peer.tell_plans(message.clone()).await;
    }
}

/// Divides plans into messages that fit.
fn messages(plans: Vec<ReadPlan>, node_id: &str) -> Vec<TellPlansRequest> {
    let (mut messages, mut bytes) = (Vec::<TellPlansRequest>::new(), 0);
    for plan in plans {
        let more = plan.encoded_len();
        match messages.last_mut().filter(|_| bytes + more <= MESSAGE_BYTES) {
            Some(message) => {
                message.plans.push(plan);
                bytes += more;
            }
            None => {
                messages.push(TellPlansRequest { plans: vec![plan], node_id: node_id.to_owned() });
                bytes = more;
            }
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_go_in_messages_that_fit_a_request() {
        let plan = |runs: u32| ReadPlan {
            shards: (0..runs).flat_map(|run| [u32::MAX - run, u32::MAX]).collect(),
            ..ReadPlan::default()
        };
        let plans: Vec<ReadPlan> = [6_000, 1, 1, 2_000, 2_000, 1].map(plan).into();
        let messages = messages(plans.clone(), "n1");
        let counts: Vec<usize> = messages.iter().map(|message| message.plans.len()).collect();
        assert_eq!(counts, [1, 3, 2]);
        for message in &messages {
            assert!(message.encoded_len() < limits::CONTROL_REQUEST_BYTES_MAX);
        }
        assert!(messages.into_iter().flat_map(|message| message.plans).eq(plans));
    }
}
