//! One step from a set of samples to a part of it, and where each of its rows comes from.
//!
//! A step works shard by shard: the rows that it takes of a shard stay together, and shards stay in
//! their order, so that whatever is known per shard (its place in a window, its next use) is known
//! of a selection too. A step keeps 8 bytes a shard; explicit indices 8 bytes more each.

use std::ops::Range;
use std::sync::Arc;

use super::split::{ShardCut, Split};
use crate::{DatasetShape, Error};

/// Indices of one explicit selection, 8 bytes each: half a gibibyte in each process that has it.
const SELECTION_INDICES_MAX: usize = 1 << 26;

/// The samples to take of a set: of a snapshot, or of an earlier selection. Its numbers count the
/// samples of that set, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// A contiguous range.
    Range(Range<u64>),
    /// These samples, named in ascending order, each once.
    Indices(Arc<[u64]>),
    /// One side of a random cut in two.
    Split(Split),
}

impl From<Range<u64>> for Selection {
    fn from(range: Range<u64>) -> Self {
        Self::Range(range)
    }
}

impl From<Vec<u64>> for Selection {
    fn from(indices: Vec<u64>) -> Self {
        Self::Indices(indices.into())
    }
}

impl From<Split> for Selection {
    fn from(part: Split) -> Self {
        Self::Split(part)
    }
}

impl Selection {
    /// Checks it against the `samples` samples it is to be taken of.
    pub(super) fn check(&self, samples: u64) -> Result<(), Error> {
        match self {
            Self::Range(range) if range.start > range.end || range.end > samples => {
                Err(Error::Selection { range: range.clone(), samples })
            }
            Self::Split(part) if part.first > samples => {
                Err(Error::Split { first: part.first, samples })
            }
            Self::Indices(indices) => check_indices(indices, samples),
            Self::Range(_) | Self::Split(_) => Ok(()),
        }
    }

    /// How many of `samples` samples it takes.
    pub(super) fn len(&self, samples: u64) -> u64 {
        match self {
            Self::Range(range) => range.end - range.start,
            Self::Indices(indices) => indices.len() as u64,
            Self::Split(part) => part.len(samples),
        }
    }
}

fn check_indices(indices: &[u64], samples: u64) -> Result<(), Error> {
    let limit = SELECTION_INDICES_MAX;
    if indices.len() > limit {
        return Err(Error::Indices { count: indices.len(), limit });
    }
    if let Some(at) = indices.windows(2).position(|pair| pair[0] >= pair[1]) {
        return Err(Error::IndexOrder { before: indices[at], found: indices[at + 1], at: at + 1 });
    }
    match indices.last() {
        Some(&index) if index >= samples => Err(Error::Index { index, samples }),
        _ => Ok(()),
    }
}

/// A selection that was applied.
#[derive(Debug, Clone)]
pub(super) struct SelectionStep {
    pub(super) selection: Selection,
    /// Its source: the rows of each shard, and the name of that set.
    pub(super) from: DatasetShape,
    pub(super) source: [u8; 16],
    /// The rows that remain of each shard.
    pub(super) to: DatasetShape,
}

impl SelectionStep {
    /// Applies a checked selection to the set named `source`.
    pub(super) fn new(selection: Selection, from: DatasetShape, source: [u8; 16]) -> Self {
        let to = match &selection {
            Selection::Range(range) => {
                from.map_prefix_sums(|sum| sum.clamp(range.start, range.end) - range.start)
            }
            Selection::Indices(indices) => {
                // Both lists ascend: one walk along them serves all shards.
                let mut passed = 0;
                from.map_prefix_sums(|sum| {
                    passed += indices[passed..].partition_point(|&index| index < sum);
                    passed as u64
                })
            }
            Selection::Split(part) => part.shape(&from, source),
        };
        Self { selection, from, source, to }
    }

    /// How the step treats the rows of one shard, which must exist.
    pub(super) fn in_shard(&self, shard: u32) -> StepInShard<'_> {
        let first = self.from.first_sample(shard);
        match &self.selection {
            Selection::Range(range) => StepInShard::Run {
                skipped: range.start.saturating_sub(first),
                rows: self.to.rows(shard),
            },
            Selection::Indices(indices) => {
                let taken = self.to.shard_samples(shard).unwrap_or(0..0);
                let start = usize::try_from(taken.start).expect("no more than indices in memory");
                let end = usize::try_from(taken.end).expect("as above");
                StepInShard::Listed { first, indices: &indices[start..end] }
            }
            Selection::Split(part) => {
                let cut =
                    part.in_shard(shard, self.from.rows(shard), self.to.rows(shard), self.source);
                StepInShard::Cut(Box::new(cut))
            }
        }
    }
}

/// A step, prepared for the rows of one shard. Rows are counted within the shard on either side.
pub(super) enum StepInShard<'a> {
    /// `rows` rows after the first `skipped`.
    Run { skipped: u64, rows: u64 },
    /// The rows at `indices`, less `first`.
    Listed { first: u64, indices: &'a [u64] },
    /// One side of the shard's shuffled rows.
    Cut(Box<ShardCut>),
}

impl StepInShard<'_> {
    /// The row before the step that is row `row` after it.
    pub(super) fn source_of(&self, row: u64) -> u64 {
        match self {
            Self::Run { skipped, .. } => row + skipped,
            Self::Listed { first, indices } => {
                indices[usize::try_from(row).expect("a row of a list in memory")] - first
            }
            Self::Cut(cut) => cut.source_of(row),
        }
    }

    /// The row after the step that was row `row` before it, if the step took it.
    pub(super) fn taken(&self, row: u64) -> Option<u64> {
        match self {
            Self::Run { skipped, rows } => row.checked_sub(*skipped).filter(|row| row < rows),
            Self::Listed { first, indices } => {
                indices.binary_search(&(first + row)).ok().map(|place| place as u64)
            }
            Self::Cut(cut) => cut.taken(row),
        }
    }
}
