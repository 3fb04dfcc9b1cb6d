//! The limits of a node's control plane.

use std::time::Duration;

/// Most bytes of one control message, either way. Holds a full ring or page of shards.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a client's request to a node: an address or two. Bounds the memory of a connection
/// that sends all but the last byte of its requests.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Bytes of one piece of a manifest on the control plane. Many clients open a dataset at once.
pub const MANIFEST_CHUNK_BYTES: usize = 64 << 10;

/// Left-out objects that are named to the process that opened a dataset. Enough to see the cause,
/// few enough for one line. `larder dataset index` lists all.
pub const LEFT_OUT_TOLD_MAX: usize = 4;

/// Most bytes of the variables that a program hands over in an ADMIT. A key of a service account
/// has 3 KiB.
pub const VARIABLES_BYTES_MAX: u32 = 64 << 10;

/// Most bytes of an ADMIT: the length of an address, the address, and variables.
pub const ADMIT_BYTES_MAX: u32 = 4 + (4 << 10) + VARIABLES_BYTES_MAX;

/// Most entries of one page of a listing: at under 256 bytes each a page stays below 1 MiB.
pub const PAGE_ENTRIES_MAX: u32 = 4_096;

/// Control connections of one node, metrics and health included. Beyond it, one that is idle is
/// closed for another.
pub const CONTROL_CONNECTIONS_MAX: usize = 512;

/// Memory that all control connections may hold: part of what strangers may
/// hold.
pub const CONTROL_BYTES_MAX: usize = 15 << 20;

/// Units of large answers that a node makes at once; other requests wait. Part of what
/// strangers may hold: a unit is a piece of a manifest, encoded, beside the piece itself.
pub const LARGE_ANSWER_UNITS_MAX: usize = 32;

/// Time after which a control connection without requests is closed, even if its client answers
/// PINGs. Clients fetch the ring far more often, and reconnect when they need to.
pub const CONTROL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Time from the head of a control request to that of its answer. Longer than opening a dataset may
/// take, so a request that is not complete by then will not complete.
pub const CONTROL_REQUEST_TIMEOUT: Duration = Duration::from_secs(660);

/// Timeout of a control call that only reads (describe, ring, list).
pub const CONTROL_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of opening a dataset: the node may have to index the headers of many objects first.
pub const OPEN_DATASET_TIMEOUT: Duration = Duration::from_secs(600);

/// Timeout for a node to open a dataset that other nodes have open, before rows are asked of it.
/// Long enough to read a large manifest. A node that must index first, or has many to open, is
/// passed over meanwhile.
pub const OPEN_NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// Datasets being opened at once, because one may have to be indexed; each has a thread. Others
/// wait.
pub const OPENINGS_MAX: usize = 16;

/// Bytes of a manifest that needs no share of the budget while it is read: about 4,000 shards. For
/// all [`OPENINGS_MAX`] together 4 MiB, part of [`NODE_OVERHEAD_BYTES`]. A larger manifest is on
/// the heap until it is copied to an extent, and counts against the budget meanwhile.
pub const MANIFEST_BYTES_FREE: u64 = 256 << 10;

/// Datasets open on one node. Each keeps its manifest resident.
pub const OPEN_DATASETS_MAX: usize = 1_024;
