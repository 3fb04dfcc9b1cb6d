//! The samples that an epoch iterates: those of one view, or of several views in a mixture.

use std::{mem, ops::Range, sync::Arc};

use larder_decode::Draw;

use crate::sampler::{
    self, Draws, EpochDigest, JobOrder, LoaderState, Mixture, Order, PlanId, Shuffle, View,
};

#[derive(Debug, Clone)]
pub(super) enum Content {
    One(View),
    Mixed(Mixture),
}

/// The order of one epoch.
#[derive(Debug)]
pub(super) enum Sequence {
    One(Arc<Order>),
    Mixed(JobOrder),
}

/// A place in the passes over one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourcePlace {
    /// The number of the pass.
    pub(super) pass: u64,
    /// The position in the order of that pass.
    pub(super) position: u64,
}

impl SourcePlace {
    /// The place before it in this pass, or the first one.
    pub(super) fn before(self) -> Self {
        Self { position: self.position.saturating_sub(1), ..self }
    }
}

/// The samples of a batch.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// The number of each in its snapshot.
    pub(super) samples: Vec<u64>,
    /// In a mixture, the dataset of each. Otherwise empty.
    pub(super) datasets: Vec<u32>,
    /// In a mixture, the pass over its dataset that each belongs to. Otherwise empty.
    pub(super) passes: Vec<u64>,
    /// The seed of the job and the epoch, which name random numbers.
    pub(super) plan: (u64, u64),
}

impl Content {
    pub(super) fn plan(&self, seed: u64, epoch: u64, shuffle: Shuffle) -> PlanId {
        match self {
            Self::One(view) => PlanId::new(view, seed, epoch, shuffle),
            Self::Mixed(mixture) => mixture.plan(seed, epoch, shuffle),
        }
    }

    /// The order of a plan. The plan must be of this content.
    pub(super) fn sequence(&self, plan: PlanId) -> Result<Sequence, sampler::Error> {
        match self {
            Self::One(view) => Order::new(plan, view).map(Arc::new).map(Sequence::One),
            Self::Mixed(mixture) => JobOrder::new(plan, mixture).map(Sequence::Mixed),
        }
    }
}

impl Sequence {
    pub(super) fn plan(&self) -> PlanId {
        match self {
            Self::One(order) => order.plan(),
            Self::Mixed(order) => order.plan(),
        }
    }

    /// Number of positions.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::One(order) => order.len(),
            Self::Mixed(order) => order.len(),
        }
    }

    /// The place in each source of the samples that follow a position.
    pub(super) fn places(&self, position: u64) -> Vec<SourcePlace> {
        match self {
            Self::One(order) => vec![SourcePlace { pass: order.plan().epoch(), position }],
            Self::Mixed(order) => {
                let places = order.places(position).into_iter();
                places.map(|(pass, position)| SourcePlace { pass, position }).collect()
            }
        }
    }

    /// The order of a pass over a source: one of [`places`](Self::places).
    pub(super) fn order(&self, source: usize, pass: u64) -> Arc<Order> {
        match self {
            Self::One(order) => Arc::clone(order),
            Self::Mixed(order) => order.pass(source, pass),
        }
    }

    /// The position at which a state continues.
    pub(super) fn resume(&self, state: LoaderState) -> Result<u64, sampler::Error> {
        state.resume_within(self.plan(), self.len())
    }

    /// Appends the samples of consecutive positions.
    pub(super) fn extend(&self, positions: Range<u64>, out: &mut Samples) {
        match self {
            Self::One(order) => order.fill(positions, &mut out.samples),
            Self::Mixed(order) => {
                let mut draws = mem::take(out).into();
                order.fill(positions, &mut draws);
                *out = draws.into();
            }
        }
    }

    /// Replaces numbers in snapshots by indices in views.
    pub(super) fn index(&self, Samples { samples, datasets, .. }: &mut Samples) {
        let index = |view: &View, sample: &mut u64| {
            *sample = view.index_of(*sample).expect("a declared sample");
        };
        match self {
            Self::One(order) => samples.iter_mut().for_each(|sample| index(order.view(), sample)),
            Self::Mixed(order) => {
                let views: Vec<&View> = order.mixture().views().collect();
                let of = datasets.iter().zip(samples);
                of.for_each(|(&dataset, sample)| index(views[dataset as usize], sample));
            }
        }
    }

    /// The digest of `positions`.
    pub(super) fn digest(&self, positions: Range<u64>) -> EpochDigest {
        let whole = positions == (0..self.len());
        match self {
            Self::One(order) if whole => EpochDigest::expected(order),
            Self::One(order) => EpochDigest::of_positions(order, positions),
            Self::Mixed(order) if whole => order.expected_digest(),
            Self::Mixed(order) => order.digest_of(positions),
        }
    }
}

impl From<Draws> for Samples {
    fn from(Draws { sources, passes, samples }: Draws) -> Self {
        Self { samples, datasets: sources, passes, ..Self::default() }
    }
}

impl From<Samples> for Draws {
    fn from(Samples { samples, datasets, passes, .. }: Samples) -> Self {
        Self { sources: datasets, passes, samples }
    }
}

impl Samples {
    /// The samples at some places, in that order.
    pub(super) fn pick(&self, places: &[u32]) -> Self {
        fn pick<T: Copy>(of: &[T], places: &[u32]) -> Vec<T> {
            let some = places.iter().filter(|_| !of.is_empty());
            some.map(|&place| of[place as usize]).collect()
        }
        let Self { samples, datasets, passes, plan } = self;
        Self {
            plan: *plan,
            samples: pick(samples, places),
            datasets: pick(datasets, places),
            passes: pick(passes, places),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The dataset and the sample of a row.
    pub(super) fn name(&self, row: usize) -> (u32, u64) {
        (self.datasets.get(row).copied().unwrap_or(0), self.samples[row])
    }

    /// Names the random numbers of a row.
    pub(super) fn draw(&self, row: usize) -> Draw {
        let ((source, sample), (seed, epoch)) = (self.name(row), self.plan);
        let pass = self.passes.get(row).copied().unwrap_or(epoch);
        Draw { seed, source: source.into(), pass, sample }
    }

    /// Adds the first `count` samples to a digest.
    pub(super) fn count(&self, count: usize, digest: &mut EpochDigest) {
        let samples = &self.samples[..count];
        if self.datasets.is_empty() {
            return samples.iter().for_each(|&sample| digest.add(sample));
        }
        let pairs = self.datasets.iter().zip(samples);
        pairs.for_each(|(&dataset, &sample)| digest.add_mixed(dataset, sample));
    }
}
