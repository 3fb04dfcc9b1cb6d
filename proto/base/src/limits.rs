//! Every limit, each with its reason.
//!
//! A number that bounds memory, a queue, a count or a wait stands here and nowhere else, so that a reader can sum up the
//! most a process holds. The limits of clients are in `client`, those of datasets in `dataset`. The durations that
//! membership waits by are `Timing` of larder-membership.

mod client;
mod dataset;

use std::time::Duration;

pub use client::*;
pub use dataset::*;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

// ---- Frames of the data plane ----

/// Most rows of one gather. Above any batch seen in practice; at 8 bytes a row the request stays at
/// half a mebibyte, so that the largest frame a peer can announce costs little.
pub const GATHER_ROWS_MAX: u32 = 65_536;

/// Most tensors of one gather: as many as a shard may have regions.
pub const GATHER_TENSORS_MAX: u32 = 4_096;

/// Most payload of one DATA frame, unless a single row is larger. Large enough that the header and
/// tables are noise, small enough that a receiver's first verified row comes early and that an
/// error can be told at the next frame border.
pub const DATA_PAYLOAD_BYTES_MAX: u32 = 4 * MIB;

/// Most bytes of one row: what the 32-bit length of a ragged row can say.
pub const ROW_BYTES_MAX: u64 = u32::MAX as u64;

/// Most bytes of an error message on the wire. A sentence with a URI in it; longer ones are cut.
pub const ERROR_MESSAGE_BYTES_MAX: u32 = 2 * KIB;

/// Most bytes of the name a client gives itself in HELLO.
pub const CLIENT_NAME_BYTES_MAX: u32 = 256;

/// Most bytes of a member's id: a host or pod name.
pub const MEMBER_ID_BYTES_MAX: u32 = 64;

/// Most bytes of a host name, as in the domain name system.
pub const HOST_BYTES_MAX: usize = 255;

/// Most bytes of a zone's name: the longest of the large clouds have some 30.
pub const ZONE_BYTES_MAX: usize = 64;

/// Most bytes of a control address: `http://`, a host name, a colon and a port.
pub const CONTROL_ADDRESS_BYTES_MAX: u32 = 272;

// ---- Connections, before and after HELLO ----

/// From accept to a valid HELLO. A live client sends it in its first packet; who has not by then
/// holds a connection slot for nothing.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes a node reads from, and buffers for, a connection that has not said who it is.
pub const PRE_AUTH_BYTES_MAX: u32 = 4 * KIB;

/// Data connections of one node. Each costs a thread (64 KiB of touched stack) and its buffers; 512
/// loader processes with a couple each fit.
pub const DATA_CONNECTIONS_MAX: usize = 2_048;

/// Connections to the unix socket of one node: every loader process of a large host.
pub const SOCKET_CONNECTIONS_MAX: usize = 4_096;

/// Connections in their handshake at once; the rest wait in the kernel's accept queue.
pub const HANDSHAKES_MAX: usize = 64;

/// Gathers outstanding on one connection. Two gain 23 % over one, more gain only latency; four
/// leave room for a prefetcher that overlaps batches.
pub const GATHERS_OUTSTANDING_MAX: u32 = 4;

/// A data connection that says nothing for so long is closed; the client opens another when it
/// needs one. As long as the longest validation or checkpoint, because while it is open the shards of
/// its job stay.
pub const DATA_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// On a data connection that says nothing, the kernel asks the other host for a sign of life this
/// often, and ends it after three that were not answered: a host that is gone holds no shards.
pub const DATA_PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Datasets that one connection counts as using, the latest it asked for: training and validation
/// sets of a job, with room to spare.
pub const CONNECTION_DATASETS_MAX: usize = 16;

/// A peer that takes no byte of a reply for so long is gone or stopped; its connection is closed so
/// that it does not hold extents and a thread.
pub const SEND_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a data connection that wait in the kernel until the peer has room for them, about: a reader that
/// stopped leaves no more behind, where it could be 4 MiB. What is on its way is not limited by this, so that
/// long paths are filled all the same; on loopback 128 KiB is no slower than no limit.
pub const SEND_WAITING_BYTES: u32 = 128 << 10;

/// The same for a connection to the unix socket, which carries short frames: half of what is usual.
pub const SOCKET_SEND_BYTES: usize = 64 << 10;

