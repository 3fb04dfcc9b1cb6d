//! Shards on a local disk: one file for each, the extent as it lies in memory behind a page of
//! header.
//!
//! ```text
//! <folder>/<first 2 hex digits>/<32 hex digits of the shard id>    a whole shard
//! <folder>/writing/<32 hex digits>                                 one that is being written
//!
//! offset width                               offset width
//!      0     8  magic "LARDERDK"                 48    32  snapshot of its first writer
//!      8     4  version, 1                       80     4  CRC32C of the page, with zero here
//!     12     4  zero                             84  4012  zero
//!     16    16  shard id                       4096        the extent, with its own header
//!     32     8  bytes of the extent
//!     40     8  digest of the extent's checksums
//! ```
//!
//! A file gets its name after its last byte, so a file with its name is whole. Nothing is synced:
//! the digest exposes a file that a loss of power tore. Sizes in a file are compared with those of
//! the caller, and never used.
//!
//! Reads and writes go past the page cache where the file system allows it: the bytes are in shared
//! memory already. An extent is a run of whole pages, so they need no copy.
//!
//! Thread rule: everything blocks while the disk works, so no async task calls it. A
//! [`ShardFolder`] is shared by threads. Non-goals: which shards a disk keeps, and the checksums of
//! rows: a fill that reads from here compares the digest of its bytes.

mod file;
mod folder;
mod header;
mod pages;

pub use file::{Missed, ShardFile};
pub use folder::{ListedShard, ShardFolder};
pub use header::{HeaderError, ShardHeader};
pub use pages::PageBuffer;

/// Bytes of the header, and of a page of a file. Places and lengths of direct reads and writes are
/// multiples of it.
pub const PAGE_BYTES: usize = 4096;
