//! Every limit, each with its reason.
//!
//! A number that bounds memory, a queue, a count or a wait across modules stands here. So a reader
//! can sum up the most memory a process can be made to hold. A limit that one file alone uses may
//! stand in that file. The limits of clients are in `client`, those of the control plane in
//! `control`, those of datasets in `dataset`. The durations that membership waits by are `Timing`
//! of larder-membership.

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

/// Most bytes of an error's hint on the wire: a command with two URIs in it. Longer ones are cut.
pub const ERROR_HINT_BYTES_MAX: u32 = 2 * KIB;

/// Most bytes of the name a client gives itself in HELLO.
pub const CLIENT_NAME_BYTES_MAX: u32 = 256;

/// Most bytes of a member's id: a host or pod name.
pub const MEMBER_ID_BYTES_MAX: u32 = 64;

/// Most bytes of a host name, as in the domain name system.
pub const HOST_BYTES_MAX: usize = 255;

/// Most bytes of a zone's name: the longest of the large clouds have about 30.
pub const ZONE_BYTES_MAX: usize = 64;

/// Most bytes of a control address: `http://`, a host name, a colon and a port.
pub const CONTROL_ADDRESS_BYTES_MAX: u32 = 272;

// ---- Connections, before and after HELLO ----

/// Time from accept to a valid HELLO. A live client sends it in its first packet. A client that has
/// not by then holds a connection slot for nothing.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes a node reads and buffers from a connection before HELLO identifies the client.
pub const PRE_AUTH_BYTES_MAX: u32 = 4 * KIB;

/// Data connections of one node. Each costs a thread (64 KiB of touched stack) and its buffers; 512
/// loader processes with a couple each fit.
pub const DATA_CONNECTIONS_MAX: usize = 2_048;

/// Connections to the unix socket of one node: every loader process of a large host.
pub const SOCKET_CONNECTIONS_MAX: usize = 4_096;

/// Data connections that have not sent their HELLO. They take a socket and an entry each, and are
/// watched by one thread. Beyond it, the address with the most of them loses its oldest.
pub const DATA_SILENT_MAX: usize = 2_048;

/// Descriptors that data connections leave free, for control connections and the node's own files.
/// A quarter of all, if that is less.
pub const DESCRIPTORS_KEPT_MAX: u64 = CONTROL_CONNECTIONS_MAX as u64 + 128;

/// Connections in their handshake at once, with a thread each; the rest wait.
pub const HANDSHAKES_MAX: usize = 64;

/// Gathers outstanding on one connection. Two gain 23 % over one, more gain only latency; four
/// leave room for a prefetcher that overlaps batches.
pub const GATHERS_OUTSTANDING_MAX: u32 = 4;

/// Time after which a silent data connection is closed; the client opens another when it needs one.
/// As long as the longest validation or checkpoint, because an open connection keeps the shards of
/// its job.
pub const DATA_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// How often the kernel probes the other host of a silent data connection. It ends the connection
/// after three probes without an answer: a dead host holds no shards.
pub const DATA_PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Datasets that one connection counts as using, the latest ones it asked for: the training and
/// validation sets of a job, with room to spare.
pub const CONNECTION_DATASETS_MAX: usize = 16;

/// Time after which a peer that takes no byte of a reply counts as gone or stopped. Its connection
/// is closed, so that it does not hold extents and a thread.
pub const SEND_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Approximate bytes of a data connection that wait in the kernel until the peer has room for them.
/// A stopped reader leaves no more behind, where it could be 4 MiB. Bytes on the link do not count,
/// so long paths are still filled; on loopback 128 KiB is as fast as no limit.
pub const SEND_WAITING_BYTES: u32 = 128 << 10;

/// The same for a connection to the unix socket, which carries short frames: half of the usual
/// size.
pub const SOCKET_SEND_BYTES: usize = 64 << 10;