/// Who takes fewer bytes a second than these while it is sent to is soon treated like one who takes none,
/// or a byte now and then would hold memory that others wait for. Below what any link carries over which
/// anybody would train, and a frame of 4 MiB takes 16 seconds.
pub const SEND_BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// After SIGTERM a node finishes the gathers it has; what is not done by then is cut off. Below the
/// 30 seconds that orchestrators give before they kill.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// A node that works on a request says so this often; it also looks this often whether a client
/// that takes nothing still lives. A fraction of [`OWNER_SILENT_TIMEOUT`], after which a client
/// would turn to another node.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(500);

/// Bytes of a request that every connection may hold; 2,000 rows fit. Larger ones share
/// [`REQUEST_BYTES_TOTAL`].
pub const REQUEST_BYTES_FREE: usize = 16 << 10;

/// Bytes of all requests together that are larger than [`REQUEST_BYTES_FREE`]: as received and as decoded while they
/// are read, and as decoded until they are answered. Part of [`NODE_OVERHEAD_BYTES`], 30 of the largest, and 500 of
/// 4,096 rows.
pub const REQUEST_BYTES_TOTAL: usize = 16 << 20;

/// A large request waits so long for its share of [`REQUEST_BYTES_TOTAL`].
pub const REQUEST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Rows of a run that is copied before it is sent: its tables stay at 64 KiB.
pub const STAGED_ROWS_MAX: usize = 8_192;

/// Staging of all connections together: part of [`NODE_OVERHEAD_BYTES`]. Who comes when it is used
/// up works with [`STAGING_BYTES_MIN`].
pub const STAGING_BYTES_TOTAL: usize = 8 << 20;

/// The staging piece every busy connection gets: the largest row that is staged fits.
pub const STAGING_BYTES_MIN: usize = 16 << 10;

/// A connection keeps its staging piece so long after a gather, as the next one usually comes soon.
pub const STAGING_IDLE: Duration = Duration::from_secs(1);

/// Staging piece into which small rows are gathered before a send: fits a core's L2 with room for
/// the rows it copies from.
pub const STAGING_BYTES: usize = 256 << 10;

/// From this row size on a node sends straight from the extent (`sendfile`); below it, copying rows
/// into a staging piece costs less than a system call each.
pub const SENDFILE_ROW_BYTES_MIN: u64 = 16 << 10;

/// A node that stops when it is unused waits so long for its first user, who may still be starting.
pub const FIRST_USE_TIMEOUT: Duration = Duration::from_secs(30);

// ---- Control plane ----

/// Most bytes of one control message, either way. Holds a full ring or page of shards.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of what clients ask a node: an address or two. Bounds what a connection may have a node keep
/// that sends its requests but for the last byte: 64 of them at once.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Most bytes of what operators ask a node, but for plans: the names of all members, and as much again.
pub const ADMIN_REQUEST_BYTES_MAX: usize = 2 * RING_MEMBERS_MAX * MEMBER_ID_BYTES_MAX as usize;

/// Most bytes of one message of theirs: a piece of a plan.
pub const ADMIN_MESSAGE_BYTES_MAX: usize = BLOB_PIECE_BYTES + (64 << 10);

/// Bytes of one piece of a manifest on the control plane: 256 KiB is where a gRPC stream is fastest.
pub const MANIFEST_CHUNK_BYTES: usize = 256 << 10;

/// Things that were left out of a dataset that are named to whoever opened it: enough to see what is wrong,
/// few enough for one line. `larder dataset index` lists all.
pub const LEFT_OUT_TOLD_MAX: usize = 4;

/// Most bytes of what is said of one of them: a key, the name of a tensor and a reason; longer ones are cut.
pub const LEFT_OUT_BYTES_MAX: usize = 512;

/// The same for the one address in an ADMIT.
pub const ADMIT_BYTES_MAX: u32 = 4 << 10;

/// Prefixes that a node takes from its owner's processes: each is looked at when a dataset is opened.
pub const PREFIXES_ADMITTED_MAX: usize = 1_024;

/// Most entries of one page of a listing: at under 256 bytes each a page stays below 1 MiB.
pub const PAGE_ENTRIES_MAX: u32 = 4_096;

/// Entries of a page when the caller does not say.
pub const PAGE_ENTRIES_DEFAULT: u32 = 1_000;

/// Control connections of one node, metrics and health included.
pub const CONTROL_CONNECTIONS_MAX: usize = 1_024;

