//! Reports of a gather: the sources of its rows, and its waits.

use std::{ops::AddAssign, time::Duration};

use crate::CopyStats;

/// The sources of the rows of a gather, and their costs. A row counts once, even with several
/// tensors. `+=` adds up several gathers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Copied from extents mapped from a node on this host.
    pub rows_local: u64,
    /// Sent by a node from its memory.
    pub rows_remote: u64,
    /// Read from the origin, by a node or by this process.
    pub rows_origin: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes that nodes read from the origin: rows by range, and shards that came in.
    pub node_origin_bytes: u64,
    /// The bytes delivered by source, and how often they were copied.
    pub copies: CopyStats,
    /// Time of copying from mapped extents.
    pub wait_local: Duration,
    /// Time of waiting for a connection in use.
    pub wait_queue: Duration,
    /// Time of asking nodes and receiving rows from their memory.
    pub wait_nodes: Duration,
    /// Time until the last node that read from the origin had finished.
    pub wait_node_origin: Duration,
    /// Time of reading from the origin in this process.
    pub wait_origin: Duration,
    /// Time of waiting before retries.
    pub wait_retries: Duration,
}

impl AddAssign for Sources {
    fn add_assign(&mut self, other: Self) {
        self.rows_local += other.rows_local;
        self.rows_remote += other.rows_remote;
        self.rows_origin += other.rows_origin;
        self.bytes += other.bytes;
        self.node_origin_bytes = self.node_origin_bytes.saturating_add(other.node_origin_bytes);
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
    /// The waiting times by hop.
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

/// The cause of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hop {
    /// Copying from memory mapped from a node on this host.
    Local,
    /// Waiting for a connection in use.
    Queue,
    /// A node with the rows in memory, and the network.
    Network,
    /// A node that must first read the rows from the origin.
    NodeOrigin,
    /// The origin, read by this process because no node answers.
    Origin,
    /// Waiting before a retry that a node or the origin asked for.
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

/// The longest single wait of a gather, from one piece of an answer to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongestWait {
    /// The cause.
    pub hop: Hop,
    /// The duration.
    pub waited: Duration,
    /// The shard of the first row that was waited for.
    pub shard: u32,
    /// The id of the node that was asked.
    pub node: Option<String>,
}

/// The report of a gather.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gathered {
    pub(crate) sources: Sources,
    /// Absent if all rows were mapped.
    pub(crate) longest: Option<LongestWait>,
    /// Rows that can't be decoded.
    pub(crate) bad: Vec<usize>,
}

impl AddAssign for Gathered {
    fn add_assign(&mut self, other: Self) {
        self.sources += other.sources;
        self.bad.extend(other.bad);
        let waited = |wait: &Option<LongestWait>| wait.as_ref().map(|wait| wait.waited);
        if waited(&self.longest) < waited(&other.longest) {
            self.longest = other.longest;
        }
    }
}

impl Gathered {
    /// Adds the report of other columns of the same rows. Each row counts once.
    pub(crate) fn add_columns(&mut self, other: Self) {
        let Sources { rows_local, rows_remote, rows_origin, .. } = &mut self.sources;
        (*rows_local, *rows_remote, *rows_origin) = (0, 0, 0);
        *self += other;
    }

    /// Records a wait if it is the longest so far.
    pub(super) fn note(&mut self, hop: Hop, waited: Duration, shard: u32, node: Option<&str>) {
        if self.longest.as_ref().is_none_or(|longest| longest.waited < waited) {
            let node = node.map(ToOwned::to_owned);
            self.longest = Some(LongestWait { hop, waited, shard, node });
        }
    }
}
