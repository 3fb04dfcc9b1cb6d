//! What can be wrong with a plan, a view or a saved state.

use std::ops::Range;

use super::PlanId;

/// Why a part of the sample order could not be built, merged or resumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Prefix sums that do not describe a dataset.
    #[error("shard prefix sums {problem} at entry {entry}")]
    Shape {
        /// What is wrong.
        problem: &'static str,
        /// Index of the offending entry.
        entry: usize,
    },
    /// A selection that reaches outside its dataset.
    #[error("samples {}..{} lie outside the dataset's 0..{samples}", range.start, range.end)]
    Selection {
        /// The samples asked for.
        range: Range<u64>,
        /// Samples the dataset has.
        samples: u64,
    },
    /// A view and a shape that are not of the same dataset.
    #[error("the view is of a dataset of {view} samples, the shard table of one of {shape}")]
    Samples {
        /// Samples of the view's dataset.
        view: u64,
        /// Samples of the shape.
        shape: u64,
    },
    /// A plan made for another view.
    #[error(
        "plan {plan} is of another snapshot or selection: open the snapshot and selection it was \
         made with, or start a new epoch"
    )]
    View {
        /// The plan that was handed in.
        plan: Box<PlanId>,
    },
    /// A plan whose order this build cannot reproduce.
    #[error(
        "plan has order version {found}, this build computes {supported}: finish the epoch with \
         the version that began it, or start a new one"
    )]
    OrderVersion {
        /// Version in the plan.
        found: u16,
        /// The one version this build computes.
        supported: u16,
    },
    /// Two parts that belong to different passes.
    #[error("plan {found} is not the plan in use, {wanted}")]
    Plan {
        /// The plan in use.
        wanted: Box<PlanId>,
        /// The plan that was handed in.
        found: Box<PlanId>,
    },
    /// A position past the end of the epoch.
    #[error("position {position} lies outside the epoch's {positions} positions")]
    Position {
        /// The position asked for.
        position: u64,
        /// Positions the epoch has.
        positions: u64,
    },
    /// Text that is not what it should be.
    #[error("`{text}` is not {wanted}")]
    Text {
        /// What was expected, with its form.
        wanted: &'static str,
        /// What was found, cut to a readable length.
        text: String,
    },
}