/// Requests in progress on one control connection; HTTP/2 refuses more streams.
pub const CONTROL_STREAMS_MAX: u32 = 64;

/// A control connection on which nothing was asked for so long is closed, even if its client answers PINGs.
/// Clients ask for the ring far more often, and connect again when they need to.
pub const CONTROL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// From the head of a control request to that of its answer: longer than opening a dataset may take. What has
/// not come whole by then does not come.
pub const CONTROL_REQUEST_TIMEOUT: Duration = Duration::from_secs(660);

/// For a control call that only asks (describe, ring, list).
pub const CONTROL_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// For opening a dataset: the node may have to index the headers of many objects first.
pub const OPEN_DATASET_TIMEOUT: Duration = Duration::from_secs(600);

/// Who opens a dataset for so long is told what it may wait for.
pub const OPENING_TOLD_AFTER: Duration = Duration::from_secs(5);

/// For a node to open what others have open, before rows are asked of it: as long as it reads a large
/// manifest. A node that has to index first, or has many to open, is passed over meanwhile.
pub const OPEN_NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// Walks over all shards at once, for those who list them; each has a thread and the cache's lock in turn.
pub const LISTINGS_MAX: usize = 4;

/// Datasets being opened at once, as one may have to be indexed; each has a thread. The rest wait.
pub const OPENINGS_MAX: usize = 16;

/// Bytes of a manifest for which nothing of the budget is taken while it is read: some 4,000 shards. Of as
/// many as are opened at once 4 MiB, part of [`NODE_OVERHEAD_BYTES`]. A larger one is on the heap until it lies
/// in an extent, and takes as much of the budget meanwhile.
pub const MANIFEST_BYTES_FREE: u64 = 256 << 10;

/// Prefixes being indexed at once because somebody opened them: each has its listing and the headers of its
/// files on the heap, several times what its manifest takes.
pub const INDEXINGS_MAX: usize = 2;

/// Datasets open on one node. Each keeps its manifest resident.
pub const OPEN_DATASETS_MAX: usize = 1_024;

/// A ticket no connection has used for so long is forgotten; the client opens the dataset again.
pub const TICKET_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

// ---- Ring ----

/// Most members of a ring: 16 bits name one with room to spare, and a walk's set of visited members
/// is 128 bytes of stack.
pub const RING_MEMBERS_MAX: usize = 1_024;

/// Points on the ring of a member of ordinary weight: the fullest of 16 members then holds 1.11
/// times the mean on average.
pub const RING_POINTS_PER_MEMBER: u32 = 256;

/// Most weight of a member. Weights are relative; a memory budget in MiB, the largest number in use,
/// reaches this at 16 TiB.
pub const RING_WEIGHT_MAX: u32 = 1 << 24;

/// Copies of a shard, at most: a set of owners then fits in 16 bytes.
pub const REPLICAS_MAX: usize = 8;

/// Ranks of a job whose batches are divided by where rows are held: 16 bits number their hosts.
pub const LOCALITY_RANKS_MAX: usize = 65_535;

/// Largest table of exceptions to the ring, in bytes: every shard of the largest dataset, each with
/// the most copies, and the fan-out over them. A receiver bounds it first by the shards that the
/// snapshot has: see `Exceptions::bytes_max`.
pub const EXCEPTIONS_BYTES_MAX: u64 = 512 << 20;

/// Bytes of one piece of such a table on the control plane: as those of a manifest.
pub const EXCEPTIONS_CHUNK_BYTES: usize = MANIFEST_CHUNK_BYTES;

// ---- The coordinator ----

/// Most bytes of the record: 1,024 members with names of ordinary length take about 100 KiB, and
/// etcd takes 1.5 MB in one request.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// Most bytes of a blob (the exceptions of a placement, the moves of a plan): half a million moves.
pub const BLOB_BYTES_MAX: usize = 16 << 20;

/// Most bytes of an announcement, which every node reads from every other.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 1 << 10;

/// Blobs that one record may need: those of the committed, the previous and the next placement, and
/// plans, several times over. All its names fit in one etcd transaction, which takes 128 operations.
pub const RECORD_BLOBS_MAX: usize = 32;

/// Blobs that the coordinator keeps, those that no record names among them. Who finds no room sweeps.
pub const BLOBS_KEPT_MAX: usize = 64;

/// Bytes of one piece of a blob: below the 1.5 MB of an etcd request, with room for its envelope.
pub const BLOB_PIECE_BYTES: usize = 1 << 20;

