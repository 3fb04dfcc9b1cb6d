//! The limits that modules share, each with its reason.
//!
//! A number that bounds memory, a queue, a count or a wait stands here if two files use it, or if
//! an assertion relates it to another. So a reader can sum up the most memory a process can be made
//! to hold. A limit that one file alone uses stands in that file. The limits of clients are in
//! `client`, those of the control plane in `control`, those of datasets in `dataset`. The durations
//! that membership waits by are `Timing` of larder-membership.

mod client;
mod control;
mod dataset;

use std::time::Duration;

pub use client::*;
pub use control::*;
pub use dataset::*;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

// ---- Frames of the data plane ----

/// Most rows of one gather. Above any batch seen in practice. At 8 bytes a row the request stays at
/// half a mebibyte, so that the largest frame a peer can announce costs little.
pub const GATHER_ROWS_MAX: u32 = 65_536;

/// Most tensors of one gather: as many as a shard may have regions.
pub const GATHER_TENSORS_MAX: u32 = 4_096;

/// Most payload of one DATA frame, unless a single row is larger. Large enough that the header and
/// tables are negligible. Small enough that a receiver's first verified row comes early, and that
/// an error at the next frame border comes soon.
pub const DATA_PAYLOAD_BYTES_MAX: u32 = 4 * MIB;

/// Most bytes of one row: the most that the 32-bit length of a ragged row can express.
pub const ROW_BYTES_MAX: u64 = u32::MAX as u64;

/// Most bytes of an error message on the wire: a sentence with a URI in it. Longer ones are cut.
pub const ERROR_MESSAGE_BYTES_MAX: u32 = 2 * KIB;

/// Most bytes of the name a client gives itself in HELLO.
pub const CLIENT_NAME_BYTES_MAX: u32 = 256;

/// Most bytes of a member's id: a host or pod name.
pub const MEMBER_ID_BYTES_MAX: u32 = 64;

/// Most bytes of a control address: `http://`, a host name, a colon and a port.
pub const CONTROL_ADDRESS_BYTES_MAX: u32 = 272;

// ---- Connections, before and after HELLO ----

/// Time from accept to a valid HELLO. A live client sends it in its first packet. A client that has
/// not by then holds a connection slot for nothing.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes a node reads and buffers from a connection before HELLO identifies the client.
pub const PRE_AUTH_BYTES_MAX: u32 = 4 * KIB;

/// Connections in their handshake at once, with a thread each; the rest wait.
pub const HANDSHAKES_MAX: usize = 64;

/// Time after which a peer that takes no byte of a reply counts as gone or stopped. Its connection
/// is closed, so that it does not hold extents and a thread.
pub const SEND_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Time in which a node finishes its gathers after SIGTERM; the rest is cut off. Below the 30
/// seconds that orchestrators give before they kill.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a node that works on a request tells the client so. Also how often it checks whether a
/// client that takes nothing still lives. A fraction of [`OWNER_SILENT_TIMEOUT`], after which a
/// client would turn to another node.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(500);

/// Bytes of all requests together that are larger than [`REQUEST_BYTES_FREE`]. They count as
/// received and as decoded while they are read, and as decoded until they are answered. Part of
/// [`NODE_OVERHEAD_BYTES`]: 15 of the largest, or 250 of 4,096 rows.
pub const REQUEST_BYTES_TOTAL: usize = 8 << 20;

/// Staging of all connections together: part of [`NODE_OVERHEAD_BYTES`]. A connection that finds it
/// used up works with [`STAGING_BYTES_MIN`].
pub const STAGING_BYTES_TOTAL: usize = 8 << 20;

/// The staging piece every busy connection gets: the largest staged row fits.
pub const STAGING_BYTES_MIN: usize = 16 << 10;

/// Row size from which a node sends straight from the extent (`sendfile`). For smaller rows,
/// copying into a staging piece costs less than a system call each.
pub const SENDFILE_ROW_BYTES_MIN: u64 = 16 << 10;

// ---- Ring ----

/// Most members of a ring: 16 bits number them with room to spare, and a walk's set of visited
/// members is 128 bytes of stack.
pub const RING_MEMBERS_MAX: usize = 1_024;

/// Most weight of a member. Weights are relative. A memory budget in MiB, the largest number in
/// use, reaches this at 16 TiB.
pub const RING_WEIGHT_MAX: u32 = 1 << 24;

/// Most copies of a shard: a set of owners then fits in 16 bytes.
pub const REPLICAS_MAX: usize = 8;

// ---- The coordinator ----

/// Most bytes of the record. 1,024 members with names of ordinary length take about 100 KiB, and
/// etcd takes 1.5 MB in one request.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// Most bytes of a blob (the exceptions of a placement, the moves of a plan): half a million moves.
pub const BLOB_BYTES_MAX: usize = 16 << 20;

/// Most bytes of an announcement, which every node reads from every other.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 1 << 10;

/// Blobs that the coordinator keeps, including those that no record names. A writer that finds no
/// room sweeps first.
pub const BLOBS_KEPT_MAX: usize = 64;

