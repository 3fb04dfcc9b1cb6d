//! Random splits of a view into many parts. A split is a tree of cuts in two, so that parts are
//! disjoint and complete whatever the fractions.

use larder_base::limits;

use super::View;
use crate::split::{Split, SplitSide};
use crate::{Error, Selection};

/// How far the sum of fractions may be from 1: enough for those written with six digits.
const FRACTIONS_SLACK: f64 = 1e-6;

impl View {
    /// Splits the declared samples at random into disjoint parts that together are the whole: part
    /// `i` has `fractions[i]` of them, to the sample exact, and of each shard its share to within
    /// one row. A pure function of this view, the fractions and the seed. Each part takes 8 bytes a
    /// shard and a few times as much while it is made.
    ///
    /// The samples of a part come in an order of its own: shards in theirs, rows of a shard
    /// shuffled.
    ///
    /// # Errors
    /// [`Error::Fractions`] if one is not above 0 or they do not add up to 1;
    /// [`Error::Steps`] as [`select`](Self::select).
    pub fn split(&self, fractions: &[f64], seed: u64) -> Result<Vec<Self>, Error> {
        let bounds = bounds(fractions, self.len())?;
        let mut parts = Vec::with_capacity(fractions.len());
        self.cut(&bounds, seed, &mut parts)?;
        Ok(parts)
    }

    /// Appends the parts between each two of `bounds`, the first and last of which are those of
    /// this view.
    fn cut(&self, bounds: &[u64], seed: u64, parts: &mut Vec<Self>) -> Result<(), Error> {
        let count = bounds.len() - 1;
        if count == 1 {
            parts.push(self.clone());
            return Ok(());
        }
        let middle = count / 2;
        let first = bounds[middle] - bounds[0];
        let side = |side| self.select(Selection::Split(Split { seed, first, side }));
        side(SplitSide::First)?.cut(&bounds[..=middle], seed, parts)?;
        side(SplitSide::Rest)?.cut(&bounds[middle..], seed, parts)
    }
}

/// Where each part of `samples` samples begins, and where the last one ends.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a fraction of a count, rounded: the last bound is set to the count itself"
)]
fn bounds(fractions: &[f64], samples: u64) -> Result<Vec<u64>, Error> {
    let refused = |why: String| Err(Error::Fractions { why });
    let limit = limits::SPLIT_PARTS_MAX;
    if fractions.is_empty() || fractions.len() > limit {
        return refused(format!("{} parts where 1 to {limit} are possible", fractions.len()));
    }
    if let Some(wrong) = fractions.iter().find(|it| it.is_nan() || **it <= 0.0) {
        return refused(format!("{wrong} is not above 0"));
    }
    let sum: f64 = fractions.iter().sum();
    if sum.is_nan() || (sum - 1.0).abs() > FRACTIONS_SLACK {
        return refused(format!("they add up to {sum}, not to 1; name all parts"));
    }
    let mut bounds = vec![0];
    let mut passed = 0.0;
    for fraction in fractions {
        passed += fraction;
        bounds.push(((passed * samples as f64).round() as u64).min(samples));
    }
    bounds[fractions.len()] = samples;
    Ok(bounds)
}