/// Blobs under way at once, to and from one coordinator: each may be held in memory whole.
pub const BLOB_TRANSFERS_MAX: usize = 4;

/// Announcements at once: as many as a ring has members, and as many again that are not in it.
pub const ANNOUNCEMENTS_MAX: usize = 2 * RING_MEMBERS_MAX;

/// Shortest time an announcement may last: etcd counts in seconds, and rounds up.
pub const ANNOUNCEMENT_TTL_MIN: Duration = Duration::from_secs(1);

/// Longest time an announcement may last.
pub const ANNOUNCEMENT_TTL_MAX: Duration = Duration::from_secs(600);

/// Watches of one embedded coordinator: one for each node, and as many again that are being
/// replaced after a break.
pub const WATCHES_MAX: usize = 2 * RING_MEMBERS_MAX;

/// A call to the coordinator that is not answered within this time has no known outcome.
pub const COORDINATOR_CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A blob to or from the coordinator takes at most so long: 16 MiB at 0.5 MiB/s.
pub const BLOB_TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);

/// A coordinator that does not answer is tried again after this, doubled up to
/// [`COORDINATOR_RETRY_MAX`], with jitter.
pub const COORDINATOR_RETRY_MIN: Duration = Duration::from_millis(100);

/// Longest wait before a coordinator is tried again.
pub const COORDINATOR_RETRY_MAX: Duration = Duration::from_secs(2);

/// How often leases are looked at. A look that comes late by more than this means that the process
/// stood still: its leases are lengthened by as much, because nobody could have renewed them.
pub const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Most bytes of the token that lets a node into a cluster.
pub const JOIN_TOKEN_BYTES_MAX: usize = 256;

/// Fewest bytes of it: shorter ones can be guessed.
pub const JOIN_TOKEN_BYTES_MIN: usize = 16;

// ---- The record of a cluster (the durations its agents wait by: `Timing` of larder-membership) ----

/// Datasets that the record names: as many as one node opens.
pub const RECORD_DATASETS_MAX: usize = OPEN_DATASETS_MAX;

/// Bytes of the record that its datasets may take: half of it, so that members and changes always have room.
pub const RECORD_DATASETS_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;

/// Changes that the record remembers, for `ring history`; the oldest are forgotten first.
pub const RECORD_HISTORY_MAX: usize = 64;

/// Bytes of the words of one change in the history.
pub const RECORD_WORDS_BYTES_MAX: usize = 256;

/// Most doublings: a grace of 16 minutes.
pub const FLAP_DOUBLINGS_MAX: u32 = 5;

/// More than this share of the ring's weight gone at once looks like a fault of the observer or of the
/// network: nothing is removed without an operator's word.
pub const BRAKE_PERCENT: u64 = 25;

/// A plan waits for datasets to be opened no longer than this, and is made without those that are not there by then:
/// time for a thousand manifests, and a fraction of what the death of a node may wait.
pub const PLAN_OPENINGS_TIMEOUT: Duration = Duration::from_secs(10);

/// Datasets being opened for plans at once: half of all, so that clients open theirs meanwhile.
pub const PLAN_OPENINGS_MAX: usize = OPENINGS_MAX / 2;

/// One of them that takes longer is given up: a large manifest from a slow origin takes less.
pub const PLAN_OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// What could not be opened is not tried again for a plan before this.
pub const PLAN_OPENING_RETRY: Duration = Duration::from_secs(180);

/// Operator commands that wait in one node's agent.
pub const COMMANDS_QUEUED_MAX: usize = 16;

/// Bytes of the name of who asks for a change; the history keeps it beside what was done.
pub const ASKED_BY_BYTES_MAX: usize = 128;

/// Most bytes of a plan as an operator keeps it: two blobs, and their lengths.
pub const PLANNED_BYTES_MAX: usize = 2 * BLOB_BYTES_MAX + 64;

/// Plans that one node makes, sends or takes for operators at a time: each may be held in memory whole.
pub const PLANS_AT_ONCE_MAX: usize = 2;

/// The same for who may not change the cluster and only wants to see what would move. Apart from those of
/// operators, whom nobody else is to keep from planning.
pub const PLANS_OF_ANYBODY_MAX: usize = 1;

/// An operator's call is answered within this: longer than an agent tries to do a command.
pub const ADMIN_CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// Shards one node pulls at a time for a change. Each is already many parts in flight.
pub const PULLS_IN_FLIGHT_MAX: usize = 4;

