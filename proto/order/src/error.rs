//! Errors of passes, views and saved states.

use std::ops::Range;

use super::{LocalityId, PassId};

/// Why a part of the sample order could not be built, merged or resumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Prefix sums that do not describe a dataset.
    #[error("shard prefix sums {problem} at entry {entry}")]
    Shape {
        /// The problem.
        problem: &'static str,
        /// Index of the offending entry.
        entry: usize,
    },
    /// A range that reaches outside the samples.
    #[error("samples {}..{} lie outside the 0..{samples} that there are", range.start, range.end)]
    Selection {
        /// The samples asked for.
        range: Range<u64>,
        /// Samples there are.
        samples: u64,
    },
    /// An index outside the samples.
    #[error("there is no sample {index}: there are {samples}, counted from 0")]
    Index {
        /// The sample asked for.
        index: u64,
        /// Samples there are.
        samples: u64,
    },
    /// Indices that are not a set in ascending order.
    #[error(
        "index {found} follows index {before} (entry {at}) where indices must ascend, each once: \
         sort them and drop repeats; in which order samples come is said by the shuffle"
    )]
    IndexOrder {
        /// The entry before.
        before: u64,
        /// The offending entry.
        found: u64,
        /// Its place in the list.
        at: usize,
    },
    /// More indices than a process should hold.
    #[error(
        "{count} indices where at most {limit} can be held: say most of a dataset as a range or a \
         split"
    )]
    Indices {
        /// Indices given.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A side of a cut that has more samples than there are.
    #[error("a part of {first} samples of {samples}")]
    Split {
        /// Samples of the first side.
        first: u64,
        /// Samples there are.
        samples: u64,
    },
    /// Fractions that say no split.
    #[error("these fractions say no split: {why}")]
    Fractions {
        /// The problem with them.
        why: String,
    },
    /// Datasets that can't be mixed as was asked for.
    #[error("these datasets can't be mixed: {why}")]
    Mixture {
        /// The problem with them or their weights.
        why: String,
    },
    /// A selection of a selection, too many times over.
    #[error(
        "more than {limit} selections on top of each other, none of which can be merged: select \
         from the dataset itself"
    )]
    Steps {
        /// The limit.
        limit: usize,
    },
    /// A pass made for another view.
    #[error(
        "pass {pass_id} is of another snapshot or selection: open the snapshot and selection it was \
         made with, or start a new epoch"
    )]
    View {
        /// The pass that was handed in.
        pass_id: Box<PassId>,
    },
    /// A pass with an order that this build cannot reproduce.
    #[error(
        "pass has order version {found}, this build computes {supported}: finish the epoch with \
         the version that began it, or start a new one"
    )]
    OrderVersion {
        /// Version in the pass.
        found: u16,
        /// The one version this build computes.
        supported: u16,
    },
    /// Two parts that belong to different passes.
    #[error("pass {found} is not the pass in use, {wanted}")]
    Pass {
        /// The pass in use.
        wanted: Box<PassId>,
        /// The pass that was handed in.
        found: Box<PassId>,
    },
    /// Ranks that divide the batches of one pass differently.
    #[error(
        "this rank divides batches {}, another {}: make one locality, in one process, and hand it to \
         all ranks, or rows are lost and repeated", divided(*wanted), divided(*found)
    )]
    Division {
        /// The locality by which this rank divides them, if any.
        wanted: Option<LocalityId>,
        /// The locality by which the other rank divides them, if any.
        found: Option<LocalityId>,
    },
    /// A position past the end of the epoch.
    #[error("position {position} lies outside the epoch's {positions} positions")]
    Position {
        /// The position asked for.
        position: u64,
        /// Positions the epoch has.
        positions: u64,
    },
    /// Text of another form than expected.
    #[error("'{text}' is not {wanted}")]
    Text {
        /// The expected form.
        wanted: &'static str,
        /// The text, cut to a readable length.
        text: String,
    },
}

fn divided(locality: Option<LocalityId>) -> String {
    locality.map_or("in slices".to_owned(), |locality| format!("by locality {locality}"))
}
