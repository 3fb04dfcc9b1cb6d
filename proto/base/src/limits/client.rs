//! The limits of whoever asks nodes: clients, and nodes that ask others.

use std::time::Duration;

/// An owner silent for this long is passed over: the next member on the walk is asked and fills in
/// its place.
pub const OWNER_SILENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Who stands in for an owner asks others for what they may have, the owner too, but waits no longer than this for a
/// word: whoever turned to the node that stands in has most likely waited for a silent one before.
pub const STAND_IN_PATIENCE: Duration = Duration::from_millis(500);

/// To connect to a node. Below [`OWNER_SILENT_TIMEOUT`], so that a host that is gone is noticed within it.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections of a node to another, over which it reads shards that the other has: enough for a link of
/// 25 Gbit/s, and few threads there.
pub const PEER_CONNECTIONS_MAX: usize = 4;

/// For one part of a shard to come from another node; else it is read from the origin. A link that takes
/// longer for 8 MiB is not worth the wait.
pub const PEER_PART_TIMEOUT: Duration = Duration::from_secs(4);

/// What is asked of another node at a time of a shard that nobody waits for: a part of a part, so that nothing is
/// on its way while the taker rests.
pub const YIELD_PIECE_BYTES: u32 = 256 << 10;

/// While somebody reads from a node, such a shard comes or leaves in a tenth of the time: after each piece the taker rests
/// so many times as long as that took, once for each who takes from the same node.
pub const YIELD_RESTS: u32 = 9;

/// Longest rest after one piece, or a large shard would not be here before [`FILL_DEADLINE`](super::FILL_DEADLINE).
pub const YIELD_REST_MAX: Duration = Duration::from_millis(20);

/// Who read within this time reads: a training step may take seconds.
pub const YIELD_READERS_WINDOW: Duration = Duration::from_secs(10);

/// Who took a piece within this time takes.
pub const YIELD_TAKERS_WINDOW: Duration = Duration::from_secs(1);

/// A node that was silent is asked again after this.
pub const NODE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often a call of a client that waits looks whether it is still wanted: what is given up ends
/// within this, and a tenth of a per mille of a core is spent on looking.
pub const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A ring older than this is asked for anew.
pub const RING_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// File descriptors that must be left to a process that opens a dataset: the runtime takes some six, each
/// node two or three, and a read of the origin one.
pub const FILES_LEFT_MIN: usize = 16;

/// Data connections a client keeps to one node: two cover the bandwidth of a link, and the node
/// pays for each.
pub const CONNECTIONS_PER_NODE_MAX: usize = 2;

/// A node that is started or stopped by the processes of its host has done so within this time, or
/// something is wrong: longer than a node drains.
pub const HOST_NODE_TIMEOUT: Duration = Duration::from_secs(60);

/// Nodes a client is told of at most by `--cluster`.
pub const CLUSTER_ADDRESSES_MAX: usize = 64;

/// Extents one client process keeps mapped. Two maps each stay well under the kernel's 65,530 maps a
/// process.
pub const MAPPED_EXTENTS_MAX: usize = 16_384;

/// Batches a loader prepares ahead, at most.
pub const PREFETCH_DEPTH_MAX: usize = 64;

/// Batches a loader prepares ahead when the caller does not say, beside the one in use: two gathers
/// outstanding gain 23 % over one, more gain only latency.
pub const PREFETCH_DEPTH_DEFAULT: usize = 2;

/// Bytes of the ragged rows of one batch, of all its tensors: what the manifest says they come to is
/// taken as memory, several batches at a time. Images and sound in batches of thousands stay below.
pub const RAGGED_BATCH_BYTES_MAX: u64 = 8 << 30;

/// Slow batches that a loader keeps the story of: enough to see what they have in common.
pub const SLOW_BATCHES_KEPT_MAX: usize = 32;

/// Bytes of row checksums that a client keeps while it reads from the origin: those of some 250 shards
/// of 64 MiB with rows of 4 KiB.
pub const ROW_CHECKSUM_BYTES_MAX: usize = 16 << 20;

/// Reads straight from the origin in flight at once when no node answers.
pub const ORIGIN_FALLBACK_READS_MAX: usize = 16;

/// Indices of one explicit selection, 8 bytes each: half a gibibyte in each process that has it.
pub const SELECTION_INDICES_MAX: usize = 1 << 26;

/// Selections on top of each other (a part of a part of a range ...) that could not be merged. Each
/// keeps 8 bytes a shard and is gone through for every row.
pub const VIEW_STEPS_MAX: usize = 16;

/// Parts of one split: each keeps 8 bytes a shard.
pub const SPLIT_PARTS_MAX: usize = 1_024;

/// Datasets of one mixture: each has its connections, its manifest and its own part of every batch.
pub const MIXTURE_DATASETS_MAX: usize = 256;

/// Bytes of mapped extents that a process registers with the driver of a GPU at once: registered pages
/// can't be swapped or moved. A quarter of the host's memory if that is less.
pub const REGISTERED_BYTES_MAX: u64 = 16 << 30;
