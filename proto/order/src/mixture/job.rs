//! The order of one epoch of a job: position to source, pass and sample.
//!
//! A job reads one view or a mixture of several. All of its order is computed from the pass and the
//! position, so a mixture is resumed, shared among ranks and proved complete as one view is. A
//! single view takes the short way: its positions are those of its own order.
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
use super::{MixedView, Mixture};
use crate::pass::KeyUse;
use crate::{EpochDigest, Error, Order, PassId};

/// Some samples of an epoch, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draws {
    pass_id: PassId,
    samples: Vec<u64>,
    /// The source and the pass of each sample. Empty for a single view.
    sources: Vec<u32>,
    passes: Vec<u64>,
}

impl Draws {
    /// No samples yet, of this pass.
    pub fn new(pass_id: PassId) -> Self {
        Self { pass_id, samples: Vec::new(), sources: Vec::new(), passes: Vec::new() }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The pass of the epoch.
    pub fn pass_id(&self) -> PassId {
        self.pass_id
    }

    /// The samples, each as its source's snapshot counts it.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    /// The number of each sample's source. `None` for a single view.
    pub fn sources(&self) -> Option<&[u32]> {
        (!self.sources.is_empty()).then_some(&self.sources)
    }

    /// The pass over its source that each sample belongs to, counted from 0 through all epochs.
    /// Source, pass and sample together come once in the life of a job. `None` for a single view,
    /// where the epoch is the pass.
    pub fn passes(&self) -> Option<&[u64]> {
        (!self.passes.is_empty()).then_some(&self.passes)
    }

    /// The source of a sample. 0 for a single view.
    pub fn source(&self, place: usize) -> u32 {
        self.sources.get(place).copied().unwrap_or(0)
    }

    /// The source of a sample, and the sample.
    pub fn at(&self, place: usize) -> (u32, u64) {
        (self.source(place), self.samples[place])
    }

    /// The pass of a sample.
    pub fn pass(&self, place: usize) -> u64 {
        self.passes.get(place).copied().unwrap_or(self.pass_id.epoch())
    }

    /// Counts the first `count` samples in a digest of the same pass.
    pub fn add_to(&self, digest: &mut EpochDigest, count: usize) {
        let samples = &self.samples[..count];
        let Some(sources) = self.sources() else {
            return samples.iter().for_each(|&sample| digest.add(sample));
        };
        let pairs = sources.iter().zip(samples);
        pairs.for_each(|(&source, &sample)| digest.add_mixed(source, sample));
    }

    /// The samples at some places, in that order.
    #[must_use]
    pub fn pick(&self, places: &[u32]) -> Self {
        fn pick<T: Copy>(of: &[T], places: &[u32]) -> Vec<T> {
            let some = places.iter().filter(|_| !of.is_empty());
            some.map(|&place| of[place as usize]).collect()
        }
        Self {
            pass_id: self.pass_id,
            samples: pick(&self.samples, places),
            sources: pick(&self.sources, places),
            passes: pick(&self.passes, places),
        }
    }
}

/// A place in the passes over one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePlace {
    /// The number of the pass.
    pub pass: u64,
    /// The position in the [order](JobOrder::pass) of that pass.
    pub position: u64,
}

/// The order of one epoch of a job: which sample of which source each position brings.
///
/// Memory as an [`Order`] for each source. Share it by reference.
#[derive(Debug)]
pub struct JobOrder {
    pass_id: PassId,
    mixture: Mixture,
    interleaving: Interleaving,
    /// The order of the pass that was used last, of each source.
    recent: Box<[ArcSwapOption<Order>]>,
}

impl JobOrder {
    /// The order of `pass_id`, a pass of `mixture`.
    ///
    /// # Errors
    /// As [`Order::new`].
    pub fn new(pass_id: PassId, mixture: &Mixture) -> Result<Self, Error> {
        pass_id.check(mixture.digest())?;
        let draws: Vec<u64> = mixture.draws().collect();
        let interleaving =
            Interleaving::new(&draws, |pair| pass_id.number(KeyUse::Interleave(pair)));
        let recent = draws.iter().map(|_| ArcSwapOption::empty()).collect();
        Ok(Self { pass_id, mixture: mixture.clone(), interleaving, recent })
    }

    /// The pass's id.
    pub fn pass_id(&self) -> PassId {
        self.pass_id
    }