/// Least rate of a peer that is sent to, in bytes a second. A slower peer is soon treated like one
/// that takes nothing; otherwise it could hold memory that others wait for. Below the rate of any
/// link usable for training: a frame of 4 MiB takes 16 seconds.
pub const SEND_BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// Time in which a node finishes its gathers after SIGTERM; the rest is cut off. Below the 30
/// seconds that orchestrators give before they kill.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a node that works on a request tells the client so. Also how often it checks whether a
/// client that takes nothing still lives. A fraction of [`OWNER_SILENT_TIMEOUT`], after which a
/// client would turn to another node.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(500);

/// Bytes of a request that every connection may hold; 2,000 rows fit. Larger requests share
/// [`REQUEST_BYTES_TOTAL`].
pub const REQUEST_BYTES_FREE: usize = 16 << 10;

/// Bytes of all requests together that are larger than [`REQUEST_BYTES_FREE`]. They count as
/// received and as decoded while they are read, and as decoded until they are answered. Part of
/// [`NODE_OVERHEAD_BYTES`]: 15 of the largest, or 250 of 4,096 rows.
pub const REQUEST_BYTES_TOTAL: usize = 8 << 20;

/// Time that a large request waits for its share of [`REQUEST_BYTES_TOTAL`].
pub const REQUEST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Rows of a run that is copied before it is sent: its tables stay at 64 KiB.
pub const STAGED_ROWS_MAX: usize = 8_192;

/// Staging of all connections together: part of [`NODE_OVERHEAD_BYTES`]. A connection that finds it
/// used up works with [`STAGING_BYTES_MIN`].
pub const STAGING_BYTES_TOTAL: usize = 8 << 20;

/// The staging piece every busy connection gets: the largest staged row fits.
pub const STAGING_BYTES_MIN: usize = 16 << 10;

/// Time a connection keeps its staging piece after a gather, because the next gather usually comes
/// soon.
pub const STAGING_IDLE: Duration = Duration::from_secs(1);

/// Bytes of a staging piece, into which small rows are gathered before a send. Fits a core's L2
/// with room for the rows it copies from.
pub const STAGING_BYTES: usize = 256 << 10;

/// Row size from which a node sends straight from the extent (`sendfile`). For smaller rows,
/// copying into a staging piece costs less than a system call each.
pub const SENDFILE_ROW_BYTES_MIN: u64 = 16 << 10;

/// Time that a node which stops when unused waits for its first user, which may still be starting.
pub const FIRST_USE_TIMEOUT: Duration = Duration::from_secs(30);

// ---- Ring ----

/// Most members of a ring: 16 bits number them with room to spare, and a walk's set of visited
/// members is 128 bytes of stack.
pub const RING_MEMBERS_MAX: usize = 1_024;

/// Points on the ring of a member of ordinary weight: the fullest of 16 members then holds 1.11
/// times the mean on average.
pub const RING_POINTS_PER_MEMBER: u32 = 256;

/// Most weight of a member. Weights are relative. A memory budget in MiB, the largest number in
/// use, reaches this at 16 TiB.
pub const RING_WEIGHT_MAX: u32 = 1 << 24;

/// Most copies of a shard: a set of owners then fits in 16 bytes.
pub const REPLICAS_MAX: usize = 8;

/// Ranks of a job that divides batches by locality: 16 bits number their hosts.
pub const LOCALITY_RANKS_MAX: usize = 65_535;

/// Largest table of exceptions to the ring, in bytes: every shard of the largest dataset, each with
/// the most copies, and the fan-out over them. A receiver first bounds it by the snapshot's number
/// of shards: see `Exceptions::bytes_max`.
pub const EXCEPTIONS_BYTES_MAX: u64 = 512 << 20;

/// Bytes of one piece of such a table on the control plane: the same as for a manifest.
pub const EXCEPTIONS_CHUNK_BYTES: usize = MANIFEST_CHUNK_BYTES;

// ---- The coordinator ----

/// Most bytes of the record. 1,024 members with names of ordinary length take about 100 KiB, and
/// etcd takes 1.5 MB in one request.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// Most bytes of a blob (the exceptions of a placement, the moves of a plan): half a million moves.
pub const BLOB_BYTES_MAX: usize = 16 << 20;

/// Most bytes of an announcement, which every node reads from every other.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 1 << 10;

