//! Every limit on a dataset, with the reason beside it. All are checked before memory is taken or a
//! byte is published.

/// Longest URI or object key, in bytes: S3 stops at 1,024, a Linux path at 4,096.
pub const URI_BYTES_MAX: usize = 4096;
/// Largest root of a manifest, in bytes: the most shards take 1 GiB. With keys, 67 million samples.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Largest leaf, in bytes: those before its last shard, and one shard more.
pub const LEAF_BYTES_MAX: u64 = 64 << 20;
/// Largest row whose value stands in a leaf, in bytes: a label, a key or a path.
pub const INLINE_ROW_BYTES_MAX: u64 = 64 << 10;
/// Largest JSON document in a manifest, in bytes: ten thousand names of classes.
pub const METADATA_BYTES_MAX: u64 = 1 << 20;
/// Most tensors in one dataset: an extent has a region for each, and a gather names them in a list.
pub const TENSORS_MAX: u32 = 4096;
/// Longest tensor name, in bytes.
pub const TENSOR_NAME_BYTES_MAX: u32 = 1024;
/// Most dimensions of a tensor: numpy itself stops at 64.
pub const DIMENSIONS_MAX: u32 = 64;
/// Most objects in one dataset: each takes 64 bytes and its name in the manifest.
pub const OBJECTS_MAX: u32 = 1 << 24;
/// Most shards in one dataset: each takes 64 bytes in the manifest.
pub const SHARDS_MAX: u32 = 1 << 24;
/// Most ranged reads of one fill. Small objects grouped into one shard take one for each object and
/// tensor. Rows that lie far apart in their objects take more.
pub const SHARD_READS_MAX: u32 = 4096;
/// Bytes between two rows that one read passes over. Reading and dropping them takes less time than
/// the first byte of another request: 64 KiB are 1 ms of a connection at 60 MB/s.
pub const READ_GAP_BYTES_MAX: u64 = 64 << 10;

/// Largest shard, and the largest size an operator can choose: a shard is filled, kept and evicted
/// as a whole.
pub const SHARD_BYTES_MAX: u64 = 1 << 30;
/// Largest sample, all its tensors together: it makes a shard of one row and travels in one piece.
pub const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// Headers of data files read at the same time while indexing.
pub const HEADERS_IN_FLIGHT: usize = 32;
/// Bytes of the first read of a file's header: most headers fit, so one request is enough.
pub const HEADER_PROBE_BYTES: u64 = 64 << 10;
/// Most ragged rows that one index holds in memory, of all tensors: each takes 12 bytes there.
pub const RAGGED_ROWS_MAX: u64 = 1 << 26;
/// Longest text that can be the key of a sample, in bytes: URLs and paths are shorter.
pub const KEY_BYTES_MAX: u64 = 1024;
