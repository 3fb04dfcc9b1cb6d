//! Every limit on a dataset, with the reason beside it. All are checked before memory is taken or a
//! byte is published.

use std::time::Duration;

/// Longest URI or object key, in bytes: S3 stops at 1,024, a Linux path at 4,096.
pub const URI_BYTES_MAX: usize = 4096;
/// Longest tag, in bytes: it becomes one file name.
pub const TAG_BYTES_MAX: usize = 128;
/// Longest etag or version, in bytes: those of the known stores have fewer than 100.
pub const ETAG_BYTES_MAX: usize = 1024;

/// Largest root of a manifest, in bytes: the most shards take 1 GiB. With keys, 67 million samples.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Size of a leaf of a manifest, in bytes: one request, and the tables of half a million rows.
pub const LEAF_BYTES_TARGET: u64 = 4 << 20;
/// Largest leaf, in bytes: those before its last shard, and one shard more.
pub const LEAF_BYTES_MAX: u64 = 64 << 20;
/// Bytes that the rows of one shard may take in its leaf, so that one shard fits every leaf. Four
/// million rows of one tensor take as much.
pub const SHARD_TABLES_BYTES_MAX: u64 = 32 << 20;
/// Largest row whose value stands in a leaf, in bytes: a label, a key or a path.
pub const INLINE_ROW_BYTES_MAX: u64 = 64 << 10;
/// Largest JSON document in a manifest, in bytes: ten thousand names of classes.
pub const METADATA_BYTES_MAX: u64 = 1 << 20;
/// Largest tag object, in bytes: it holds one small JSON object.
pub const TAG_OBJECT_BYTES_MAX: u64 = 4096;

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
/// Most runs of rows of one shard: each takes 100 bytes in the plan of a fill.
pub const SHARD_RUNS_MAX: u64 = 1 << 17;
/// Bytes between two rows that one read passes over. Reading and dropping them takes less time than
/// the first byte of another request: 64 KiB are 1 ms of a connection at 60 MB/s.
pub const READ_GAP_BYTES_MAX: u64 = 64 << 10;

/// Smallest shard size an operator can choose: a shard costs its holder a file and a map.
pub const SHARD_BYTES_MIN: u64 = 4096;
/// Default shard size: large enough for few requests, small enough to place evenly.
pub const SHARD_BYTES_DEFAULT: u64 = 64 << 20;
/// Largest shard, and the largest size an operator can choose: a shard is filled, kept and evicted
/// as a whole.
pub const SHARD_BYTES_MAX: u64 = 1 << 30;
/// Largest sample, all its tensors together: it makes a shard of one row and travels in one piece.
pub const SAMPLE_BYTES_MAX: u64 = 1 << 30;
const _: () = assert!(SAMPLE_BYTES_MAX <= SHARD_BYTES_MAX);

/// Files scanned at the same time while indexing: each read has at most 8 MiB.
pub const SCANS_IN_FLIGHT: usize = 8;
/// Headers of data files read at the same time while indexing.
pub const HEADERS_IN_FLIGHT: usize = 32;
/// Bytes of the first read of a file's header: most headers fit, so one request is enough.
pub const HEADER_PROBE_BYTES: u64 = 64 << 10;
/// Largest safetensors header, in bytes: the limit of the format's own library.
pub const SAFETENSORS_HEADER_BYTES_MAX: u64 = 100_000_000;
/// Most tensors in one safetensors file: the largest models have a few thousand.
pub const SAFETENSORS_TENSORS_MAX: usize = 10_000;
/// Largest npy header, in bytes: numpy itself refuses more than 10,000 characters by default.
pub const NPY_HEADER_BYTES_MAX: u64 = 64 << 10;

/// Most ragged rows that one index holds in memory, of all tensors: each takes 12 bytes there.
pub const RAGGED_ROWS_MAX: u64 = 1 << 26;
/// Most names that the braces of one `--include` or address stand for: a shard each of a petabyte.
pub const INCLUDED_NAMES_MAX: usize = 1_000_000;
/// Longest text that can be the key of a sample, in bytes: URLs and paths are shorter.
pub const KEY_BYTES_MAX: u64 = 1024;
/// Bytes of one ranged read of the offsets of ragged rows.
pub const OFFSETS_PART_BYTES: u64 = 4 << 20;
/// Tensors of offsets read at the same time; memory held is this times the part.
pub const OFFSETS_IN_FLIGHT: usize = 8;

/// Bytes of one ranged read while checksums are computed.
pub const CHECKSUM_PART_BYTES: u64 = 8 << 20;
/// Ranged reads in flight while checksums are computed; memory held is this times the part.
pub const CHECKSUM_PARTS_IN_FLIGHT: usize = 8;

/// Attempts to move a tag that another process moves at the same time.
pub const TAG_ATTEMPTS: usize = 5;

/// Bytes read at a time from a local file.
pub const LOCAL_READ_BYTES: usize = 1 << 20;
/// Calls to the local file system at once, including those that hang. Enough to keep a fast disk or
/// a network file system busy; few beside the 512 threads on which a runtime may block.
pub const LOCAL_CALLS_MAX: usize = 64;
/// A call that waits for its turn fails if [`LOCAL_CALLS_MAX`] calls are under way and none has
/// returned for this long. Shorter than a node waits for the first byte of a read.
pub const LOCAL_TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time until the caller gives up on a call. A slow network file system takes some seconds to look
/// at as many files as are listed together.
pub const LOCAL_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Most objects that are listed to count those added since a prefix was indexed: 100 requests to
/// S3, and some 20 MB. A larger prefix is not checked.
pub const ADDED_LISTED_MAX: u32 = 100_000;
/// Most leaves of a manifest that are read to compare its objects with a listing.
pub const ADDED_LEAVES_MAX: u32 = 16;
/// Headers of new files that are read for that count. If an index takes all of these, it takes the
/// other new files too.
pub const ADDED_HEADERS_MAX: usize = 64;
/// Timeout of that count. Its result is a hint only.
pub const ADDED_TIMEOUT: Duration = Duration::from_secs(30);
/// Objects of a listing processed together: as many as the library looks at in one call.
pub const LISTED_TOGETHER: usize = 1024;
