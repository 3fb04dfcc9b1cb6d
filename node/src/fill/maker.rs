//! Reads blocks into memory, from which rows are made.
//!
//! A block must be in memory as a whole before its rows can be made. That memory is part of the
//! node's budget, like a shard. If all of the budget is in use, one small block at a time goes
//! beyond it.
//!
//! Thread rule: tokio tasks. Making itself takes a core for up to seconds, so blocking threads do
//! it.

use std::sync::Arc;
use std::{ops::Range, time::Duration};

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use larder_base::{Error, ErrorKind, limits};
use larder_dataset::{BlockRead, BlocksRead, Damaged, FetchError, Leaf, Manifest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;

use super::{Asking, ObjectRange, Piece, Reader};
use crate::cache::{Cache, FailedRead, GaveUp, ReservedBytes};
use crate::dataset::Dataset;
use crate::dataset::bucket::{Gate, Urgency};

/// Wait before memory for a block is asked for again, and the number of waits.
const ROOM_WAIT: Duration = Duration::from_millis(50);
const ROOM_WAITS_MAX: u32 = 600;

/// Reads blocks: of each bucket as many at once as there are cores, and two more.
#[derive(Debug)]
pub(crate) struct Maker {
    cache: Arc<Cache>,
    reader: Arc<Reader>,
    /// The turn of the block that goes beyond the budget.
    beyond: Arc<Semaphore>,
}

/// Memory for a block.
#[derive(Debug)]
enum Room {
    InBudget(#[expect(dead_code, reason = "held until it is dropped")] ReservedBytes),
    Beyond(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit),
}

/// The stored bytes of some blocks. Their memory is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct StoredBlocks {
    pub(crate) bytes: Vec<u8>,
    _room: Room,
    _turn: OwnedSemaphorePermit,
}

impl Maker {
    pub(crate) fn new(cache: &Arc<Cache>, reader: &Arc<Reader>) -> Arc<Self> {
        let (cache, reader) = (Arc::clone(cache), Arc::clone(reader));
        Arc::new(Self { cache, reader, beyond: Arc::new(Semaphore::new(1)) })
    }

    /// Reads the range of some blocks, in parts that each take a turn at `gate`.
    pub(crate) async fn read(
        &self,
        dataset: &Dataset,
        leaf: &Leaf,
        read: &BlocksRead,
        gate: &Gate,
        urgency: &Arc<Urgency>,
    ) -> Result<StoredBlocks, GaveUp> {
        let turn = Arc::clone(&dataset.bucket().blocks).acquire_owned().await;
        let turn = turn.expect("the semaphore is never closed");
        let room = self.take_room(read.scratch_bytes()).await?;
        let length = |range: &Range<u64>| usize::try_from(range.end - range.start);
        let mut bytes = vec![0; length(&read.range).expect("a block is below its limit")];
        let (mut rest, mut reads) = (&mut *bytes, Vec::new());
        for range in read.ranges(limits::FILL_PART_BYTES) {
            let (part, after) = rest.split_at_mut(length(&range).expect("a part is small"));
            rest = after;
            let part = async move {
                let wanted = ObjectRange { leaf, object: read.object, range };
                let asking = Asking::at(gate, urgency);
                self.reader.read(dataset, &wanted, asking, &mut Piece::new(part)).await
            };
            reads.push(part.boxed());
        }
        let reads = stream::iter(reads).buffer_unordered(limits::FILL_GETS_MAX);
        reads.try_collect::<()>().await?;
        Ok(StoredBlocks { bytes, _room: room, _turn: turn })
    }

    /// Takes memory for a block. Waits for a while if there is no room.
    async fn take_room(&self, bytes: u64) -> Result<Room, Error> {
        let mut waits = 0;
        loop {
            match self.cache.reserve(bytes) {
                Ok(reserved) => return Ok(Room::InBudget(reserved)),
                Err(_) if bytes <= limits::MAKE_BYTES_FREE => {
                    let turn = Arc::clone(&self.beyond).acquire_owned().await;
                    return Ok(Room::Beyond(turn.expect("the semaphore is never closed")));
                }
                Err(_) if waits < ROOM_WAITS_MAX => time::sleep(ROOM_WAIT).await,
                Err(why) => {
                    let message = format!(
                        "rows that must be decoded need {bytes} bytes beside the shards: {}",
                        why.message()
                    );
                    return Err(Error::new(ErrorKind::ResourceExhausted, message));
                }
            }
            waits += 1;
        }
    }
}

/// Returns why a block can't be had that can't be made.
pub(crate) fn cannot_be_made(block: &BlockRead, damaged: Damaged) -> GaveUp {
    let Range { start, end } = block.range;
    let object = damaged.object.clone();
    let place = FailedRead { object, offset: start, bytes: end - start };
    let error = FetchError::from(damaged);
    let why = Error::new(ErrorKind::from(&error), error.to_string()).with_source(error);
    GaveUp { why, place: Some(place), attempts: 1 }
}

/// One block as a read of its own.
pub(crate) fn alone(block: BlockRead) -> BlocksRead {
    BlocksRead { object: block.object, range: block.range.clone(), blocks: vec![block] }
}

/// Copies of what making rows takes, for a blocking thread.
#[derive(Debug, Clone)]
pub(crate) struct MakerInput {
    pub(crate) manifest: Manifest,
    pub(crate) leaf: Leaf,
    pub(crate) shard: u32,
}
