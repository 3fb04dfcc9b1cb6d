//! The other nodes of the ring, as far as this one reads shards from them.
//!
//! A shard may be in memory elsewhere: with another of its owners, with who owned it before the ring
//! changed, or with who stood in while its owner was away. Such a node is asked before the origin: for bytes of the extent, as they
//! lie in memory, since the layout follows from the manifest and is the same everywhere. A peer gives
//! what it has and fills nothing because of it.
//!
//! What comes is trusted no more than the origin: each piece has a checksum, and the whole is compared
//! with a digest of the checksums that the peer took of the rows when it got them.
//!
//! Thread rule: tokio tasks. Nobody waits long: a peer that does not answer is passed over for a while.
//! Non-goals: rows for clients, filling in a peer's place.

mod connection;
mod peer;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use larder_base::{Member, ShardId, SnapshotId, limits};

pub(crate) use peer::{Missed, Peer};

use crate::placements::Placements;

/// Members of one ring that are asked for a shard at least: its owner and the one that stands in for that.
const ASKED_MIN: usize = 2;

/// Who may have a shard, and how long it may say nothing when it is asked for it.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) peer: Arc<Peer>,
    pub(crate) patience: Duration,
}

/// The members of the ring in use and of the one before but this node, connected to when they are first asked.
#[derive(Debug)]
pub(crate) struct Peers {
    own_id: String,
    placements: Arc<ArcSwap<Placements>>,
    /// By control address.
    known: Mutex<HashMap<String, Arc<Peer>>>,
}

impl Peers {
    /// The peers of the node that the ring calls `own_id`.
    pub(crate) fn new(own_id: &str, placements: Arc<ArcSwap<Placements>>) -> Self {
        Self { own_id: own_id.to_owned(), placements, known: Mutex::default() }
    }

    /// Who may have a shard, in the order in which they are to be asked; without those that did not
    /// answer lately. Who owned it before the ring changed comes first where this node owns it now, and last
    /// elsewhere.
    pub(crate) fn holders(&self, snapshot: SnapshotId, shard: ShardId) -> Vec<Holder> {
        let placements = self.placements.load();
        let now = placements.of(snapshot);
        let others = now.walk(shard).filter(|member| member.id != self.own_id);
        let mut asked: Vec<&Member> = others.take(ASKED_MIN.max(now.replicas())).collect();
        let before = placements.previous().map(|previous| previous.of(snapshot));
        let former = before.iter().flat_map(|before| before.walk(shard));
        let former = former.take(1).find(|member| member.id != self.own_id);
        let mine = placements.gives(snapshot, shard, &self.own_id);
        if let Some(former) = former {
            asked.retain(|member| member.id != former.id);
            asked.insert(if mine { 0 } else { asked.len() }, former);
        }
        let patience = if mine { limits::OWNER_SILENT_TIMEOUT } else { limits::STAND_IN_PATIENCE };
        let peers = asked.into_iter().map(|member| self.peer(&member.id, &member.control));
        peers.filter(|peer| peer.answers()).map(|peer| Holder { peer, patience }).collect()
    }

    /// A member of the ring in use or of the one before, by its name; `None` for others and for this node.
    pub(crate) fn named(&self, id: &str) -> Option<Arc<Peer>> {
        let placements = self.placements.load();
        let rings = [Some(&**placements), placements.previous().map(|previous| &**previous)];
        let member = rings.iter().flatten().find_map(|placements| placements.ring().member(id))?;
        (id != self.own_id).then(|| self.peer(id, &member.control))
    }

    /// Makes it known how members are reached, by their names and data addresses.
    #[cfg(test)]
    pub(crate) fn meet(&self, members: &[(&str, String)]) {
        let mut known = self.known.lock().unwrap();
        for (id, address) in members {
            let placements = self.placements.load();
            let control = placements.ring().member(id).unwrap().control.clone();
            known.insert(control, Arc::new(Peer::met(id, address)));
        }
    }

    fn peer(&self, id: &str, control: &str) -> Arc<Peer> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = known.get(control).filter(|peer| peer.id() == id) {
            return Arc::clone(peer);
        }
        // Who is in neither ring is forgotten when somebody new is met.
        let placements = self.placements.load();
        let rings = [Some(&**placements), placements.previous().map(|previous| &**previous)];
        let members = || rings.iter().flatten().flat_map(|placements| placements.ring().members());
        known.retain(|address, _| members().any(|member| member.control == *address));
        let peer = Arc::new(Peer::new(id, control, &self.own_id));
        known.insert(control.to_owned(), Arc::clone(&peer));
        peer
    }
}
