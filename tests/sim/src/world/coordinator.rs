//! The coordinator's contract: one record by compare-and-set, blobs, announcements.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use larder_membership::{
    BlobId, Now, Record, Revision, Timing,
    agent::{Alive, ProposalOutcome, StoredRecord, Ticket},
};

use crate::bugs::{Mishap, Planted};

/// A blob younger than this is not swept: a proposal may be about to name it.
const YOUNG: Duration = Duration::from_secs(600);

/// Leaves room for lower revisions after a takeover that were never used.
const FIRST_REVISION: u64 = 1 << 40;
const BETWEEN_TAKEOVERS: u64 = 1 << 20;

/// A request of a node.
#[derive(Debug, Clone, Hash)]
pub(super) enum Request {
    Announce(Vec<u8>),
    Withdraw,
    Refresh(Ticket),
    Propose { ticket: Ticket, blobs: Vec<Vec<u8>>, expected: Option<Revision>, record: Vec<u8> },
    Fetch(BlobId),
    Sweep { at: Revision, keep: Vec<BlobId> },
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(super) enum Response {
    Nothing,
    Refreshed(Ticket, Option<StoredRecord>, Alive),
    Proposed(Ticket, ProposalOutcome),
    Blob(BlobId, Option<Vec<u8>>),
}

/// The changes that watchers are told of.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changed {
    pub(super) record: bool,
    pub(super) alive: bool,
}

#[derive(Debug, Default)]
pub(super) struct Coordinator {
    pub(super) up: bool,
    pub(super) up_since: Now,
    stored: Option<(Revision, Rc<Vec<u8>>)>,
    before: Option<(Revision, Rc<Vec<u8>>)>,
    blobs: BTreeMap<BlobId, (Rc<Vec<u8>>, Now)>,
    announced: BTreeMap<String, (Vec<u8>, Now)>,
    stamp: u64,
    /// The record that a coordinator with a stale cache answers as the newest.
    cached: Option<Option<(Revision, Rc<Vec<u8>>)>>,
}

impl Coordinator {
    pub(super) fn new() -> Self {
        Self { up: true, ..Self::default() }
    }

    pub(super) fn stored(&self) -> Option<StoredRecord> {
        self.stored.as_ref().map(|(revision, bytes)| StoredRecord {
            revision: *revision,
            bytes: bytes.as_ref().clone(),
        })
    }

    pub(super) fn alive(&self) -> Alive {
        let nodes = self.announced.iter().map(|(id, (bytes, _))| (id.clone(), bytes.clone()));
        Alive { stamp: self.stamp, nodes: nodes.collect() }
    }

    pub(super) fn announces(&self, id: &str) -> bool {
        self.announced.contains_key(id)
    }

    /// Returns the announced nodes.
    pub(super) fn announced(&self) -> Vec<&str> {
        self.announced.keys().map(String::as_str).collect()
    }

    pub(super) fn blob(&self, id: BlobId) -> Option<&[u8]> {
        self.blobs.get(&id).map(|(bytes, _)| bytes.as_slice())
    }

    pub(super) fn answer(
        &mut self,
        now: Now,
        id: &str,
        request: Request,
        planted: Planted,
    ) -> (Response, Changed) {
        let mut changed = Changed::default();
        let response = match request {
            Request::Announce(bytes) => {
                let until = now + Timing::REAL.announcement_ttl;
                let known = self.announced.insert(id.to_owned(), (bytes.clone(), until));
                changed.alive = known.is_none_or(|(known, _)| known != bytes);
                Response::Nothing
            }
            Request::Withdraw => {
                changed.alive = self.announced.remove(id).is_some();
                Response::Nothing
            }
            Request::Refresh(ticket) => {
                let mut stored = self.stored();
                if planted.world(Mishap::StaleAnswers) && self.stored.is_some() {
                    let cached = self.cached.get_or_insert_with(|| self.stored.clone());
                    stored = cached.as_ref().map(|(revision, bytes)| StoredRecord {
                        revision: *revision,
                        bytes: bytes.as_ref().clone(),
                    });
                }
                Response::Refreshed(ticket, stored, self.alive())
            }
            Request::Propose { ticket, blobs, expected, record } => {
                let outcome = self.replace(now, blobs, expected, record, planted);
                changed.record = matches!(outcome, ProposalOutcome::Done(_))
                    && !planted.world(Mishap::StaleAnswers);
                Response::Proposed(ticket, outcome)
            }
            Request::Fetch(blob) => Response::Blob(blob, self.blob(blob).map(<[u8]>::to_vec)),
            Request::Sweep { at, keep } => {
                self.sweep(now, at, &keep, planted);
                Response::Nothing
            }
        };
        self.stamp += u64::from(changed.alive);
        (response, changed)
    }

    fn replace(
        &mut self,
        now: Now,
        blobs: Vec<Vec<u8>>,
        expected: Option<Revision>,
        record: Vec<u8>,
        planted: Planted,
    ) -> ProposalOutcome {
        if !planted.world(Mishap::RecordBeforeBlobs) {
            for blob in blobs {
                self.blobs.insert(BlobId::of(&blob), (Rc::new(blob), now));
            }
        }
        let revision = self.stored.as_ref().map(|(revision, _)| *revision);
        if revision != expected && !planted.world(Mishap::ReplaceWithoutCompare) {
            return ProposalOutcome::Moved(self.stored());
        }
        let next = Revision(revision.map_or(FIRST_REVISION, |revision| revision.0 + 1));
        self.before = self.stored.replace((next, Rc::new(record)));
        ProposalOutcome::Done(next)
    }

    fn sweep(&mut self, now: Now, at: Revision, keep: &[BlobId], planted: Planted) {
        let fenced = !planted.world(Mishap::SweepWithoutFence);
        if fenced && self.stored.as_ref().is_none_or(|(revision, _)| *revision != at) {
            return;
        }
        self.blobs.retain(|id, (_, put)| keep.contains(id) || (fenced && now < *put + YOUNG));
    }

    /// Ends announcements that were not renewed. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Now, planted: Planted) -> bool {
        if planted.world(Mishap::AnnouncementsForEver) {
            return false;
        }
        let before = self.announced.len();
        self.announced.retain(|_, (_, until)| now < *until);
        let ended = self.announced.len() < before;
        self.stamp += u64::from(ended);
        ended
    }

    /// Restarts with the state on its disk. `leases`: announcements survive, as in a cluster of
    /// coordinators.
    pub(super) fn restart(&mut self, now: Now, leases: bool, planted: Planted) {
        (self.up, self.up_since) = (true, now);
        self.stamp += 1 << 32;
        if leases {
            for (_, until) in self.announced.values_mut() {
                *until = now + Timing::REAL.announcement_ttl;
            }
        } else {
            self.announced.clear();
        }
        if planted.world(Mishap::AcknowledgedWriteLost) && self.before.is_some() {
            self.stored = self.before.clone();
        }
    }

    /// Lets another coordinator take over for good, with this one's record and blobs. Returns the
    /// record that the old one still has.
    pub(super) fn take_over(&mut self, now: Now) -> Option<StoredRecord> {
        let old = self.stored()?;
        let mut record = Record::decode(&old.bytes).ok()?;
        record.generation += 1;
        let bytes = record.encode().ok()?;
        // The new one, restored elsewhere, counts its writes from a lower number that was never
        // used.
        self.stored = Some((Revision(old.revision.0 - BETWEEN_TAKEOVERS), Rc::new(bytes)));
        self.before = None;
        self.restart(now, false, Planted(None));
        Some(old)
    }
}
