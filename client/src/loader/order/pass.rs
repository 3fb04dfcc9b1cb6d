//! One pass over the declared samples on one rank: the samples of each batch, and the position of
//! the job after it. Pure: no rows, no threads.

use std::{fmt, num::NonZeroU32, ops::Range, sync::Arc};

use super::locality::Divider;
use crate::sampler::{
    self, BatchPlan, Draws, EpochDigest, JobOrder, Last, LoaderState, Mixture, PassId, PassName,
    Shuffle, View,
};

/// The settings that all epochs share.
#[derive(Debug, Clone)]
pub(in crate::loader) struct LoaderJob {
    pub(in crate::loader) mixture: Mixture,
    pub(in crate::loader) seed: u64,
    /// As resolved: `auto` was decided when the loader was built.
    pub(in crate::loader) shuffle: Shuffle,
    pub(in crate::loader) batch_size: NonZeroU32,
    pub(in crate::loader) world: NonZeroU32,
    /// Below `world`.
    pub(in crate::loader) rank: u32,
    pub(in crate::loader) lane: Lane,
    pub(in crate::loader) last: Last,
    /// Divides global batches. Without it, each rank takes a consecutive slice.
    pub(in crate::loader) divider: Option<Arc<Divider>>,
}

/// The batches of a rank that one of several loaders takes. `count` loaders take turns, and this
/// one is `index`-th in every round.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct Lane {
    /// Below `count`.
    pub(in crate::loader) index: u32,
    pub(in crate::loader) count: NonZeroU32,
}

/// An epoch, or the rest of it after a resume.
#[derive(Debug)]
pub(in crate::loader) struct Pass {
    order: JobOrder,
    batches: BatchPlan,
    rank: u32,
    lane: Lane,
    divider: Option<Arc<Divider>>,
    /// Batches of this rank and lane.
    count: u64,
    start: u64,
}

impl Lane {
    /// The number of `batches` in this lane.
    fn share(self, batches: u64) -> u64 {
        batches.saturating_sub(self.index.into()).div_ceil(self.count.get().into())
    }

    /// The number among all batches of this lane's batch `batch`.
    fn batch(self, batch: u64) -> u64 {
        batch * u64::from(self.count.get()) + u64::from(self.index)
    }
}

impl LoaderJob {
    pub(in crate::loader) fn pass_id(&self, epoch: u64) -> PassId {
        self.mixture.pass_id(self.seed, epoch, self.shuffle)
    }

    /// The name of the pass through an epoch.
    pub(in crate::loader) fn name(&self, epoch: u64) -> PassName {
        PassName::new(self.pass_id(epoch), self.divider.as_deref().map(Divider::id))
    }

    /// The pass that continues at `state`.
    ///
    /// # Errors
    /// The state is of another view or order version, or is past the end.
    pub(in crate::loader) fn pass(&self, state: LoaderState) -> Result<Pass, sampler::Error> {
        let order = JobOrder::new(state.pass_id(), &self.mixture)?;
        let start = state.resume(order.pass_id(), order.len())?;
        let batches = BatchPlan::new(order.len(), start, self.batch_size, self.world, self.last)?;
        let global = batches.batches_in_epoch();
        // Under `Last::Uneven` the last batch may have no rows for a rank.
        let idle_at_last =
            global > 0 && batches.share(global - 1, self.rank).is_none_or(|share| share.is_empty());
        let count = self.lane.share(global - u64::from(idle_at_last));
        let (rank, lane, divider) = (self.rank, self.lane, self.divider.clone());
        Ok(Pass { order, batches, rank, lane, divider, count, start })
    }
}

impl Pass {
    pub(in crate::loader) fn pass_id(&self) -> PassId {
        self.order.pass_id()
    }

    pub(in crate::loader) fn name(&self) -> PassName {
        PassName::new(self.pass_id(), self.divider.as_deref().map(Divider::id))
    }

    /// The order of the samples of all ranks.
    pub(in crate::loader) fn order(&self) -> &JobOrder {
        &self.order
    }

    /// The position at which the pass begins.
    pub(in crate::loader) fn start(&self) -> u64 {
        self.start
    }