/// Blobs that one record may need: those of the committed, the previous and the next placement, and
/// plans, several times over. All their names fit in one etcd transaction, which takes 128
/// operations.
pub const RECORD_BLOBS_MAX: usize = 32;

/// Blobs that the coordinator keeps, including those that no record names. A writer that finds no
/// room sweeps first.
pub const BLOBS_KEPT_MAX: usize = 64;

/// Bytes of one piece of a blob: below the 1.5 MB of an etcd request, with room for its envelope.
pub const BLOB_PIECE_BYTES: usize = 1 << 20;

/// Blobs under way at once, to and from one coordinator: each may be held in memory whole.
pub const BLOB_TRANSFERS_MAX: usize = 4;

/// Announcements at once: as many as a ring has members, and as many again from outside of it.
pub const ANNOUNCEMENTS_MAX: usize = 2 * RING_MEMBERS_MAX;

/// Shortest lifetime of an announcement: etcd counts in seconds, and rounds up.
pub const ANNOUNCEMENT_TTL_MIN: Duration = Duration::from_secs(1);

/// Longest lifetime of an announcement.
pub const ANNOUNCEMENT_TTL_MAX: Duration = Duration::from_secs(600);

/// Watches of one embedded coordinator: one for each node, and as many again that are being
/// replaced after a break.
pub const WATCHES_MAX: usize = 2 * RING_MEMBERS_MAX;

/// Timeout of a call to the coordinator, after which its outcome is unknown.
pub const COORDINATOR_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a blob to or from the coordinator: 16 MiB at 0.5 MiB/s.
pub const BLOB_TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);

/// First wait before a silent coordinator is tried again; doubled up to [`COORDINATOR_RETRY_MAX`],
/// with jitter.
pub const COORDINATOR_RETRY_MIN: Duration = Duration::from_millis(100);

/// Longest wait before a coordinator is tried again.
pub const COORDINATOR_RETRY_MAX: Duration = Duration::from_secs(2);

/// How often leases are checked. A check that comes later than this means that the process stood
/// still. Its leases are then lengthened by the delay, because no node could renew them.
pub const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Most bytes of the token that lets a node into a cluster.
pub const JOIN_TOKEN_BYTES_MAX: usize = 256;

/// Fewest bytes of that token: shorter ones can be guessed.
pub const JOIN_TOKEN_BYTES_MIN: usize = 16;

// ---- The record of a cluster (for the durations of membership see `Timing`) ----

/// Datasets that the record names: as many as one node opens.
pub const RECORD_DATASETS_MAX: usize = OPEN_DATASETS_MAX;

/// Bytes of the record that its datasets may take: half of it, so that members and changes always
/// have room.
pub const RECORD_DATASETS_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;

/// Changes that the record remembers, for `ring history`; the oldest are forgotten first.
pub const RECORD_HISTORY_MAX: usize = 64;

/// Bytes of the words of one change in the history.
pub const RECORD_WORDS_BYTES_MAX: usize = 256;

/// How often the grace of a flapping member is doubled at most: up to 16 minutes.
pub const FLAP_DOUBLINGS_MAX: u32 = 5;

/// Share of the ring's weight, in percent, whose loss stops removals. A greater loss at once looks
/// like a fault of the observer or of the network. Nothing is then removed without an operator's
/// command.
pub const BRAKE_PERCENT: u64 = 25;

/// Time that a plan waits for datasets to be opened; it is then made without the missing ones.
/// Enough for a thousand manifests, and a fraction of the time that the death of a node may wait.
pub const PLAN_OPENINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// Datasets being opened for plans at once: half of all, so that clients open theirs meanwhile.
pub const PLAN_OPENINGS_MAX: usize = OPENINGS_MAX / 2;

/// Timeout of one of these openings: a large manifest from a slow origin takes less.
pub const PLAN_OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// Time before a failed opening is tried again for a plan.
pub const PLAN_OPENING_RETRY: Duration = Duration::from_secs(180);

/// Operator commands that wait in one node's agent.
pub const COMMANDS_QUEUED_MAX: usize = 16;

/// Bytes of the operator's name in a request for a change; the history keeps it beside the change.
pub const ASKED_BY_BYTES_MAX: usize = 128;

