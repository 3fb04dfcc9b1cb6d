//! Which samples of a snapshot an epoch declares.

mod selection;
mod split;

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::{DatasetShape, Error};
pub use selection::Selection;
use selection::{SelectionStep, StepInShard};
pub use split::{Split, SplitSide};

/// Stacked selections (a part of a part of a range ...) that could not be merged. Each keeps 8
/// bytes a shard, and every row lookup passes through each.
const VIEW_STEPS_MAX: usize = 16;

/// Parts of one split: each keeps 8 bytes a shard.
const SPLIT_PARTS_MAX: usize = 1_024;

/// How far the sum of fractions may be from 1: enough for those written with six digits.
const FRACTIONS_SLACK: f64 = 1e-6;

/// A snapshot with the selections made from it: the declared set of samples, each of which an epoch
/// brings once.
///
/// The declared samples have an order of their own, in which they are counted from 0: shard by
/// shard in the order of shards, and within a shard ascending, but for a [`split`](Self::split),
/// which leaves the rows of a shard shuffled.
///
/// Selections are held in a canonical form, so that the usual ways to say the same set give the
/// same name: a range over everything is no selection, a range of a range is a range, indices
/// without a gap are a range, indices of indices are indices. Cheap to clone; two views are equal
/// if their digests are.
#[derive(Clone)]
pub struct View {
    snapshot: [u8; 32],
    /// The rows of each shard in the snapshot.
    whole: DatasetShape,
    /// The rows of each shard that are declared.
    shape: DatasetShape,
    /// From the snapshot on, each applied to the result of the one before.
    steps: Arc<[SelectionStep]>,
    digest: [u8; 16],
}

impl View {
    /// The view of all samples of a snapshot, with shards of the rows in `shape`.
    pub fn all(snapshot: [u8; 32], shape: DatasetShape) -> Self {
        let digest = digest(&first_half(&snapshot), None);
        Self { snapshot, whole: shape.clone(), shape, steps: Arc::new([]), digest }
    }

    /// The part of the declared samples that `selection` says.
    ///
    /// # Errors
    /// [`Error::Selection`], [`Error::Index`] or [`Error::Split`] if it reaches past the declared
    /// samples, [`Error::IndexOrder`] if indices do not ascend, [`Error::Indices`] if there are too
    /// many of them, [`Error::Steps`] if it would stack too many selections.
    pub fn select(&self, selection: impl Into<Selection>) -> Result<Self, Error> {
        let selection = selection.into();
        selection.check(self.len())?;
        let taken = selection.len(self.len());
        if taken == self.len() {
            return Ok(self.clone());
        }
        if taken == 0 {
            return Ok(Self::all(self.snapshot, self.whole.clone()).then(Selection::Range(0..0)));
        }
        let mut source = self.clone();
        let mut selection = without_gaps(selection);
        while let Some((before, merged)) = source.merge(&selection) {
            (source, selection) = (before, without_gaps(merged));
        }
        if selection.len(source.len()) == source.len() {
            return Ok(source);
        }
        if source.steps.len() == VIEW_STEPS_MAX {
            return Err(Error::Steps { limit: VIEW_STEPS_MAX });
        }
        Ok(source.then(selection))
    }

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

    /// Number of samples declared: the positions of an epoch.
    pub fn len(&self) -> u64 {
        self.shape.samples()
    }

    /// Whether no sample is declared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The snapshot's id.
    pub fn snapshot(&self) -> [u8; 32] {
        self.snapshot
    }

    /// The selections that lead from the whole snapshot to this view, in their canonical form:
    /// made one after the other they give an equal view in any process.
    pub fn selections(&self) -> impl ExactSizeIterator<Item = &Selection> {
        self.steps.iter().map(|step| &step.selection)
    }

    /// How many rows of each shard are declared. Shards are those of the snapshot.
    pub fn shape(&self) -> &DatasetShape {
        &self.shape
    }

    /// The declared sample with this index, as the snapshot counts samples. 1 ns in a contiguous
    /// view; else a binary search over shards, and for each random split 100 to 200 ns more.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len), as a slice would.
    pub fn sample_at(&self, index: u64) -> u64 {
        assert!(index < self.len(), "sample {index} of a view of {}", self.len());
        if let Some(first) = self.contiguous_from() {
            return first + index;
        }
        let shard = self.shape.shard_of(index).expect("an index below the number of samples");
        self.sample_in(shard, index - self.shape.first_sample(shard))
    }

    /// The index of a sample of the snapshot, or `None` if it is not declared.
    pub fn index_of(&self, sample: u64) -> Option<u64> {
        let shard = self.whole.shard_of(sample)?;
        let row = sample - self.whole.first_sample(shard);
        let taken = self.steps.iter().try_fold(row, |row, step| step.in_shard(shard).taken(row))?;
        Some(self.shape.first_sample(shard) + taken)
    }

