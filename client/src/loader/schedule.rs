//! Which samples the batches of an epoch have, for those who read them by other means.

use std::fmt;

use super::{content::Samples, pass::Pass};
use crate::sampler::{LoaderState, PlanId};

/// The batches of one epoch as numbers of samples; nothing is read. Made by
/// [`Loader::schedule`](super::Loader::schedule).
pub struct Schedule {
    pass: Pass,
}

/// One batch of a [`Schedule`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduledBatch {
    /// The number of each row's sample in the dataset, which may be a part of a snapshot: what
    /// [`Dataset::read`](crate::Dataset::read) takes. Padding included.
    pub samples: Vec<u64>,
    /// In a mixture, which of its datasets each row is of; else empty.
    pub datasets: Vec<u32>,
    /// How many rows at the end only fill up the last batch.
    pub padding: u64,
    /// Where the job stands once this batch was used.
    pub state: LoaderState,
}

impl Schedule {
    pub(super) fn new(pass: Pass) -> Self {
        Self { pass }
    }

    /// The name of the pass: equal on all ranks.
    #[must_use]
    pub fn plan(&self) -> PlanId {
        self.pass.plan()
    }

    /// How many batches this rank gets.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.pass.count()
    }

    /// What a batch has, or `None` past the last. About 25 ns a sample.
    #[must_use]
    pub fn batch(&self, batch: u64) -> Option<ScheduledBatch> {
        (batch < self.pass.count()).then(|| {
            let (Samples { samples, datasets, .. }, padding) = self.pass.indices(batch);
            ScheduledBatch { samples, datasets, padding, state: self.pass.state_after(batch) }
        })
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("plan", &self.plan())
            .field("batches", &self.batches())
            .finish()
    }
}
