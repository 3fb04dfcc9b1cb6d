//! The limits of the asking side: clients, and nodes that ask other nodes.

use std::time::Duration;

/// Time without a word after which an owner is passed over. The client asks the next member on the
/// walk, which fills in its place.
pub const OWNER_SILENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a node that is not the owner when it asks other nodes, the owner included, for a
/// shard. Shorter than [`OWNER_SILENT_TIMEOUT`]: the client that turned to this node has most
/// likely waited for a silent one already.
pub const STAND_IN_PATIENCE: Duration = Duration::from_millis(500);

/// Timeout of a connect to a node. Below [`OWNER_SILENT_TIMEOUT`], so that a dead host is noticed
/// within it.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections from one node to another, to read its shards. Enough for a link of 25 Gbit/s, and
/// few threads on the other side.
pub const PEER_CONNECTIONS_MAX: usize = 4;

/// Timeout of one part of a shard from another node; the part is then read from the origin. A link
/// that takes longer for 8 MiB is not worth the wait.
pub const PEER_PART_TIMEOUT: Duration = Duration::from_secs(4);

/// Bytes of one read from another node in a background transfer. Only a fraction of a part, so that
/// no bytes are under way while the target pauses.
pub const YIELD_PIECE_BYTES: u32 = 256 << 10;

/// Factor of the pauses in a background transfer. While clients read from either node, the target
/// pauses this many times as long as the piece took, once for each target of the source. So the
/// transfer uses a tenth of the time.
pub const YIELD_RESTS: u32 = 9;

/// Longest pause after one piece. With longer ones a large shard would miss
/// [`FILL_DEADLINE`](super::FILL_DEADLINE).
pub const YIELD_REST_MAX: Duration = Duration::from_millis(20);

/// A client that read within this time counts as reading: a training step may take seconds.
pub const YIELD_READERS_WINDOW: Duration = Duration::from_secs(10);

/// A node that took a piece within this time counts as a target.
pub const YIELD_TAKERS_WINDOW: Duration = Duration::from_secs(1);

/// Time until a silent node is asked again.
pub const NODE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often a waiting call of a client checks whether it is cancelled. A cancelled call ends
/// within this time, and the checks cost 0.01 % of a core.
pub const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Age at which a client fetches the ring again.
pub const RING_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// File descriptors that must be free in a process that opens a dataset. The runtime takes about
/// six, each node two or three, and a read of the origin one.
pub const FILES_LEFT_MIN: usize = 16;

/// Data connections a client keeps to one node: two cover the bandwidth of a link, and the node
/// pays for each.
pub const CONNECTIONS_PER_NODE_MAX: usize = 2;

/// Time in which a host node must have started or stopped, if the processes of its host do that.
/// Longer than a node drains.
pub const HOST_NODE_TIMEOUT: Duration = Duration::from_secs(60);

/// Most nodes in `--cluster` of a client.
pub const CLUSTER_ADDRESSES_MAX: usize = 64;

/// Extents one client process keeps mapped. Two maps each stay well under the kernel's 65,530 maps
/// a process.
pub const MAPPED_EXTENTS_MAX: usize = 16_384;

/// Most batches a loader prepares ahead.
pub const PREFETCH_DEPTH_MAX: usize = 64;

/// Default number of batches a loader prepares ahead, besides the one in use: two outstanding
/// gathers gain 23 % over one, more gain only latency.
pub const PREFETCH_DEPTH_DEFAULT: usize = 2;

/// Most bytes of the ragged rows of one batch, over all its tensors. The loader allocates as many
/// bytes as the manifest states, for several batches at a time. Images and sound in batches of
/// thousands stay below.
pub const RAGGED_BATCH_BYTES_MAX: u64 = 8 << 30;

/// Slow batches that a loader keeps in detail: enough to see a common cause.
pub const SLOW_BATCHES_KEPT_MAX: usize = 32;

/// Bytes of row checksums that a client keeps while it reads from the origin. Holds those of about
/// 250 shards of 64 MiB with rows of 4 KiB.
pub const ROW_CHECKSUM_BYTES_MAX: usize = 16 << 20;

/// Reads straight from the origin in flight at once when no node answers.
pub const ORIGIN_FALLBACK_READS_MAX: usize = 16;

/// Indices of one explicit selection, 8 bytes each: half a gibibyte in each process that has it.
pub const SELECTION_INDICES_MAX: usize = 1 << 26;

/// Stacked selections (a part of a part of a range ...) that could not be merged. Each keeps 8
/// bytes a shard, and every row lookup passes through each.
pub const VIEW_STEPS_MAX: usize = 16;

/// Parts of one split: each keeps 8 bytes a shard.
pub const SPLIT_PARTS_MAX: usize = 1_024;

/// Datasets of one mixture: each has its connections, its manifest and its share of every batch.
pub const MIXTURE_DATASETS_MAX: usize = 256;

/// Bytes of mapped extents that a process registers with the driver of a GPU at once: registered
/// pages cannot be swapped or moved. A quarter of the host's memory if that is less.
pub const REGISTERED_BYTES_MAX: u64 = 16 << 30;

/// Bytes of manifest leaves that a client keeps in memory: the places of eight million rows of one
/// tensor.
pub const LEAVES_BYTES_MAX: u64 = 64 << 20;