    /// The mixture of this order.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Number of positions.
    pub fn len(&self) -> u64 {
        self.mixture.len()
    }

    /// Whether the epoch has no position, as [`Mixture::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.mixture.is_empty()
    }

    /// Appends the samples of `positions`, in order. Takes as long as [`Order::fill`], and in a
    /// mixture some 30 ns a position more.
    ///
    /// # Panics
    /// If `positions` runs past [`len`](Self::len).
    pub fn fill(&self, positions: Range<u64>, draws: &mut Draws) {
        assert!(positions.end <= self.len(), "positions {positions:?} of {}", self.len());
        if self.mixture.single_view().is_some() {
            return self.pass(0, self.pass_id.epoch()).fill(positions, &mut draws.samples);
        }
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
        let MixedView { view, draws: each } = &self.mixture.sources[source];
        let samples = u128::from(view.len());
        let earlier = u128::from(self.pass_id.epoch()) * u128::from(*each);
        let (mut next, end) = (earlier + u128::from(draws.start), earlier + u128::from(draws.end));
        std::iter::from_fn(move || {
            let (pass, position) = (next / samples, next % samples);
            let taken = (samples - position).min(end - next);
            next += taken;
            (taken > 0).then(|| (low(pass), low(position)..low(position + taken)))
        })
    }

    /// The place of the next draw of each source at a position. Of a single view it stays in the
    /// pass of this epoch, also at the end.
    ///
    /// # Panics
    /// If `position` is past [`len`](Self::len).
    pub fn places(&self, position: u64) -> Vec<SourcePlace> {
        assert!(position <= self.len(), "position {position} of {}", self.len());
        if self.mixture.single_view().is_some() {
            return vec![SourcePlace { pass: self.pass_id.epoch(), position }];
        }
        let drawn = self.interleaving.counts_before(position);
        let place = |(source, &drawn): (usize, &u64)| {
            let mut next = self.passes(source, drawn..drawn + 1);
            let (pass, positions) = next.next().expect("one draw");
            SourcePlace { pass, position: positions.start }
        };
        drawn.iter().enumerate().map(place).collect()
    }

    /// The order of a pass over a source. Threads that share this order mostly ask for one pass.
    pub fn pass(&self, source: usize, pass: u64) -> Arc<Order> {
        let recent = &self.recent[source];
        if let Some(order) = recent.load_full().filter(|order| order.pass_id().epoch() == pass) {
            return order;
        }
        let view = &self.mixture.sources[source].view;
        let seed = match self.mixture.single_view() {
            Some(_) => self.pass_id.seed(),
            None => self.pass_id.at_epoch(0).number(KeyUse::Source(source)),
        };
        let pass_id = PassId::new(view, seed, pass, self.pass_id.shuffle());
        let order =
            Arc::new(Order::new(pass_id, view).expect("a pass of this view and this build"));
        recent.store(Some(Arc::clone(&order)));
        order
    }

    /// The digest of the samples at `positions`. Takes 2 ns a sample for a whole epoch, and some
    /// 30 ns for a part of one.
    ///
    /// # Panics
    /// If `positions` runs past [`len`](Self::len).
    pub fn digest(&self, positions: Range<u64>) -> EpochDigest {
        const PIECE: u64 = 4096;
        if positions == (0..self.len()) {
            return self.whole_digest();
        }
        let (mut digest, mut next) = (EpochDigest::new(self.pass_id), positions.start);
        while next < positions.end {
            let end = next.saturating_add(PIECE).min(positions.end);
            let mut draws = Draws::new(self.pass_id);
            self.fill(next..end, &mut draws);
            draws.add_to(&mut digest, draws.len());
            next = end;
        }
        digest
    }

    /// The digest of a whole epoch: of each source, all samples for each pass that lies in the
    /// epoch as a whole, and the samples of its order for a pass that lies in it in part.
    fn whole_digest(&self) -> EpochDigest {
        if let Some(view) = self.mixture.single_view() {
            return EpochDigest::of_samples(self.pass_id, view.samples());
        }
        let mut digest = EpochDigest::new(self.pass_id);
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
}

/// The low half: passes are counted round and round, as epochs are.
#[expect(clippy::cast_possible_truncation, reason = "as the name says")]
fn low(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests;