/// How often a node that is given shards asks who gives them which are needed soonest.
pub const LAST_USES_INTERVAL: Duration = Duration::from_secs(60);

/// A node that does not say within this when its shards were last read has its shards moved last.
pub const LAST_USES_TIMEOUT: Duration = Duration::from_secs(10);

/// Shards in one message about their last uses.
pub const LAST_USES_PIECE: usize = 8_192;

/// Longest message about last uses: ids of 16 bytes, times of at most ten each, and what frames them.
pub const LAST_USES_PIECE_BYTES_MAX: usize = LAST_USES_PIECE * 26 + 256;

/// All givers together are waited for so long; nothing is asked anew meanwhile.
pub const LAST_USES_ALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Snapshots that one question about last uses may name.
pub const LAST_USES_SNAPSHOTS_MAX: usize = 2_048;

/// Such questions that a node answers at once; the others wait, no longer than [`LAST_USES_TIMEOUT`].
pub const LAST_USES_ANSWERED_MAX: usize = 4;

/// Givers that a node asks about last uses at once.
pub const LAST_USES_ASKED_MAX: usize = 8;

// ---- Fills ----

/// Bytes of one part of a fill: large enough that a GET's first-byte latency is a small share of it,
/// small enough that a reader of a cold shard soon gets its rows.
pub const FILL_PART_BYTES: u64 = 8 << 20;

/// Workers that read parts from the origin, each with one GET in flight. A single GET brings
/// some 50-100 MB/s, so 32 can fill 25 Gbit/s.
pub const FILL_WORKERS: usize = 32;

/// Shards that wait for a fill, over all priorities. Each is a small entry; who finds it full gets
/// "resource exhausted" and reads by range or elsewhere.
pub const FILL_QUEUE_MAX: usize = 4_096;

/// Shards being filled at once. Their memory is admitted by the budget; this bounds how thinly the
/// workers are spread, and so how long one fill takes.
pub const FILLS_IN_FLIGHT_MAX: usize = 16;

/// Fills that have their memory taken in huge pages at once. That is work for a core (0.1 s per GiB),
/// and nothing is read for a fill before it has its memory: side by side they would all be ready late,
/// and the origin idle until then.
pub const FILLS_TAKING_MEMORY_MAX: usize = 2;

/// Parts of fills whose rows overlap so much that they are hashed one by one when the part is in, at once. Each is
/// work for a core, for seconds at worst.
pub const FILL_PARTS_HASHED_MAX: usize = 4;

/// Reads by range (rows that will not be kept) in flight at once, and waiting for their turn.
pub const RANGE_READS_MAX: usize = 64;

/// Tries of one part before its fill gives up. With the waits below about 15 seconds, which outlasts
/// the usual "slow down" of an object store.
pub const FILL_TRIES_MAX: u32 = 8;

/// First wait between two tries; doubled each time, with jitter.
pub const RETRY_WAIT_MIN: Duration = Duration::from_millis(50);

/// Longest wait between two tries.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Before an answer that would end a shard (denied, changed, gone) is asked for once more: longer
/// than the blink of a gateway, short beside what a fill takes.
pub const ORIGIN_CONFIRM_WAIT: Duration = Duration::from_millis(200);

/// Share of requests to the origin that may be retries, in percent: retries that add load to an
/// overloaded origin are what keeps it overloaded.
pub const RETRY_BUDGET_PERCENT: u32 = 20;

/// Retries that are always there, so that a node with little traffic can still retry.
pub const RETRY_BUDGET_RESERVE: u32 = 32;

/// From the sending of a GET to its first byte.
pub const ORIGIN_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two pieces of a body. A stalled read is taken up again elsewhere by a retry.
pub const ORIGIN_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// From the beginning of a fill to its seal. A gibibyte at 2 MB/s; what takes longer is stuck in a way
/// that the waits above don't see.
pub const FILL_DEADLINE: Duration = Duration::from_secs(600);

/// Staging memory for rows that are read by range, over all connections of a node. Part of the node's
/// overhead; at 4 MiB a frame it lets eight be under way. A row that is longer than all of it goes in pieces.
pub const RANGE_STAGING_BYTES: usize = 32 << 20;

/// Fills that gave up, kept for `node show`; the oldest are dropped first.
pub const FAILURES_KEPT_MAX: usize = 256;

