//! Cuts positions into global batches, and those into the shares of ranks.

use std::num::NonZeroU32;
use std::ops::Range;

use super::Error;

/// How to deliver the last global batch if it is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Last {
    /// It is not delivered: up to one global batch less one sample stays out of the epoch.
    Drop,
    /// Ranks get equal shares, filled up with samples from the start of the epoch. Those come
    /// marked ([`BatchRow::padding`]) and are not to be counted in a digest or a metric.
    Pad,
    /// It is delivered as it is: ranks' shares differ by up to one sample and may be empty. **Under
    /// PyTorch's DDP this hangs**: a rank without a batch does not enter the gradient exchange that
    /// the others wait in. For evaluation, or for one rank.
    Uneven,
}

/// The batches of an epoch, or of the rest of a resumed epoch.
///
/// Global batch `b` covers `batch_size * world` consecutive positions from
/// `start + b * batch_size * world` on, so that ranks together walk the order position by position
/// whatever the world size. Every process computes the same plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlan {
    positions: u64,
    start: u64,
    batch_size: NonZeroU32,
    world: NonZeroU32,
    last: Last,
}

impl BatchPlan {
    /// The batches of an epoch of `positions` positions from position `start` on (0, or where a
    /// state resumes), `batch_size` samples a rank, for `world` ranks.
    ///
    /// # Errors
    /// [`Error::Position`] if `start` lies past the end.
    pub fn new(
        positions: u64,
        start: u64,
        batch_size: NonZeroU32,
        world: NonZeroU32,
        last: Last,
    ) -> Result<Self, Error> {
        if start > positions {
            return Err(Error::Position { position: start, positions });
        }
        Ok(Self { positions, start, batch_size, world, last })
    }

    /// Samples of a full global batch.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.batch_size.get()) * u64::from(self.world.get())
    }

    /// Global batches from the plan's start to the end of the epoch, the same for every rank.
    pub fn batches_in_epoch(&self) -> u64 {
        let left = self.positions - self.start;
        match self.last {
            Last::Drop => left / self.global_batch(),
            Last::Pad | Last::Uneven => left.div_ceil(self.global_batch()),
        }
    }

    /// The positions that the plan's batches deliver, padding aside: all from its start on, but for
    /// what [`Last::Drop`] leaves out.
    pub fn delivered(&self) -> Range<u64> {
        self.start..self.position_after_batches(self.batches_in_epoch())
    }

    /// The positions of global batch `batch`, padding aside, or `None` past the last.
    pub fn batch(&self, batch: u64) -> Option<Range<u64>> {
        (batch < self.batches_in_epoch())
            .then(|| self.position_after_batches(batch)..self.position_after_batches(batch + 1))
    }

    /// The position at which to resume once all ranks are done with `batch`, or `None` past the
    /// last.
    pub fn position_after(&self, batch: u64) -> Option<u64> {
        Some(self.batch(batch)?.end)
    }

    /// The share of `rank` in global batch `batch`, or `None` past the last batch or rank.
    pub fn share(&self, batch: u64, rank: u32) -> Option<Share> {
        if rank >= self.world.get() {
            return None;
        }
        let global = self.batch(batch)?;
        let positions = assign(&global, rank, self.world);
        let taken = positions.end - positions.start;
        let (padding_start, padding) = match self.last {
            Last::Pad => {
                let size = u64::from(self.batch_size.get());
                let before = u64::from(rank) * size - (positions.start - global.start);
                (before, size - taken)
            }
            Last::Drop | Last::Uneven => (0, 0),
        };
        Some(Share { positions, padding_start, padding, epoch: self.positions })
    }

    fn position_after_batches(&self, batches: u64) -> u64 {
        let offset = batches.saturating_mul(self.global_batch());
        self.start.saturating_add(offset).min(self.positions)
    }
}

/// The positions of a global batch that go to `rank` unless a locality divides them: consecutive
/// slices, as equal as possible, the longer ones first. By [`RankHosts`](super::RankHosts) each
/// rank gets as many rows, but others.
fn assign(global: &Range<u64>, rank: u32, world: NonZeroU32) -> Range<u64> {
    let (rank, world) = (u64::from(rank), u64::from(world.get()));
    let count = global.end - global.start;
    let (each, longer) = (count / world, count % world);
    let start = global.start + rank * each + rank.min(longer);
    start..start + each + u64::from(rank < longer)
}

/// The share of one rank in one global batch: its own positions, then padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    positions: Range<u64>,
    padding_start: u64,
    padding: u64,
    epoch: u64,
}

/// One row of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRow {
    /// The position of the row's sample.
    pub position: u64,
    /// Whether it only fills up the last batch: outside digests and metrics.
    pub padding: bool,
}

impl Share {
    /// Rows, padding included.
    pub fn len(&self) -> u64 {
        self.positions.end - self.positions.start + self.padding
    }

    /// Whether the rank gets nothing, as in the last batch of [`Last::Uneven`] it may.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The positions that count; the rows after them are padding.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Rows of padding at the end.
    pub fn padding(&self) -> u64 {
        self.padding
    }

    /// The rows in order: those that count, then padding, which repeats positions from the start of
    /// the epoch (round and round in an epoch shorter than a global batch), others for each rank.
    pub fn rows(&self) -> impl Iterator<Item = BatchRow> + use<> {
        let epoch = self.epoch;
        let own = self.positions.clone().map(|position| BatchRow { position, padding: false });
        let padding = (self.padding_start..self.padding_start + self.padding)
            .map(move |index| BatchRow { position: index % epoch, padding: true });
        own.chain(padding)
    }
}

#[cfg(test)]
mod tests;
