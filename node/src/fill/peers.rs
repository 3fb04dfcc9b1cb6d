//! The other nodes of the ring, as sources of shards for this node.
//!
//! Other holders of a shard are another owner, the owner before a ring change, and the stand-in of
//! an absent owner. The fill worker asks such a node before the origin. It asks for bytes of the
//! extent as they lie in memory. The layout follows from the manifest, so it is the same on every
//! node. A peer gives only shards that it holds, and starts no fill.
//!
//! Bytes of a peer are trusted no more than bytes of the origin. Each piece has a checksum. The
//! whole shard is compared with a digest of the row checksums, which the peer took when it filled
//! the shard.
//!
//! Thread rule: tokio tasks. Waits are short: a peer that does not answer is skipped for a while.
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

pub(crate) use connection::Missed;
pub(crate) use peer::Peer;

use crate::cluster::Placements;

/// Timeout of a node that is not the owner when it asks other nodes, the owner included, for a
/// shard. Shorter than [`limits::OWNER_SILENT_TIMEOUT`]: the client that turned to this node has
/// most likely waited for a silent one already.
const STAND_IN_PATIENCE: Duration = Duration::from_millis(500);

/// The fewest members of one ring to ask for a shard: its owner and the node that stands in for it.
const ASKED_MIN: usize = 2;

/// A peer that may hold a shard, and how long it may stay silent when asked.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) peer: Arc<Peer>,
    pub(crate) patience: Duration,
}

/// The other members of the ring in use and of the one before. Connections open on first use.
#[derive(Debug)]
pub(crate) struct Peers {
    own_id: String,
    placements: Arc<ArcSwap<Placements>>,
    /// By control address.
    known: Mutex<HashMap<String, Arc<Peer>>>,
}

impl Peers {
    /// Creates the peers of the node that the ring calls `own_id`.
    pub(crate) fn new(own_id: &str, placements: Arc<ArcSwap<Placements>>) -> Self {
        Self { own_id: own_id.to_owned(), placements, known: Mutex::default() }
    }

    /// Returns the peers that may hold a shard, in the order to ask them, without those that were
    /// silent lately. The owner before the ring change comes first if this node owns the shard now,
    /// else last.
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
        let patience = if mine { limits::OWNER_SILENT_TIMEOUT } else { STAND_IN_PATIENCE };
        let peers = asked.into_iter().map(|member| self.peer(&member.id, &member.control));
        peers.filter(|peer| peer.answers()).map(|peer| Holder { peer, patience }).collect()
    }

    /// Returns a member of the ring in use or of the one before. `None` for other names and this
    /// node.
    pub(crate) fn named(&self, id: &str) -> Option<Arc<Peer>> {
        let placements = self.placements.load();
        let rings = [Some(&**placements), placements.previous().map(|previous| &**previous)];
        let member = rings.iter().flatten().find_map(|placements| placements.ring().member(id))?;
        (id != self.own_id).then(|| self.peer(id, &member.control))
    }

    /// Sets the data addresses of members, by name.
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
        // Drop peers that are in neither ring.
        let placements = self.placements.load();
        let rings = [Some(&**placements), placements.previous().map(|previous| &**previous)];
        let members = || rings.iter().flatten().flat_map(|placements| placements.ring().members());
        known.retain(|address, _| members().any(|member| member.control == *address));
        let peer = Arc::new(Peer::new(id, control, &self.own_id));
        known.insert(control.to_owned(), Arc::clone(&peer));
        peer
    }
}
