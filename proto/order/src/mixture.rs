//! Several views mixed in fixed proportions.
//!
//! An epoch of a mixture draws a fixed number of samples from each source, interleaved so that
//! every stretch of it, and so every batch, has the proportions of the whole. A source is drawn
//! from in the order of its own passes: each goes through all its samples once, in an order of its
//! own, and the next begins where the last one ended, also from one epoch of the mixture to the
//! next. So at any time all samples of a source have come equally often to within one, whether an
//! epoch uses a hundredth of it or repeats it a hundred times.
//!
//! ```text
//! epoch e, position p ─interleaving─▶ source s, draw d of the epoch
//!                                         │  e * draws of s an epoch + d = its draw D of all
//!                                         ▼
//!                       pass D / samples of s, position D % samples of s ─order─▶ sample
//! ```
//!
//! All of it is computed from the plan and the position, so a mixture is resumed, shared among
//! ranks and proved complete as a single view is.

mod interleave;

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larder_base::limits;
use xxhash_rust::xxh3::xxh3_128;

use super::plan::KeyUse;
use super::{EpochDigest, Error, Order, PlanId, Shuffle, View};
use interleave::Interleaving;

/// How long an epoch of a mixture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stop {
    /// Until the source that lasts shortest is used up: it comes once, of the others a part,
    /// another one in the next epoch. No sample comes twice in the first epoch.
    #[default]
    First,
    /// Until every source has come at least once: the one that lasts longest comes once, the others
    /// are repeated, each time in another order.
    All,
    /// After so many samples.
    Samples(NonZeroU64),
}

/// Views that are mixed: how often an epoch draws from each. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mixture {
    sources: Arc<[Source]>,
    samples: u64,
    digest: [u8; 16],
}

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

#[derive(Debug)]
struct Source {
    view: View,
    /// How many samples of it an epoch has.
    draws: u64,
}

impl Mixture {
    /// A mixture of `sources`, each with its weight: its share of all samples is its weight divided
    /// by the sum of all. `seed` chooses among the equally even ways to interleave them.
    ///
    /// # Errors
    /// [`Error::Mixture`] for no or too many sources, an empty one, a weight that is not above 0,
    /// and weights so far apart that a source would get less than one draw an epoch.
    pub fn new(
        sources: impl IntoIterator<Item = (View, f64)>,
        seed: u64,
        stop: Stop,
    ) -> Result<Self, Error> {
        let (views, weights): (Vec<View>, Vec<f64>) = sources.into_iter().unzip();
        let lengths: Vec<u64> = views.iter().map(View::len).collect();
        let draws = draws(&lengths, &weights, stop)?;
        let source = |(view, &draws)| Source { view, draws };
        let sources: Arc<[Source]> = views.into_iter().zip(&draws).map(source).collect();
        let digest = digest(&sources, seed);
        Ok(Self { sources, samples: draws.iter().sum(), digest })
    }

    /// Number of samples of an epoch: its positions.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Always `false`: there is no mixture without samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The views that are mixed.
    pub fn views(&self) -> impl ExactSizeIterator<Item = &View> {
        self.sources.iter().map(|source| &source.view)
    }

    /// How many samples of each source an epoch has.
    pub fn draws(&self) -> impl ExactSizeIterator<Item = u64> {
        self.sources.iter().map(|source| source.draws)
    }

    /// The name of an epoch's declared samples: a 128-bit hash of these bytes, little-endian.
    ///
    /// ```text
    /// offset  bytes  field
    ///      0     16  "larder mix v1", zero-padded
    ///     16      8  seed
    ///     24   24 n  of each source: digest of its view, draws an epoch u64
    /// ```
    pub fn digest(&self) -> [u8; 16] {
        self.digest
    }

    /// The plan of an epoch, as [`PlanId::new`]; `shuffle` is that of each source.
    pub fn plan(&self, seed: u64, epoch: u64, shuffle: Shuffle) -> PlanId {
        PlanId::of(self.digest, seed, epoch, shuffle)
    }
}

/// See [`Mixture::digest`].
fn digest(sources: &[Source], seed: u64) -> [u8; 16] {
    let mut bytes = Vec::with_capacity(24 + 24 * sources.len());
    bytes.extend_from_slice(b"larder mix v1\0\0\0");
    bytes.extend_from_slice(&seed.to_le_bytes());
    for source in sources {
        bytes.extend_from_slice(&source.view.digest());
        bytes.extend_from_slice(&source.draws.to_le_bytes());
    }
    xxh3_128(&bytes).to_le_bytes()
}

