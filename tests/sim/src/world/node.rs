//! One node: its agent, its copies, and the rings in use.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use larder_base::Member;
use larder_membership::{
    Agent, BlobId, BootId, Now,
    agent::{RingOf, Shard, Ticket},
};

use super::{Place, Placed, ShardNo};
use crate::bugs::Planted;

/// A copy of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Other bytes than the snapshot names.
    pub(crate) wrong: bool,
    pub(crate) since: Now,
}

/// A pull under way.
#[derive(Debug, Clone)]
pub(super) struct Pull {
    pub(super) plan: BlobId,
    pub(super) shard: Shard,
    pub(super) from: String,
}

/// A ring in use, with its exceptions.
#[derive(Debug, Clone)]
pub(crate) struct InUse {
    pub(crate) version: u64,
    pub(crate) placed: Rc<Placed>,
    pub(crate) previous: Option<Rc<Placed>>,
}

pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) id: String,
    /// The number of this start.
    pub(crate) boot: u32,
    /// When this start began: its clock counts from here.
    pub(crate) started: Now,
    pub(crate) agent: Option<Agent<Planted>>,
    pub(super) paused_until: Now,
    /// It listens elsewhere after each move.
    pub(super) address: u32,
    pub(super) host: usize,
    zone: String,
    /// The coordinator hears none of its announcements until then.
    pub(super) muted_until: Now,
    /// Its watch tells no records until then.
    pub(super) records_stall_until: Now,
    /// Its watch tells no announcements until then.
    pub(super) alive_stalls_until: Now,
    pub(crate) copies: BTreeMap<ShardNo, Copy>,
    /// Copies that were here, and until when.
    pub(crate) gone: BTreeMap<ShardNo, Now>,
    pub(crate) in_use: Option<InUse>,
    /// The ring to be installed, with exceptions missing, and the one before.
    pub(super) installing: Option<(RingOf, Option<RingOf>)>,
    /// Exceptions that it asked for.
    pub(super) fetching: BTreeSet<BlobId>,
    /// Exceptions that it has.
    pub(super) blobs: BTreeMap<BlobId, Rc<Vec<u8>>>,
    /// Requests to the coordinator that have no answer yet.
    pub(super) asked: BTreeSet<u64>,
    pub(super) away: bool,
    /// Commands without an answer, and since when they wait.
    pub(crate) commands: BTreeMap<Ticket, Now>,
    pub(super) pulling: BTreeSet<Shard>,
    /// Its last announcement before it crashed.
    pub(super) last_words: Vec<u8>,
    /// This start of it was seen in the ring.
    pub(crate) was_in_ring: bool,
    /// Generation, version and changes of its agent's record.
    pub(super) seen: (u64, u64, u64),
    /// When it last crashed.
    pub(super) crashed: Now,
    /// Pulls that ended well, of this start.
    pub(crate) verified: BTreeSet<ShardNo>,
}

impl Node {
    pub(super) fn new(place: Place, zones: usize) -> Self {
        Self {
            place,
            id: format!("n{place}"),
            boot: 0,
            started: Now::ZERO,
            agent: None,
            paused_until: Now::ZERO,
            address: 0,
            host: place,
            zone: if zones == 0 { String::new() } else { format!("zone-{}", place % zones) },
            muted_until: Now::ZERO,
            records_stall_until: Now::ZERO,
            alive_stalls_until: Now::ZERO,
            copies: BTreeMap::new(),
            gone: BTreeMap::new(),
            in_use: None,
            installing: None,
            fetching: BTreeSet::new(),
            blobs: BTreeMap::new(),
            asked: BTreeSet::new(),
            away: false,
            commands: BTreeMap::new(),
            pulling: BTreeSet::new(),
            last_words: Vec::new(),
            was_in_ring: false,
            seen: (0, 0, 0),
            crashed: Now::ZERO,
            verified: BTreeSet::new(),
        }
    }

    /// Whether this start of the node is the one that runs.
    pub(super) fn runs(&self, boot: u32) -> bool {
        self.agent.is_some() && self.boot == boot
    }

    /// Whether it would answer now.
    pub(crate) fn answers(&self, now: Now) -> bool {
        self.agent.is_some() && now >= self.paused_until
    }

    pub(super) fn boot_id(&self) -> BootId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.boot.to_le_bytes());
        bytes[4] = u8::try_from(self.place).expect("few nodes");
        BootId::from_bytes(bytes)
    }

    pub(super) fn member(&self) -> Member {
        let (place, address) = (self.place, self.address);
        Member {
            id: self.id.clone(),
            weight: 1,
            control: format!("http://n{place}.{address}.example:7070"),
            host: format!("host-{}", self.host),
            zone: self.zone.clone(),
        }
    }

    pub(super) fn crash(&mut self, now: Now) {
        self.agent = None;
        self.crashed = now;
        self.seen = (0, 0, 0);
        for shard in std::mem::take(&mut self.copies).into_keys() {
            self.gone.insert(shard, now);
        }
        self.in_use = None;
        self.installing = None;
        self.fetching.clear();
        self.blobs.clear();
        self.asked.clear();
        self.commands.clear();
        self.pulling.clear();
        self.verified.clear();
        self.was_in_ring = false;
        self.away = false;
    }

    pub(super) fn lose(&mut self, shard: ShardNo, now: Now) -> bool {
        let was_here = self.copies.remove(&shard).is_some();
        if was_here {
            self.gone.insert(shard, now);
        }
        was_here
    }

    /// Whether a copy is here, or was a moment ago.
    pub(crate) fn held_lately(&self, shard: ShardNo, now: Now, moment: Now) -> bool {
        self.copies.contains_key(&shard)
            || self.gone.get(&shard).is_some_and(|at| now < *at + moment)
    }
}
