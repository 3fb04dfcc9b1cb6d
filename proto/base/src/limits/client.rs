//! The limits of the asking side: clients, and nodes that ask other nodes.

use std::time::Duration;

/// Time without a word after which an owner is passed over. The client asks the next member on the
/// walk, which fills in its place.
pub const OWNER_SILENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a connect to a node. Below [`OWNER_SILENT_TIMEOUT`], so that a dead host is noticed
/// within it.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of one read from another node in a background transfer. Only a fraction of a part, so that
/// no bytes are under way while the target pauses.
pub const YIELD_PIECE_BYTES: u32 = 256 << 10;

/// Longest pause after one piece. With longer ones a large shard would miss
/// [`FILL_DEADLINE`](super::FILL_DEADLINE).
pub const YIELD_REST_MAX: Duration = Duration::from_millis(20);

/// Time until a silent node is asked again.
pub const NODE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often a waiting call of a client checks whether it is cancelled. A cancelled call ends
/// within this time, and the checks cost 0.01 % of a core.
pub const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Age at which a client fetches the ring again.
pub const RING_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Time in which a host node must have started or stopped, if the processes of its host do that.
/// Longer than a node drains.
pub const HOST_NODE_TIMEOUT: Duration = Duration::from_secs(60);

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