/// Bytes of one piece of a blob: below the 1.5 MB of an etcd request, with room for its envelope.
pub const BLOB_PIECE_BYTES: usize = 1 << 20;

/// Announcements at once: as many as a ring has members, and as many again from outside of it.
pub const ANNOUNCEMENTS_MAX: usize = 2 * RING_MEMBERS_MAX;

/// Longest lifetime of an announcement.
pub const ANNOUNCEMENT_TTL_MAX: Duration = Duration::from_secs(600);

/// Timeout of a call to the coordinator, after which its outcome is unknown.
pub const COORDINATOR_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a blob to or from the coordinator: 16 MiB at 0.5 MiB/s.
pub const BLOB_TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);

/// First wait before a silent coordinator is tried again; doubled up to [`COORDINATOR_RETRY_MAX`],
/// with jitter.
pub const COORDINATOR_RETRY_MIN: Duration = Duration::from_millis(100);

/// Longest wait before a coordinator is tried again.
pub const COORDINATOR_RETRY_MAX: Duration = Duration::from_secs(2);

// ---- The record of a cluster (for the durations of membership see `Timing`) ----

/// Datasets that the record names: as many as one node opens.
pub const RECORD_DATASETS_MAX: usize = OPEN_DATASETS_MAX;

/// Bytes of the record that its datasets may take: half of it, so that members and changes always
/// have room.
pub const RECORD_DATASETS_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;

/// Bytes of the words of one change in the history.
pub const RECORD_WORDS_BYTES_MAX: usize = 256;

/// Operator commands that wait in one node's agent.
pub const COMMANDS_QUEUED_MAX: usize = 16;

/// Bytes of the operator's name in a request for a change; the history keeps it beside the change.
pub const ASKED_BY_BYTES_MAX: usize = 128;

/// Most bytes of a plan as an operator keeps it: two blobs, and their lengths.
pub const PLANNED_BYTES_MAX: usize = 2 * BLOB_BYTES_MAX + 64;

/// Shards one node pulls at a time for a change. Each is already many parts in flight.
pub const PULLS_IN_FLIGHT_MAX: usize = 4;

/// How often the target of a change asks the sources which of its shards are needed soonest.
pub const LAST_USES_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of a source's answer about last reads; its shards are then moved last.
pub const LAST_USES_TIMEOUT: Duration = Duration::from_secs(10);

/// Shards in one message about their last uses.
pub const LAST_USES_PIECE: usize = 8_192;

/// Timeout of all sources together; the target asks nothing anew meanwhile.
pub const LAST_USES_ALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Snapshots that one question about last uses may name, each with 32 bytes and 2 of framing. Twice
/// as many would exceed [`CONTROL_REQUEST_BYTES_MAX`].
pub const LAST_USES_SNAPSHOTS_MAX: usize = 1_024;

/// Sources that a node asks about last uses at once.
pub const LAST_USES_ASKED_MAX: usize = 8;

// ---- Fills ----

/// Bytes of one part of a fill. Large enough that a GET's first-byte latency is a small share of
/// it. Small enough that a reader of a cold shard soon gets its rows.
pub const FILL_PART_BYTES: u64 = 8 << 20;

/// Bytes of the smallest reads of a fill, but for longer rows. On a slow line a reader waits for
/// its rows and little more. On a fast one neighbours are read together, up to
/// [`FILL_PART_BYTES`].
pub const FILL_PIECE_BYTES: u64 = 64 << 10;

/// GETs of parts in flight at once, over all fills. A single GET yields about 50-100 MB/s, so 32
/// can fill 25 Gbit/s.
pub const FILL_GETS_MAX: usize = 32;

/// Read plans of one process: loaders that live at once, and each dataset of a mixture.
pub const READ_PLANS_OF_CLIENT_MAX: usize = 16;

/// Stretches of consecutive shards of a read plan, so that a request of one plan fits its limit.
pub const READ_PLAN_RUNS_MAX: usize = 6_000;

/// Bytes of the name of a job.
pub const JOB_NAME_BYTES_MAX: usize = 64;

/// How often a client tells its plans, and a node passes them on.
pub const READ_PLAN_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which a plan ends that was not told again.
pub const READ_PLAN_LIFETIME: Duration = Duration::from_secs(5);

/// First wait between two tries; doubled each time, with jitter.
pub const RETRY_WAIT_MIN: Duration = Duration::from_millis(50);

/// Longest wait between two tries.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Shards being filled at once. The budget admits their memory; this limit keeps the workers from
/// being spread thinly, which would lengthen each fill.
pub const FILLS_IN_FLIGHT_MAX: usize = 16;

/// Wait before an answer that would end a shard (denied, changed, gone) is confirmed by a second
/// request. Longer than a gateway's short failures, short beside a fill.
pub const ORIGIN_CONFIRM_WAIT: Duration = Duration::from_millis(200);

/// Timeout from the sending of a GET to its first byte.
pub const ORIGIN_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout from the beginning of a fill to its seal: a gibibyte at 2 MB/s. A longer fill is stuck
/// in a way that the timeouts above do not see.
pub const FILL_DEADLINE: Duration = Duration::from_secs(600);