/// A shard whose fill gave up is not tried again before this, so that a job that asks for it in a
/// loop gets the reason at once and the origin gets rest.
pub const FAILURE_HOLD: Duration = Duration::from_secs(5);

/// What the origin gave twice alike is believed for so long against those who pin another checksum; then they have it
/// read anew. Long enough that a snapshot with a wrong checksum takes the shard from others once a minute at most; short
/// enough that a cache on the way that gave damaged bytes twice is not the end of a job.
pub const READ_TWICE_HOLD: Duration = Duration::from_secs(60);

// ---- Memory of a node beside the budget ----

/// What a node needs beside the extents of its budget: code, stacks, connection buffers, manifests
/// and the store's own entries. Subtracted from a memory cgroup's limit.
pub const NODE_OVERHEAD_BYTES: u64 = 64 << 20;

/// Part of the budget that one client may hold in leases, in percent.
pub const LEASE_QUOTA_PERCENT: u32 = 90;

/// A client drops maps it does not use within this time of being asked to.
pub const RECALL_TIMEOUT: Duration = Duration::from_secs(2);

/// RECALL frames that wait for one client; beyond it the client is asked again later.
pub const RECALLS_QUEUED_MAX: usize = 256;

/// Freed extents that wait for the kernel's word that nobody maps them, looked at this often.
pub const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

// What the numbers above must hold among themselves.
const _: () = {
    assert!(ADMIT_BYTES_MAX as usize == URI_BYTES_MAX);
    assert!(RING_MEMBERS_MAX <= 1 << 16);
    assert!(HOST_NODE_TIMEOUT.as_secs() > DRAIN_TIMEOUT.as_secs());
    assert!(CANCEL_CHECK_INTERVAL.as_millis() < OWNER_SILENT_TIMEOUT.as_millis());
    assert!(CONNECT_TIMEOUT.as_millis() < OWNER_SILENT_TIMEOUT.as_millis());
    assert!(CLIENT_NAME_BYTES_MAX + 256 < PRE_AUTH_BYTES_MAX);
    assert!((PAGE_ENTRIES_MAX as usize) * 1_024 <= CONTROL_MESSAGE_BYTES_MAX);
    assert!(MANIFEST_CHUNK_BYTES < CONTROL_MESSAGE_BYTES_MAX);
    assert!(CONTROL_REQUEST_TIMEOUT.as_secs() > OPEN_DATASET_TIMEOUT.as_secs());
    assert!(RING_REFRESH_INTERVAL.as_secs() < CONTROL_IDLE_TIMEOUT.as_secs());
    assert!(BLOB_PIECE_BYTES < CONTROL_MESSAGE_BYTES_MAX);
    assert!(2 * ASKED_BY_BYTES_MAX <= RECORD_WORDS_BYTES_MAX);
    assert!(2 * URI_BYTES_MAX + 64 <= RECORD_DATASETS_BYTES_MAX);
    // A whole view is one message: the record, and announcements with some 100 bytes around each.
    assert!(
        RECORD_BYTES_MAX + ANNOUNCEMENTS_MAX * (ANNOUNCEMENT_BYTES_MAX + 128)
            < CONTROL_MESSAGE_BYTES_MAX
    );
    assert!(LAST_USES_ALL_TIMEOUT.as_millis() < LAST_USES_INTERVAL.as_millis());
    assert!(PREFETCH_DEPTH_DEFAULT <= PREFETCH_DEPTH_MAX);
    assert!(2 * KEEPALIVE_INTERVAL.as_millis() < OWNER_SILENT_TIMEOUT.as_millis());
    // Rests leave a shard of a gibibyte a third of a fill's time, beside four that yield: pulls and a further copy.
    assert!(
        ((PULLS_IN_FLIGHT_MAX + 1) * ((1 << 30) / YIELD_PIECE_BYTES as usize)) as u128
            * YIELD_REST_MAX.as_millis()
            < FILL_DEADLINE.as_millis()
    );
    assert!(SENDFILE_ROW_BYTES_MIN <= STAGING_BYTES_MIN as u64);
    assert!(
        (RANGE_STAGING_BYTES + STAGING_BYTES_TOTAL + REQUEST_BYTES_TOTAL) as u64
            + OPENINGS_MAX as u64 * MANIFEST_BYTES_FREE
            < NODE_OVERHEAD_BYTES
    );
};
