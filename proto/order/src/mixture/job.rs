//! The order of one epoch of a mixture: position to source, pass and sample.
//!
//! ```text
//! epoch e, position p ─interleaving─▶ source s, draw d of the epoch
//!                                         │  e * draws of s an epoch + d = its draw D of all
//!                                         ▼
//!                       pass D / samples of s, position D % samples of s ─order─▶ sample
//! ```
//!
//! Thread rule: immutable, but for the orders of passes that were used last. Share it by reference.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::interleave::Interleaving;
use super::{Mixture, Source};
use crate::plan::KeyUse;
use crate::{EpochDigest, Error, Order, PlanId};

/// The samples at positions of a mixture, in their order: columns of one length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draws {
    /// The number of the source.
    pub sources: Vec<u32>,
    /// Which pass over its source it belongs to, counted from 0 through all epochs. Source, pass
    /// and sample together come once in the life of a job.
    pub passes: Vec<u64>,
    /// The sample, as the source's snapshot counts it.
    pub samples: Vec<u64>,
}

/// The order of one epoch of a mixture: which sample of which source each position brings.
///
/// Memory as an [`Order`] for each source. Share it by reference.
#[derive(Debug)]
pub struct JobOrder {
    plan: PlanId,
    mixture: Mixture,
    interleaving: Interleaving,
    /// The order of the pass that was used last, of each source.
    recent: Box<[ArcSwapOption<Order>]>,
}

impl JobOrder {
    /// The order of `plan`, a plan of `mixture`.
    ///
    /// # Errors
    /// As [`Order::new`].
    pub fn new(plan: PlanId, mixture: &Mixture) -> Result<Self, Error> {
        plan.check(mixture.digest())?;
        let draws: Vec<u64> = mixture.draws().collect();
        let interleaving = Interleaving::new(&draws, |pair| plan.number(KeyUse::Interleave(pair)));
        let recent = draws.iter().map(|_| ArcSwapOption::empty()).collect();
        Ok(Self { plan, mixture: mixture.clone(), interleaving, recent })
    }

    /// The plan's id.
    pub fn plan(&self) -> PlanId {
        self.plan
    }

    /// The mixture of this order.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Number of positions.
    pub fn len(&self) -> u64 {
        self.mixture.len()
    }

    /// Always `false`, as [`Mixture::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.mixture.is_empty()
    }

    /// Appends the draws of `positions`, in order. Takes some 30 ns a position more than the
    /// sources' own orders.
    ///
    /// # Panics
    /// If `positions` runs past [`len`](Self::len).
    pub fn fill(&self, positions: Range<u64>, draws: &mut Draws) {
        assert!(positions.end <= self.len(), "positions {positions:?} of {}", self.len());
        // The draws of consecutive positions from a source are consecutive: one part of its order.
        let before = self.interleaving.counts_before(positions.start);
        let after = self.interleaving.counts_before(positions.end.max(positions.start));
        let drawn = before.iter().zip(&after).enumerate();
        let mut drawn: Vec<_> =
            drawn.map(|(source, (&from, &to))| self.drawn(source, from..to).into_iter()).collect();
        for position in positions {
            let (source, _) = self.interleaving.at(position);
            let (pass, sample) = drawn[source].next().expect("as many as were counted");
            draws.sources.push(u32::try_from(source).expect("a mixture has few sources"));
            draws.passes.push(pass);
            draws.samples.push(sample);
        }
    }

    /// The samples that draws `draws` of this epoch bring of a source, each with its pass.
    fn drawn(&self, source: usize, draws: Range<u64>) -> Vec<(u64, u64)> {
        let (mut drawn, mut samples) = (Vec::new(), Vec::new());
        for (pass, positions) in self.passes(source, draws) {
            samples.clear();
            self.pass(source, pass).fill(positions, &mut samples);
            drawn.extend(samples.iter().map(|&sample| (pass, sample)));
        }
        drawn
    }

    /// The passes over a source that draws of this epoch belong to, and the positions of each.
    fn passes(&self, source: usize, draws: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
        let Source { view, draws: each } = &self.mixture.sources[source];
        let samples = u128::from(view.len());
        let earlier = u128::from(self.plan.epoch()) * u128::from(*each);
        let (mut next, end) = (earlier + u128::from(draws.start), earlier + u128::from(draws.end));
        std::iter::from_fn(move || {
            let (pass, position) = (next / samples, next % samples);
            let taken = (samples - position).min(end - next);
            next += taken;
            (taken > 0).then(|| (low(pass), low(position)..low(position + taken)))
        })
    }

    /// The next draw of each source at a position: the pass that it belongs to, and its position in
    /// the [order](Self::pass) of that pass.
    ///
    /// # Panics
    /// If `position` is past [`len`](Self::len).
    pub fn places(&self, position: u64) -> Vec<(u64, u64)> {
        assert!(position <= self.len(), "position {position} of {}", self.len());
        let drawn = self.interleaving.counts_before(position);
        let place = |(source, &drawn): (usize, &u64)| {
            let mut next = self.passes(source, drawn..drawn + 1);
            let (pass, positions) = next.next().expect("one draw");
            (pass, positions.start)
        };
        drawn.iter().enumerate().map(place).collect()
    }

    /// The order of a pass over a source. Threads that share this order mostly ask for one pass.
    pub fn pass(&self, source: usize, pass: u64) -> Arc<Order> {
        let recent = &self.recent[source];
        if let Some(order) = recent.load_full().filter(|order| order.plan().epoch() == pass) {
            return order;
        }
        let view = &self.mixture.sources[source].view;
        let seed = self.plan.at_epoch(0).number(KeyUse::Source(source));
        let plan = PlanId::new(view, seed, pass, self.plan.shuffle());
        let order = Arc::new(Order::new(plan, view).expect("a plan of this view and this build"));
        recent.store(Some(Arc::clone(&order)));
        order
    }

    /// The digest of a whole epoch: of each source, all samples for each pass that lies in the
    /// epoch as a whole, and the samples of its order for a pass that lies in it in part.
    pub fn expected_digest(&self) -> EpochDigest {
        let mut digest = EpochDigest::new(self.plan);
        for (source, drawn) in self.mixture.draws().enumerate() {
            let number = u32::try_from(source).expect("a mixture has few sources");
            let view = &self.mixture.sources[source].view;
            for (pass, positions) in self.passes(source, 0..drawn) {
                if positions == (0..view.len()) {
                    view.samples().for_each(|sample| digest.add_mixed(number, sample));
                    continue;
                }
                let order = self.pass(source, pass);
                positions.for_each(|at| digest.add_mixed(number, order.sample_at(at)));
            }
        }
        digest
    }

    /// The digest of the samples at `positions`, as [`EpochDigest::of_positions`].
    ///
    /// # Panics
    /// If `positions` runs past [`len`](Self::len).
    pub fn digest_of(&self, positions: Range<u64>) -> EpochDigest {
        const PIECE: u64 = 4096;
        let mut digest = EpochDigest::new(self.plan);
        let mut next = positions.start;
        while next < positions.end {
            let end = next.saturating_add(PIECE).min(positions.end);
            let mut draws = Draws::default();
            self.fill(next..end, &mut draws);
            let drawn = draws.sources.iter().zip(&draws.samples);
            drawn.for_each(|(&source, &sample)| digest.add_mixed(source, sample));
            next = end;
        }
        digest
    }
}

/// The low half: passes are counted round and round, as epochs are.
#[expect(clippy::cast_possible_truncation, reason = "as the name says")]
fn low(number: u128) -> u64 {
    number as u64
}