/// How many samples of each source an epoch has.
fn draws(lengths: &[u64], weights: &[f64], stop: Stop) -> Result<Vec<u64>, Error> {
    let refused = |why: String| Err(Error::Mixture { why });
    let limit = limits::MIXTURE_DATASETS_MAX;
    if lengths.is_empty() || lengths.len() > limit {
        return refused(format!("{} datasets where 1 to {limit} are possible", lengths.len()));
    }
    if let Some(empty) = lengths.iter().position(|&length| length == 0) {
        return refused(format!("dataset {empty} has no samples: leave it out"));
    }
    if let Some(at) = weights.iter().position(|weight| !(weight.is_finite() && *weight > 0.0)) {
        return refused(format!("weight {} of dataset {at} is not above 0", weights[at]));
    }
    let sum: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    let draws = match stop {
        Stop::First => up_to(lengths, &shares, f64::min),
        Stop::All => up_to(lengths, &shares, f64::max),
        Stop::Samples(samples) => apportioned(samples.get(), &shares),
    };
    let Some(draws) = draws else {
        return refused(format!(
            "an epoch would be too long to count: the weights {weights:?} are \
            too far apart for {stop:?}"
        ));
    };
    if let Some(never) = draws.iter().position(|&draws| draws == 0) {
        let (weight, samples) = (weights[never], draws.iter().sum::<u64>());
        return refused(format!(
            "dataset {never} would not be drawn from once in an epoch of {samples} samples: raise \
             its weight {weight}, or make epochs longer"
        ));
    }
    Ok(draws)
}

/// The draws of an epoch that ends when the source that lasts shortest, or longest, is used up.
/// `None` if they can't be counted exactly.
fn up_to(lengths: &[u64], shares: &[f64], last: fn(f64, f64) -> f64) -> Option<Vec<u64>> {
    let lasts = lengths.iter().zip(shares).map(|(&length, share)| float(length) / share);
    let samples = lasts.clone().reduce(last)?;
    let drawn = lasts.zip(lengths).zip(shares).map(|((lasts, &length), share)| {
        // The source that sets the length is drawn from exactly once for each of its samples.
        rounded(if lasts == samples { float(length) } else { samples * share })
    });
    drawn.collect()
}

/// Shares `samples` draws out: whole shares first, the rest to the largest remainders.
fn apportioned(samples: u64, shares: &[f64]) -> Option<Vec<u64>> {
    let exact: Vec<f64> = shares.iter().map(|share| float(samples) * share).collect();
    let mut draws: Vec<u64> =
        exact.iter().map(|exact| rounded(exact.floor())).collect::<Option<_>>()?;
    let mut by_remainder: Vec<usize> = (0..shares.len()).collect();
    by_remainder.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let left = samples.checked_sub(draws.iter().sum())?;
    for &source in by_remainder.iter().cycle().take(usize::try_from(left).ok()?) {
        draws[source] += 1;
    }
    Some(draws)
}

#[expect(clippy::cast_precision_loss, reason = "what can't be told exactly is refused afterwards")]
fn float(count: u64) -> f64 {
    count as f64
}

/// The nearest count, if all counts up to it can be told apart.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared before")]
fn rounded(count: f64) -> Option<u64> {
    (count < float(1 << 52)).then(|| count.round() as u64)
}

/// The order of one epoch of a mixture: which sample of which source each position brings.
///
/// Memory as an [`Order`] for each source. Share it by reference.
#[derive(Debug)]
pub struct MixedOrder {
    plan: PlanId,
    mixture: Mixture,
    interleaving: Interleaving,
    /// The order of the pass that was used last, of each source.
    recent: Box<[ArcSwapOption<Order>]>,
}

impl MixedOrder {
    /// The order of `plan`, a plan of `mixture`.
    ///
    /// # Errors
    /// As [`Order::new`].
    pub fn new(plan: PlanId, mixture: &Mixture) -> Result<Self, Error> {
        plan.check(mixture.digest)?;
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
        self.mixture.samples
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

#[cfg(test)]
mod tests;