/// Staging memory for rows that are read by range, over all connections of a node. Part of the
/// node's overhead. At 4 MiB a frame it lets eight be under way. A row longer than all of it goes
/// in pieces.
pub const RANGE_STAGING_BYTES: usize = 32 << 20;

/// Fills that gave up, kept for `node show`; the oldest are dropped first.
pub const FAILURES_KEPT_MAX: usize = 256;

// ---- Memory of a node beside the budget ----

/// Memory a node needs besides the extents of its budget: code, stacks, connection buffers,
/// manifests and the store's own entries. Subtracted from a memory cgroup's limit.
pub const NODE_OVERHEAD_BYTES: u64 = 112 << 20;

/// Memory of a block of rows that are made although the budget has no room for it, one at a time.
/// Part of [`NODE_OVERHEAD_BYTES`].
pub const MAKE_BYTES_FREE: u64 = 32 << 20;

/// Memory that callers can hold before a node knows them: control connections, large answers, and
/// handshakes of the data plane. Part of [`NODE_OVERHEAD_BYTES`].
const STRANGERS_BYTES_MAX: usize = 24 << 20;

// The relations that the numbers above must keep.
const _: () = {
    assert!((ADMIT_BYTES_MAX - VARIABLES_BYTES_MAX) as usize == 4 + URI_BYTES_MAX);
    assert!(RING_MEMBERS_MAX <= 1 << 16);
    assert!(SAMPLE_BYTES_MAX <= SHARD_BYTES_MAX);
    assert!(HOST_NODE_TIMEOUT.as_secs() > DRAIN_TIMEOUT.as_secs());
    assert!(CANCEL_CHECK_INTERVAL.as_millis() < OWNER_SILENT_TIMEOUT.as_millis());
    assert!(CONNECT_TIMEOUT.as_millis() < OWNER_SILENT_TIMEOUT.as_millis());
    assert!(CLIENT_NAME_BYTES_MAX + 256 < PRE_AUTH_BYTES_MAX);
    assert!((PAGE_ENTRIES_MAX as usize) * 1_024 <= CONTROL_MESSAGE_BYTES_MAX);
    assert!(MANIFEST_CHUNK_BYTES < CONTROL_MESSAGE_BYTES_MAX);
    // A handshake of the data plane has a thread with 64 KiB of touched stack.
    assert!(
        CONTROL_BYTES_MAX
            + LARGE_ANSWER_UNITS_MAX * 2 * MANIFEST_CHUNK_BYTES
            + HANDSHAKES_MAX * ((64 << 10) + PRE_AUTH_BYTES_MAX as usize)
            <= STRANGERS_BYTES_MAX
    );
    assert!(CONTROL_REQUEST_TIMEOUT.as_secs() > OPEN_DATASET_TIMEOUT.as_secs());
    assert!(RING_REFRESH_INTERVAL.as_secs() < CONTROL_IDLE_TIMEOUT.as_secs());
    assert!(BLOB_PIECE_BYTES < CONTROL_MESSAGE_BYTES_MAX);
    assert!(2 * ASKED_BY_BYTES_MAX <= RECORD_WORDS_BYTES_MAX);
    assert!(2 * URI_BYTES_MAX + 64 <= RECORD_DATASETS_BYTES_MAX);
    // A whole view is one message: the record, and announcements with about 100 bytes around each.
    assert!(
        RECORD_BYTES_MAX + ANNOUNCEMENTS_MAX * (ANNOUNCEMENT_BYTES_MAX + 128)
            < CONTROL_MESSAGE_BYTES_MAX
    );
    assert!(LAST_USES_SNAPSHOTS_MAX * (32 + 2) <= CONTROL_REQUEST_BYTES_MAX);
    assert!(LAST_USES_ALL_TIMEOUT.as_millis() < LAST_USES_INTERVAL.as_millis());
    assert!(PREFETCH_DEPTH_DEFAULT <= PREFETCH_DEPTH_MAX);
    assert!(2 * KEEPALIVE_INTERVAL.as_millis() < OWNER_SILENT_TIMEOUT.as_millis());
    // The pauses of five shards of 1 GiB (four pulls and a replica) must fit the fill deadline.
    assert!(
        ((PULLS_IN_FLIGHT_MAX + 1) * ((1 << 30) / YIELD_PIECE_BYTES as usize)) as u128
            * YIELD_REST_MAX.as_millis()
            < FILL_DEADLINE.as_millis()
    );
    assert!(SENDFILE_ROW_BYTES_MIN <= STAGING_BYTES_MIN as u64);
    assert!(
        (STRANGERS_BYTES_MAX + RANGE_STAGING_BYTES + STAGING_BYTES_TOTAL + REQUEST_BYTES_TOTAL)
            as u64
            + OPENINGS_MAX as u64 * MANIFEST_BYTES_FREE
            + MAKE_BYTES_FREE
            < NODE_OVERHEAD_BYTES
    );
};
