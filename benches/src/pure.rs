//! Parts that need no node: they compute, count and simulate.

pub(crate) mod locality;
pub(crate) mod placement;
pub(crate) mod policy;