    /// The declared samples, as the snapshot counts them, in the order of the view.
    pub fn samples(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.shape.shard_count()).flat_map(|shard| {
            let first = self.whole.first_sample(shard);
            let steps: Vec<StepInShard<'_>> = match self.shape.rows(shard) {
                0 => Vec::new(),
                _ => self.steps.iter().rev().map(|step| step.in_shard(shard)).collect(),
            };
            (0..self.shape.rows(shard))
                .map(move |row| first + steps.iter().fold(row, |row, step| step.source_of(row)))
        })
    }

    /// The name of the declared set: a 128-bit hash of the following bytes, little-endian.
    ///
    /// ```text
    /// offset  bytes  field
    ///      0     16  "larder view v1", zero-padded
    ///     16     16  source: first half of the snapshot's id, or digest of another view of it
    ///     32      1  selection: 0 all, 1 range, 2 indices, 3 part (numbers are never reused)
    ///     33      -  range: first u64, end u64
    ///                indices: count u64, each u64
    ///                part: seed u64, samples of the first side u64, side u8 (0 first, 1 rest)
    /// ```
    pub fn digest(&self) -> [u8; 16] {
        self.digest
    }

    /// The sample of row `row` of the declared rows of `shard`; both must exist.
    pub(super) fn sample_in(&self, shard: u32, row: u64) -> u64 {
        let steps = self.steps.iter().rev();
        let row = steps.fold(row, |row, step| step.in_shard(shard).source_of(row));
        self.whole.first_sample(shard) + row
    }

    /// The first sample, if those after it follow without a gap.
    fn contiguous_from(&self) -> Option<u64> {
        match &*self.steps {
            [] => Some(0),
            [SelectionStep { selection: Selection::Range(range), .. }] => Some(range.start),
            _ => None,
        }
    }

    /// This view with one more step, a checked one.
    fn then(&self, selection: Selection) -> Self {
        let source = if self.steps.is_empty() { first_half(&self.snapshot) } else { self.digest };
        let digest = digest(&source, Some(&selection));
        let step = SelectionStep::new(selection, self.shape.clone(), source);
        let shape = step.to.clone();
        let steps = self.steps.iter().cloned().chain([step]).collect();
        Self { snapshot: self.snapshot, whole: self.whole.clone(), shape, steps, digest }
    }

    /// The last step and `selection` after it as one selection, with what that is to be made from.
    fn merge(&self, selection: &Selection) -> Option<(Self, Selection)> {
        use Selection::{Indices, Range};
        let (last, before) = self.steps.split_last()?;
        let merged = match (&last.selection, selection) {
            (Range(outer), Range(inner)) => {
                Range(outer.start + inner.start..outer.start + inner.end)
            }
            (Range(outer), Indices(inner)) => {
                Indices(inner.iter().map(|index| outer.start + index).collect())
            }
            (Indices(outer), Range(inner)) => {
                let place = |index: u64| usize::try_from(index).expect("a place in a list");
                Indices(outer[place(inner.start)..place(inner.end)].into())
            }
            (Indices(outer), Indices(inner)) => {
                let place = |&index: &u64| usize::try_from(index).expect("a place in a list");
                Indices(inner.iter().map(|index| outer[place(index)]).collect())
            }
            _ => return None,
        };
        let mut view = Self::all(self.snapshot, self.whole.clone());
        if !before.is_empty() {
            view = Self {
                digest: last.source,
                shape: last.from.clone(),
                steps: before.into(),
                ..view
            };
        }
        Some((view, merged))
    }
}

/// The same selection, as a range if it is one; of at least one sample.
fn without_gaps(selection: Selection) -> Selection {
    if let Selection::Indices(indices) = &selection
        && let [first, .., last] | [first @ last] = &**indices
        && last - first == indices.len() as u64 - 1
    {
        return Selection::Range(*first..last + 1);
    }
    selection
}

/// The part of a snapshot's id that a view hashes.
fn first_half(snapshot: &[u8; 32]) -> [u8; 16] {
    *snapshot.first_chunk().expect("it has 32 bytes")
}

/// See [`View::digest`].
fn digest(source: &[u8; 16], selection: Option<&Selection>) -> [u8; 16] {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(b"larder view v1\0\0");
    bytes.extend_from_slice(source);
    match selection {
        None => bytes.push(0),
        Some(Selection::Range(range)) => {
            bytes.push(1);
            bytes.extend_from_slice(&range.start.to_le_bytes());
            bytes.extend_from_slice(&range.end.to_le_bytes());
        }
        Some(Selection::Indices(indices)) => {
            bytes.push(2);
            bytes.extend_from_slice(&(indices.len() as u64).to_le_bytes());
            bytes.extend(indices.iter().flat_map(|index| index.to_le_bytes()));
        }
        Some(Selection::Split(part)) => {
            bytes.push(3);
            bytes.extend_from_slice(&part.seed.to_le_bytes());
            bytes.extend_from_slice(&part.first.to_le_bytes());
            bytes.push(match part.side {
                SplitSide::First => 0,
                SplitSide::Rest => 1,
            });
        }
    }
    xxh3_128(&bytes).to_le_bytes()
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
    let limit = SPLIT_PARTS_MAX;
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

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for View {}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({:032x}, ", u128::from_be_bytes(self.digest))?;
        write!(f, "{} of {} samples)", self.len(), self.whole.samples())
    }
}

#[cfg(test)]
mod tests;