    /// The positions of all ranks in a batch of this rank and lane.
    ///
    /// # Panics
    /// There is no such batch.
    pub(in crate::loader) fn positions(&self, batch: u64) -> Range<u64> {
        self.batches.batch(self.lane.batch(batch)).expect("a batch of this pass")
    }

    pub(in crate::loader) fn count(&self) -> u64 {
        self.count
    }

    /// The samples of a batch of this rank and lane, and the number at its end that are padding.
    ///
    /// # Panics
    /// There is no such batch.
    pub(in crate::loader) fn draws(&self, batch: u64) -> (Draws, u64) {
        let batch = self.lane.batch(batch);
        let share = self.batches.share(batch, self.rank).expect("a batch of this pass");
        let mut draws = Draws::new(self.pass_id());
        if let Some(divider) = &self.divider {
            let global = self.batches.batch(batch).expect("a batch of this pass");
            self.order.fill(global, &mut draws);
            draws = divider.share(&draws, self.rank);
        } else {
            self.order.fill(share.positions(), &mut draws);
        }
        for padding in share.rows().filter(|row| row.padding) {
            self.order.fill(padding.position..padding.position + 1, &mut draws);
        }
        (draws, share.padding())
    }

    /// The position before the first batch.
    pub(in crate::loader) fn state_at_start(&self) -> LoaderState {
        LoaderState::new(self.pass_id(), self.start)
    }

    /// The position of the job after all ranks have used `batch` and all lanes the batches before
    /// it. After the last batch it is the start of the next epoch, so a resume skips a dropped
    /// tail.
    pub(in crate::loader) fn state_after(&self, batch: u64) -> LoaderState {
        let batch = self.lane.batch(batch);
        match self.batches.position_after(batch) {
            Some(position) if batch + 1 < self.batches.batches_in_epoch() => {
                LoaderState::new(self.pass_id(), position)
            }
            _ => self.state_at_end(),
        }
    }

    /// The position at the end of the epoch.
    pub(in crate::loader) fn state_at_end(&self) -> LoaderState {
        LoaderState::new(self.pass_id().next_epoch(), 0)
    }

    /// The merged digest that all ranks must reach.
    pub(in crate::loader) fn expected_digest(&self) -> EpochDigest {
        self.order.digest(self.batches.delivered())
    }
}

/// The samples of the batches of one epoch, for a program with its own reader. Reads no row.
/// Created by [`Loader::schedule`](crate::Loader::schedule).
pub struct Schedule {
    pass: Pass,
}

/// One batch of a [`Schedule`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduledBatch {
    /// The number of each row's sample in the dataset, which may be a part of a snapshot. Valid for
    /// [`Dataset::read`](crate::Dataset::read). Includes padding.
    pub samples: Vec<u64>,
    /// In a mixture, the dataset of each row. Otherwise empty.
    pub datasets: Vec<u32>,
    /// The number of rows at the end that only fill up the last batch.
    pub padding: u64,
    /// The position of the job after this batch.
    pub state: LoaderState,
}

impl Schedule {
    pub(in crate::loader) fn new(pass: Pass) -> Self {
        Self { pass }
    }

    /// The name of the pass's order. Equal on all ranks.
    pub fn pass_id(&self) -> PassId {
        self.pass.pass_id()
    }

    /// The number of batches that this rank gets.
    pub fn batches(&self) -> u64 {
        self.pass.count()
    }

    /// The batch with this number. `None` past the last. Takes about 25 ns a sample.
    pub fn batch(&self, batch: u64) -> Option<ScheduledBatch> {
        (batch < self.pass.count()).then(|| {
            let (draws, padding) = self.pass.draws(batch);
            let views: Vec<&View> = self.pass.order.mixture().views().collect();
            let index = |place| {
                let (source, sample) = draws.at(place);
                views[source as usize].index_of(sample).expect("a declared sample")
            };
            let samples = (0..draws.len()).map(index).collect();
            let datasets = draws.sources().unwrap_or_default().to_vec();
            ScheduledBatch { samples, datasets, padding, state: self.pass.state_after(batch) }
        })
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("pass_id", &self.pass_id())
            .field("batches", &self.batches())
            .finish()
    }
}
