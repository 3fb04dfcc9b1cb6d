//! The report of one run.

/// The report of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Events that were handled.
    pub events: u64,
    /// A hash over all events and effects in their order.
    pub trace: u64,
    /// The first violation, and when.
    pub violation: Option<String>,
    /// Ring versions that were committed.
    pub versions: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Whole shards that moved between nodes for changes.
    pub moved: u64,
}
