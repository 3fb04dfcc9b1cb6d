//! One view, or several mixed in fixed proportions.
//!
//! An epoch of a mixture draws a fixed number of samples from each source, interleaved so that
//! every stretch of it, and so every batch, has the proportions of the whole. A source is drawn
//! from in the order of its own passes: each goes through all its samples once, in an order of its
//! own, and the next begins where the last one ended, also from one epoch of the mixture to the
//! next. So at any time all samples of a source have come equally often to within one, whether an
//! epoch uses a hundredth of it or repeats it a hundred times.
//!
//! A single view is a mixture of one, but for its name: a pass of it is that of the view alone, so
//! that its order, states and digests are too.

mod interleave;
mod job;

use std::num::NonZeroU64;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::{Error, PassId, Shuffle, View};

pub use job::{Draws, JobOrder, SourcePlace};

/// Datasets of one mixture: each has its connections, its manifest and its share of every batch.
const MIXTURE_DATASETS_MAX: usize = 256;

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

/// The views of a job, and how often an epoch draws from each. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mixture {
    sources: Arc<[MixedView]>,
    samples: u64,
    digest: [u8; 16],
    is_single: bool,
}

#[derive(Debug)]
struct MixedView {
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
        let source = |(view, &draws)| MixedView { view, draws };
        let sources: Arc<[MixedView]> = views.into_iter().zip(&draws).map(source).collect();
        let digest = digest(&sources, seed);
        Ok(Self { sources, samples: draws.iter().sum(), digest, is_single: false })
    }

    /// One view that is not mixed. Its epochs are those of the view: each sample comes once, in the
    /// [`Order`](super::Order) of the pass. ([`new`](Self::new) of one view has another name, and
    /// so another order.)
    pub fn single(view: View) -> Self {
        let (samples, digest) = (view.len(), view.digest());
        let sources = Arc::new([MixedView { view, draws: samples }]);
        Self { sources, samples, digest, is_single: true }
    }

    /// The view, if it is a [`single`](Self::single) one.
    pub fn single_view(&self) -> Option<&View> {
        self.is_single.then(|| &self.sources[0].view)
    }

    /// Number of samples of an epoch: its positions.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Whether there is no sample, which only a single view can have.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The views.
    pub fn views(&self) -> impl ExactSizeIterator<Item = &View> {
        self.sources.iter().map(|source| &source.view)
    }

    /// How many samples of each source an epoch has.
    pub fn draws(&self) -> impl ExactSizeIterator<Item = u64> {
        self.sources.iter().map(|source| source.draws)
    }

    /// The name of an epoch's declared samples: of a single view its digest, otherwise a 128-bit
    /// hash of these bytes, little-endian.
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

    /// The pass of an epoch, as [`PassId::new`]; `shuffle` is that of each source.
    pub fn pass_id(&self, seed: u64, epoch: u64, shuffle: Shuffle) -> PassId {
        PassId::of(self.digest, seed, epoch, shuffle)
    }
}

/// See [`Mixture::digest`].
fn digest(sources: &[MixedView], seed: u64) -> [u8; 16] {
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
    let limit = MIXTURE_DATASETS_MAX;
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

#[cfg(test)]
mod tests;
