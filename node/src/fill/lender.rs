//! A peer that has the shard which is being filled, and is asked for its parts before the origin is.

use std::sync::atomic::{AtomicBool, Ordering};

use larder_dataset::PartRead;
use larder_wire::data::ReadPart;

use crate::cache::Job;
use crate::counters::Counters;
use crate::pace::Turn;
use crate::peers::{Holder, Missed};
use crate::target::Target;

/// Who gave the first part that was asked for, and is asked for the others.
pub(super) struct Lender<'a> {
    holder: Holder,
    job: &'a Job,
    counters: &'a Counters,
    turn: &'a Turn<'a>,
    /// It failed once: the rest comes from the origin.
    failed: AtomicBool,
}

impl<'a> Lender<'a> {
    /// Fills `target` with a part from the first of `holders` that has the shard.
    pub(super) async fn find(
        job: &'a Job,
        holders: Vec<Holder>,
        (counters, turn): (&'a Counters, &'a Turn<'a>),
        read: &PartRead,
        target: &mut impl Target,
    ) -> Option<Self> {
        for holder in holders {
            let lender = Self { holder, job, counters, turn, failed: AtomicBool::new(false) };
            if lender.read(read, target).await {
                return Some(lender);
            }
        }
        None
    }

    /// Fills `target` with a part, if it still gives any.
    pub(super) async fn read(&self, read: &PartRead, target: &mut impl Target) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        let lent = self.try_read(read, target).await;
        if let Err(missed) = &lent {
            self.failed.store(true, Ordering::Relaxed);
            tracing::debug!(peer = %self.holder.peer.id(), %missed, "a peer does not lend a shard");
        }
        lent.is_ok()
    }

    async fn try_read(&self, read: &PartRead, target: &mut impl Target) -> Result<(), Missed> {
        let wrong = |what: &str| Missed::Wrong(format!("{what} is beyond what can be asked for"));
        let wanted = ReadPart {
            snapshot: self.job.dataset().snapshot(),
            shard: self.job.shard(),
            tensor: u32::try_from(read.tensor).map_err(|_| wrong("the tensor"))?,
            offset: read.region_offset,
            bytes: u32::try_from(read.bytes).map_err(|_| wrong("the length"))?,
        };
        let Holder { peer, patience } = &self.holder;
        let mut turn = self.turn.part().await;
        let digest = peer.read(&wanted, target, *patience, &mut turn).await?;
        if !self.job.flight().is_to_have(digest) {
            return Err(Missed::Wrong("it is another digest than before".to_owned()));
        }
        self.counters.peer_bytes.add(read.bytes);
        Ok(())
    }
}