/// Most bytes of a plan as an operator keeps it: two blobs, and their lengths.
pub const PLANNED_BYTES_MAX: usize = 2 * BLOB_BYTES_MAX + 64;

/// Plans that one node makes, sends or takes for operators at a time: each may be held in memory
/// whole.
pub const PLANS_AT_ONCE_MAX: usize = 2;

/// Plans at a time for users without the right to change the cluster, to preview moves. Counted
/// apart, so that they never keep operators from planning.
pub const PLANS_OF_ANYBODY_MAX: usize = 1;

/// Timeout of an operator's call: longer than an agent tries to do a command.
pub const ADMIN_CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// Shards one node pulls at a time for a change. Each is already many parts in flight.
pub const PULLS_IN_FLIGHT_MAX: usize = 4;

/// How often the target of a change asks the sources which of its shards are needed soonest.
pub const LAST_USES_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of a source's answer about last reads; its shards are then moved last.
pub const LAST_USES_TIMEOUT: Duration = Duration::from_secs(10);

/// Shards in one message about their last uses.
pub const LAST_USES_PIECE: usize = 8_192;

/// Longest message about last uses: ids of 16 bytes, times of at most ten each, and the framing.
pub const LAST_USES_PIECE_BYTES_MAX: usize = LAST_USES_PIECE * 26 + 256;

/// Timeout of all sources together; the target asks nothing anew meanwhile.
pub const LAST_USES_ALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Snapshots that one question about last uses may name, each with 32 bytes and 2 of framing. Twice
/// as many would exceed [`CONTROL_REQUEST_BYTES_MAX`].
pub const LAST_USES_SNAPSHOTS_MAX: usize = 1_024;

/// Such questions that a node answers at once; the others wait, at most [`LAST_USES_TIMEOUT`].
pub const LAST_USES_ANSWERED_MAX: usize = 4;

/// Sources that a node asks about last uses at once.
pub const LAST_USES_ASKED_MAX: usize = 8;

// ---- Fills ----

/// Bytes of one part of a fill. Large enough that a GET's first-byte latency is a small share of
/// it. Small enough that a reader of a cold shard soon gets its rows.
pub const FILL_PART_BYTES: u64 = 8 << 20;

/// GETs of parts in flight at once, over all fills. A single GET yields about 50-100 MB/s, so 32
/// can fill 25 Gbit/s.
pub const FILL_GETS_MAX: usize = 32;

/// Fills whose bytes no gather has reported. Few fills end without a gather that waits for them.
pub const FILLS_UNREPORTED_MAX: usize = 4096;

/// Shards that wait for a fill, over all priorities. Each is a small entry. A request that finds
/// the queue full gets "resource exhausted" and reads by range or elsewhere.
pub const FILL_QUEUE_MAX: usize = 4_096;

/// Read plans of one process: loaders that live at once, and each dataset of a mixture.
pub const READ_PLANS_OF_CLIENT_MAX: usize = 16;

/// Read plans that a node holds, those that other nodes passed on included: 1,024 loaders in jobs
/// of four datasets.
pub const READ_PLANS_MAX: usize = 4_096;

/// Memory for all of them. Plans with many stretches of shards take more than others.
pub const READ_PLANS_BYTES_MAX: usize = 1 << 20;

/// Stretches of consecutive shards of a read plan, so that a request of one plan fits its limit.
pub const READ_PLAN_RUNS_MAX: usize = 6_000;

/// Jobs of read plans that a node lists.
pub const READ_JOBS_SHOWN_MAX: usize = 256;

/// Bytes of the name of a job.
pub const JOB_NAME_BYTES_MAX: usize = 64;

/// How often a client tells its plans, and a node passes them on.
pub const READ_PLAN_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which a plan ends that was not told again.
pub const READ_PLAN_LIFETIME: Duration = Duration::from_secs(5);

/// Uses of shards that a node looks ahead, in 16 MiB. Later ones count as later than all.
pub const FORESEEN_USES_MAX: usize = 1_000_000;

