//! The limits of a node's control plane.

use std::time::Duration;

use super::{BLOB_PIECE_BYTES, MEMBER_ID_BYTES_MAX, RING_MEMBERS_MAX};

/// Most bytes of one control message, either way. Holds a full ring or page of shards.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a client's request to a node: an address or two. Bounds the memory of a connection
/// that sends all but the last byte of its requests.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Most bytes of an operator's request to a node, plans excepted: the names of all members, twice.
pub const ADMIN_REQUEST_BYTES_MAX: usize = 2 * RING_MEMBERS_MAX * MEMBER_ID_BYTES_MAX as usize;

/// Most bytes of one message from an operator: a piece of a plan.
pub const ADMIN_MESSAGE_BYTES_MAX: usize = BLOB_PIECE_BYTES + (64 << 10);

/// Bytes of one piece of a manifest on the control plane. Many clients open a dataset at once.
pub const MANIFEST_CHUNK_BYTES: usize = 64 << 10;

/// Left-out objects that are named to the process that opened a dataset. Enough to see the cause,
/// few enough for one line. `larder dataset index` lists all.
pub const LEFT_OUT_TOLD_MAX: usize = 4;

/// Most bytes of the text about one of them: a key, a tensor's name and a reason. Longer ones are
/// cut.
pub const LEFT_OUT_BYTES_MAX: usize = 512;

/// Most bytes of the address in an ADMIT.
pub const ADMIT_BYTES_MAX: u32 = 4 << 10;

/// Prefixes that a node takes from its owner's processes: each is checked when a dataset is opened.
pub const PREFIXES_ADMITTED_MAX: usize = 1_024;

/// Most entries of one page of a listing: at under 256 bytes each a page stays below 1 MiB.
pub const PAGE_ENTRIES_MAX: u32 = 4_096;

/// Entries of a page if the caller names no number.
pub const PAGE_ENTRIES_DEFAULT: u32 = 1_000;

/// Control connections of one node, metrics and health included. Beyond it, one that is idle is
/// closed for another.
pub const CONTROL_CONNECTIONS_MAX: usize = 512;

/// Requests in progress on one control connection; HTTP/2 refuses more streams.
pub const CONTROL_STREAMS_MAX: u32 = 16;

/// Memory that all control connections may hold: part of [`STRANGERS_BYTES_MAX`]. The next four
/// constants say how it is charged.
pub const CONTROL_BYTES_MAX: usize = 15 << 20;

/// Memory of a control connection without requests: at most 21 KiB, measured.
pub const CONTROL_CONNECTION_BYTES: usize = 20 << 10;

/// Memory of a request in progress on a control connection: 15 KiB the first and 6 KiB a further
/// one, measured.
pub const CONTROL_IN_PROGRESS_BYTES: usize = 12 << 10;

/// Bytes that a connection may send without a charge, beside those of answered requests.
pub const CONTROL_RECEIVED_BYTES_FREE: usize = 4 << 10;

/// The most that is charged for bytes that came in. It holds the largest requests of all streams; a
/// plan is sent on as it comes.
pub const CONTROL_RECEIVED_BYTES_MAX: usize = 1 << 20;

/// Most bytes of the head of a request.
pub const CONTROL_HEAD_BYTES_MAX: u32 = 8 << 10;

/// Bytes that a client may send on a control connection, or on a stream of it, before the node
/// takes them: the smallest window of HTTP/2.
pub const CONTROL_WINDOW_BYTES: u32 = 65_535;

/// Time in which a request's body must arrive, unless it is sent in pieces.
pub const CONTROL_ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Units of large answers that a node makes at once; other requests wait. Part of
/// [`STRANGERS_BYTES_MAX`]: a unit is a piece of a manifest, encoded, beside the piece itself.
pub const LARGE_ANSWER_UNITS_MAX: usize = 32;

/// Units of a page of a listing: 1 MiB.
pub const LARGE_ANSWER_UNITS_OF_PAGE: u32 = 8;

/// Time after which a client that takes nothing of a large answer loses its connection, if others
/// wait.
pub const LARGE_ANSWER_STALL: Duration = Duration::from_secs(5);

/// Memory that callers can hold before a node knows them: control connections, large answers, and
/// handshakes of the data plane. Part of [`NODE_OVERHEAD_BYTES`].
pub const STRANGERS_BYTES_MAX: usize = 24 << 20;

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

/// Time after which a client that opens a dataset warns the user of the likely cause of the wait.
pub const OPENING_TOLD_AFTER: Duration = Duration::from_secs(5);

/// Timeout for a node to open a dataset that other nodes have open, before rows are asked of it.
/// Long enough to read a large manifest. A node that must index first, or has many to open, is
/// passed over meanwhile.
pub const OPEN_NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// Listings that walk over all shards at once; each has a thread and takes the cache's lock in
/// turn.
pub const LISTINGS_MAX: usize = 4;

/// Datasets being opened at once, because one may have to be indexed; each has a thread. Others
/// wait.
pub const OPENINGS_MAX: usize = 16;

/// Bytes of a manifest that needs no share of the budget while it is read: about 4,000 shards. For
/// all [`OPENINGS_MAX`] together 4 MiB, part of [`NODE_OVERHEAD_BYTES`]. A larger manifest is on
/// the heap until it is copied to an extent, and counts against the budget meanwhile.
pub const MANIFEST_BYTES_FREE: u64 = 256 << 10;

/// Prefixes being indexed at once because a client opened them. Each has its listing and the
/// headers of its files on the heap, several times the size of its manifest.
pub const INDEXINGS_MAX: usize = 2;

/// Datasets open on one node. Each keeps its manifest resident.
pub const OPEN_DATASETS_MAX: usize = 1_024;

/// Time after which an unused ticket is forgotten; the client opens the dataset again.
pub const TICKET_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);
