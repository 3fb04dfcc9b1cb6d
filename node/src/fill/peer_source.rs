//! A peer that holds the shard being filled. The fill asks it for parts before it asks the origin.

use std::sync::atomic::{AtomicBool, Ordering};

use larder_base::limits;
use larder_extent::PartSpec;
use larder_wire::data::{Part, ReadPart};

use crate::cache::{Counters, FillJob};
use crate::clock;
use crate::fill::{ByteSink, Holder, Missed, Piece, TransferThrottle};

/// The peer that gave the first part. The fill asks it for the other parts too.
pub(super) struct PeerSource<'a> {
    holder: Holder,
    job: &'a FillJob,
    counters: &'a Counters,
    throttle: &'a TransferThrottle,
    /// Set after the first failure: the other parts come from the origin.
    failed: AtomicBool,
}

impl<'a> PeerSource<'a> {
    /// Fills `target` with a part from the first of `holders` that gives it.
    pub(super) async fn find(
        job: &'a FillJob,
        holders: Vec<Holder>,
        counters: &'a Counters,
        throttle: &'a TransferThrottle,
        read: &PartSpec,
        target: &mut impl ByteSink,
    ) -> Option<Self> {
        for holder in holders {
            let peer = Self { holder, job, counters, throttle, failed: AtomicBool::new(false) };
            if peer.read(read, target).await {
                return Some(peer);
            }
        }
        None
    }

    /// Fills `target` with a part. Returns false if the peer failed, now or earlier.
    pub(super) async fn read(&self, read: &PartSpec, target: &mut impl ByteSink) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        let lent = self.try_read(read, target).await;
        if let Err(missed) = &lent {
            self.failed.store(true, Ordering::Relaxed);
            tracing::debug!(peer = %self.holder.peer.id(), %missed, "a peer does not give the shard");
        }
        lent.is_ok()
    }

    async fn try_read(&self, read: &PartSpec, target: &mut impl ByteSink) -> Result<(), Missed> {
        let wrong = |what: &str| Missed::Wrong(format!("{what} is beyond what can be asked for"));
        let wanted = ReadPart {
            snapshot: self.job.dataset().snapshot(),
            shard: self.job.shard(),
            tensor: u32::try_from(read.region).map_err(|_| wrong("the tensor"))?,
            offset: read.range.start,
            bytes: u32::try_from(read.range.end - read.range.start)
                .map_err(|_| wrong("the length"))?,
        };
        let digest = if self.job.flight().is_hurried() {
            self.ask(&wanted, target).await?.digest
        } else {
            self.read_in_pieces(wanted, target).await?
        };
        if !self.job.flight().note_digest(digest) {
            return Err(another_digest());
        }
        self.counters.peer_bytes.add(read.range.end - read.range.start);
        Ok(())
    }

    /// Reads a background shard in small pieces, so that readers at both nodes hardly notice. Once
    /// a reader waits for the shard, reads the remainder at once. Returns the digest that the whole
    /// shard must have.
    async fn read_in_pieces(
        &self,
        part: ReadPart,
        target: &mut impl ByteSink,
    ) -> Result<u64, Missed> {
        let flight = self.job.flight();
        let (mut memory, mut digest, mut done) = (Vec::new(), None, 0);
        target.begin();
        while done < part.bytes {
            let turn = self.throttle.turn(flight).await;
            let most = if flight.is_hurried() { part.bytes } else { limits::YIELD_PIECE_BYTES };
            let bytes = most.min(part.bytes - done);
            memory.resize(bytes as usize, 0);
            let begun = clock::now();
            let piece = ReadPart { offset: part.offset + u64::from(done), bytes, ..part };
            let said = self.ask(&piece, &mut Piece::new(&mut memory)).await?;
            target.put(&memory)?;
            done += bytes;
            if *digest.get_or_insert(said.digest) != said.digest {
                return Err(another_digest());
            }
            turn.end(clock::now() - begun, said.rests).await;
        }
        Ok(digest.expect("a part is not empty"))
    }

    async fn ask(&self, wanted: &ReadPart, target: &mut impl ByteSink) -> Result<Part, Missed> {
        self.holder.peer.read(wanted, target, self.holder.patience).await
    }
}

fn another_digest() -> Missed {
    Missed::Wrong("it is another digest than before".to_owned())
}
