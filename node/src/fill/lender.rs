//! A peer that has the shard which is being filled, and is asked for its parts before the origin is.

use std::sync::atomic::{AtomicBool, Ordering};

use larder_dataset::PartRead;
use larder_wire::data::ReadPart;
use larder_wire::limits;

use crate::cache::Job;
use crate::clock;
use crate::counters::Counters;
use crate::pace::Pace;
use crate::peers::{Holder, Missed};
use crate::target::{Piece, Target};

/// Who gave the first part that was asked for, and is asked for the others.
pub(super) struct Lender<'a> {
    holder: Holder,
    job: &'a Job,
    counters: &'a Counters,
    pace: &'a Pace,
    /// It failed once: the rest comes from the origin.
    failed: AtomicBool,
}

impl<'a> Lender<'a> {
    /// Fills `target` with a part from the first of `holders` that has the shard.
    pub(super) async fn find(
        job: &'a Job,
        holders: Vec<Holder>,
        (counters, pace): (&'a Counters, &'a Pace),
        read: &PartRead,
        target: &mut impl Target,
    ) -> Option<Self> {
        for holder in holders {
            let lender = Self { holder, job, counters, pace, failed: AtomicBool::new(false) };
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
        if self.job.flight().is_hurried() {
            return self.ask(&wanted, target).await.map(drop);
        }
        self.read_in_pieces(wanted, target).await
    }

    /// Reads what nobody waits for, so that whoever reads here or there hardly notices.
    async fn read_in_pieces(&self, part: ReadPart, target: &mut impl Target) -> Result<(), Missed> {
        let mut memory = vec![0; part.bytes.min(limits::YIELD_PIECE_BYTES) as usize];
        target.begin();
        let mut left = part.bytes;
        while left > 0 {
            let bytes = left.min(limits::YIELD_PIECE_BYTES);
            let offset = part.offset + u64::from(part.bytes - left);
            let piece = &mut memory[..bytes as usize];
            let turn = self.pace.turn(self.job.flight()).await;
            let begun = clock::now();
            let wanted = ReadPart { offset, bytes, ..part };
            let rests = self.ask(&wanted, &mut Piece::new(piece)).await?;
            target.put(piece)?;
            left -= bytes;
            turn.end(clock::now() - begun, rests).await;
        }
        Ok(())
    }

    /// Fills `target` with what is wanted. Returns for how many times as long as that took the peer wants to be left alone.
    async fn ask(&self, wanted: &ReadPart, target: &mut impl Target) -> Result<u32, Missed> {
        let Holder { peer, patience } = &self.holder;
        let part = peer.read(wanted, target, *patience).await?;
        if !self.job.flight().is_to_have(part.digest) {
            return Err(Missed::Wrong("it is another digest than before".to_owned()));
        }
        self.counters.peer_bytes.add(u64::from(wanted.bytes));
        Ok(part.rests)
    }
}