/// Shards that a node fetches ahead at once. Fewer than its fills, so that readers that wait find a
/// worker.
pub const PREFETCHES_MAX: usize = FILLS_IN_FLIGHT_MAX / 2;

/// Shards being filled at once. The budget admits their memory; this limit keeps the workers from
/// being spread thinly, which would lengthen each fill.
pub const FILLS_IN_FLIGHT_MAX: usize = 16;

/// Fills that have their memory taken in huge pages at once. That is work for a core (0.1 s per
/// GiB), and a fill reads nothing before it has its memory. Side by side they would all be ready
/// late, and the origin idle until then.
pub const FILLS_TAKING_MEMORY_MAX: usize = 2;

/// Parts of fills hashed row by row at once after they are complete, because their rows overlap
/// much. Each is work for a core, for seconds at worst.
pub const FILL_PARTS_HASHED_MAX: usize = 4;

/// Reads by range (of rows that will not be kept) in flight at once on a node, and of one request.
pub const RANGE_READS_MAX: usize = 64;

/// Tries of one part before its fill gives up. With the waits below about 15 seconds, which
/// outlasts the usual "slow down" of an object store.
pub const FILL_TRIES_MAX: u32 = 8;

/// First wait between two tries; doubled each time, with jitter.
pub const RETRY_WAIT_MIN: Duration = Duration::from_millis(50);

/// Longest wait between two tries.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Wait before an answer that would end a shard (denied, changed, gone) is confirmed by a second
/// request. Longer than a gateway's short failures, short beside a fill.
pub const ORIGIN_CONFIRM_WAIT: Duration = Duration::from_millis(200);

/// Share of requests to the origin that may be retries, in percent: retries that add load to an
/// overloaded origin keep it overloaded.
pub const RETRY_BUDGET_PERCENT: u32 = 20;

/// Retries that are always allowed, so that a node with little traffic can still retry.
pub const RETRY_BUDGET_RESERVE: u32 = 32;

/// Timeout from the sending of a GET to its first byte.
pub const ORIGIN_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout between two pieces of a body. A retry continues a stalled read elsewhere.
pub const ORIGIN_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout from the beginning of a fill to its seal: a gibibyte at 2 MB/s. A longer fill is stuck
/// in a way that the timeouts above do not see.
pub const FILL_DEADLINE: Duration = Duration::from_secs(600);

/// Staging memory for rows that are read by range, over all connections of a node. Part of the
/// node's overhead. At 4 MiB a frame it lets eight be under way. A row longer than all of it goes
/// in pieces.
pub const RANGE_STAGING_BYTES: usize = 32 << 20;

/// Fills that gave up, kept for `node show`; the oldest are dropped first.
pub const FAILURES_KEPT_MAX: usize = 256;

/// Time before a shard is tried again after its fill gave up. A job that asks for it in a loop gets
/// the reason at once, and the origin is spared.
pub const FAILURE_HOLD: Duration = Duration::from_secs(5);

// ---- Memory of a node beside the budget ----

/// Memory a node needs besides the extents of its budget: code, stacks, connection buffers,
/// manifests and the store's own entries. Subtracted from a memory cgroup's limit.
pub const NODE_OVERHEAD_BYTES: u64 = 112 << 20;

/// Memory of a block of rows that are made although the budget has no room for it, one at a time.
/// Part of [`NODE_OVERHEAD_BYTES`].
pub const MAKE_BYTES_FREE: u64 = 32 << 20;

/// Part of the budget that one client may hold in leases, in percent.
pub const LEASE_QUOTA_PERCENT: u32 = 90;

/// Time in which a client drops unused maps after it was asked to.
pub const RECALL_TIMEOUT: Duration = Duration::from_secs(2);

/// RECALL frames that wait for one client; beyond it the client is asked again later.
pub const RECALLS_QUEUED_MAX: usize = 256;

/// How often freed extents are checked until the kernel confirms that no process maps them.
pub const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

// The relations that the numbers above must keep.
const _: () = {
    assert!(ADMIT_BYTES_MAX as usize == URI_BYTES_MAX);
    assert!(RING_MEMBERS_MAX <= 1 << 16);
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
