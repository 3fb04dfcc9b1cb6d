//! What a gather did: where its rows came from, and what it waited for on the way.

use std::{ops::AddAssign, time::Duration};

use crate::CopyStats;

/// Where the rows of a gather came from, and what they cost. A row counts once, however many
/// tensors it has. Those of several gathers add up with `+=`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Copied out of extents mapped from a node on this host.
    pub rows_local: u64,
    /// Sent by a node out of its memory.
    pub rows_remote: u64,
    /// Read from the origin: by a node that had to, or by this process.
    pub rows_origin: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// The same by the way they came, and how often they were copied.
    pub copies: CopyStats,
    /// Time spent copying out of mapped extents.
    pub wait_local: Duration,
    /// Time spent waiting for a connection that other calls used.
    pub wait_queue: Duration,
    /// Time spent asking nodes and receiving what they had in memory.
    pub wait_nodes: Duration,
    /// Time spent until the last node was done that had to read from the origin first.
    pub wait_node_origin: Duration,
    /// Time spent reading from the origin in this process.
    pub wait_origin: Duration,
    /// Time spent waiting before another try.
    pub wait_retries: Duration,
}

impl AddAssign for Sources {
    fn add_assign(&mut self, other: Self) {
        self.rows_local += other.rows_local;
        self.rows_remote += other.rows_remote;
        self.rows_origin += other.rows_origin;
        self.bytes += other.bytes;
        self.copies += other.copies;
        self.wait_local += other.wait_local;
        self.wait_queue += other.wait_queue;
        self.wait_nodes += other.wait_nodes;
        self.wait_node_origin += other.wait_node_origin;
        self.wait_origin += other.wait_origin;
        self.wait_retries += other.wait_retries;
    }
}

impl Sources {
    /// What was waited for, hop by hop.
    #[must_use]
    pub fn hops(&self) -> [(Hop, Duration); 6] {
        [
            (Hop::Local, self.wait_local),
            (Hop::Queue, self.wait_queue),
            (Hop::Network, self.wait_nodes),
            (Hop::NodeOrigin, self.wait_node_origin),
            (Hop::Origin, self.wait_origin),
            (Hop::Retry, self.wait_retries),
        ]
    }
}

/// Where time goes on the way of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hop {
    /// Copying out of memory mapped from a node on this host.
    Local,
    /// Waiting for a connection that other calls use.
    Queue,
    /// A node that has the rows in memory, and the way from it.
    Network,
    /// A node that has to read them from the origin first.
    NodeOrigin,
    /// The origin, read by this process as no node answers.
    Origin,
    /// Waiting to ask again, as a node or the origin said to.
    Retry,
}

impl Hop {
    /// One word, for listings and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Queue => "queue",
            Self::Network => "network",
            Self::NodeOrigin => "node_origin",
            Self::Origin => "origin",
            Self::Retry => "retry",
        }
    }
}

/// The longest single wait of a gather: from one piece of an answer to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongestWait {
    /// What was waited for.
    pub hop: Hop,
    /// For how long.
    pub waited: Duration,
    /// The shard of the first row in what came then, or would have.
    pub shard: u32,
    /// The node that was asked, by id.
    pub node: Option<String>,
}

/// What became of a gather.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gathered {
    pub(crate) sources: Sources,
    /// Absent when all rows were mapped.
    pub(crate) longest: Option<LongestWait>,
}

impl AddAssign for Gathered {
    fn add_assign(&mut self, other: Self) {
        self.sources += other.sources;
        let waited = |wait: &Option<LongestWait>| wait.as_ref().map(|wait| wait.waited);
        if waited(&self.longest) < waited(&other.longest) {
            self.longest = other.longest;
        }
    }
}

impl Gathered {
    /// Adds what became of other columns of the same rows, each of which counts once.
    pub(crate) fn add_columns(&mut self, other: Self) {
        self.sources.rows_local = 0;
        *self += other;
    }

    /// Keeps a wait if none was longer.
    pub(super) fn note(&mut self, hop: Hop, waited: Duration, shard: u32, node: Option<&str>) {
        if self.longest.as_ref().is_none_or(|longest| longest.waited < waited) {
            let node = node.map(ToOwned::to_owned);
            self.longest = Some(LongestWait { hop, waited, shard, node });
        }
    }
}
