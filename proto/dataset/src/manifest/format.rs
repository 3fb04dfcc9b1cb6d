//! The bytes of a manifest, version 2. Little-endian; tables follow one another without gaps.
//!
//! A manifest has two kinds of file. Every process that has the dataset open maps the *root*. Only
//! fills, and rows of different lengths, need the *leaves*.
//!
//! ```text
//! root                                         leaf
//! header   256 bytes                           header   128 bytes
//! tensors   96 each                            digests   32 each, one for each shard, or none
//! shards    64 each                            objects   32 each
//! regions    4 each: bytes of a shard's        pieces    32 each: a stretch of an object with
//!            region, for each ragged tensor             rows of one tensor of one shard
//!            and shard                         blocks    16 each, one for each piece, or none
//!                                              rows      tables by tensor: spans, ends of rows
//! leaves    64 each                            values    of inline tensors, by tensor
//! keys      16 each, one for each sample       names     keys, etags and versions
//! names     the address, names and shapes
//! metadata  one JSON document, or none         recipes   of blocks: u32 length and bytes each
//! ```
//!
//! The name of either file is its SHA-256. A root takes 64 bytes a shard. A leaf takes 8 bytes for
//! each row of `Layout::Spans`, and 64 bytes and its name for each object.

use larder_formats::Block;

pub(crate) const ROOT_MAGIC: [u8; 8] = *b"LARDERMF";
pub(crate) const LEAF_MAGIC: [u8; 8] = *b"LARDERLF";
pub(crate) const VERSION: u32 = 2;
/// `ShardRecord::flags`: the record has a checksum.
pub(crate) const SHARD_HAS_CHECKSUM: u32 = 1;
/// `LeafHeader::flags`: the leaf has the SHA-256 of each shard.
pub(crate) const LEAF_HAS_DIGESTS: u32 = 1;
/// `LeafHeader::flags`: the leaf says of each piece how its rows are made.
pub(crate) const LEAF_HAS_BLOCKS: u32 = 2;
/// Bytes of a SHA-256.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Declares a record: its fields in order, each a little-endian integer or an array of bytes.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident [$size:expr] { $($field:ident: $type:ty),+ $(,)? } pad $pad:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)+ }

        const _: () = assert!($(size_of::<$type>() +)+ $pad == $size);

        impl $name {
            pub(crate) const BYTES: usize = $size;

            pub(crate) fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
                out.extend_from_slice(&[0; $pad]);
            }

            pub(crate) fn at(table: &[u8], index: usize) -> Self {
                let mut rest = &table[index * $size..][..$size];
                Self { $($field: <$type>::take(&mut rest),)+ }
            }
        }
    };
}

trait Field {
    fn put(&self, out: &mut Vec<u8>);
    fn take(bytes: &mut &[u8]) -> Self;
}

macro_rules! integer_field {
    ($($type:ty)+) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Self {
                let (head, rest) = bytes.split_first_chunk().expect("a record holds its fields");
                *bytes = rest;
                Self::from_le_bytes(*head)
            }
        }
    )+};
}

integer_field!(u16 u32 u64);

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &[u8]) -> Self {
        let (head, rest) = bytes.split_first_chunk().expect("a record holds its fields");
        *bytes = rest;
        *head
    }
}

record! {
    /// ```text
    ///   0  8  magic "LARDERMF"               96  4  tensor_count
    ///   8  4  version = 2                   100  4  shard_count
    ///  12  4  header_bytes = 256            104  4  leaf_count
    ///  16 32  contents: SHA-256 over the    108  4  ragged_count: tensors in the table of regions
    ///         tensor records and the        112  8  keys: `samples`, or 0
    ///         digests of all shards; zero   120  4  key_tensor
    ///         if the data was not read      124  4  uri_bytes, at the begin of the names
    ///  48 32  key_of: the snapshot          128  8  names_bytes
    ///         without the keys              136  8  metadata_bytes
    ///  80  8  file_bytes                    144  8  object_count, of all leaves
    ///  88  8  samples                       152 104 zero
    /// ```
    RootHeader [256] {
        magic: [u8; 8], version: u32, header_bytes: u32, contents: [u8; 32], key_of: [u8; 32],
        file_bytes: u64, samples: u64, tensor_count: u32, shard_count: u32, leaf_count: u32,
        ragged_count: u32, keys: u64, key_tensor: u32, uri_bytes: u32, names_bytes: u64,
        metadata_bytes: u64, object_count: u64,
    } pad 104
}

record! {
    /// ```text
    ///   0  8  name_at, in the names          32  4  name_bytes
    ///   8  8  shape_at, in the names:        36  4  dimensions
    ///         u64 for each dimension         40  2  dtype
    ///  16  8  row_bytes, 0 if ragged         42  2  layout: see `Layout`
    ///  24  8  stride_bytes, 0 if ragged      44  2  logical type
    ///                                        46 50  zero
    /// ```
    TensorRecord [96] {
        name_at: u64, shape_at: u64, row_bytes: u64, stride_bytes: u64, name_bytes: u32,
        dimensions: u32, dtype: u16, layout: u16, logical: u16,
    } pad 50
}

record! {
    /// ```text
    ///   0 16  shard id                       40  4  rows
    ///  16  8  first_sample                   44  4  flags: 1 = has a checksum
    ///  24  8  bytes of all regions           48 16  zero
    ///  32  8  checksum, if the flag is set
    /// ```
    ShardRecord [64] {
        id: [u8; 16], first_sample: u64, bytes: u64, checksum: u64, rows: u32, flags: u32,
    } pad 16
}

record! {
    /// ```text
    ///   0  4  first_shard      16  8  first_sample
    ///   4  4  shards           24  8  data_bytes of its shards
    ///   8  4  file_bytes       32 32  SHA-256 of the file
    ///  12  4  flags = 0
    /// ```
    LeafRecord [64] {
        first_shard: u32, shards: u32, file_bytes: u32, flags: u32, first_sample: u64,
        data_bytes: u64, sha256: [u8; 32],
    } pad 0
}

record! {
    /// ```text
    ///   0  8  magic "LARDERLF"          40  4  object_count
    ///   8  4  version = 2               44  4  piece_count
    ///  12  4  header_bytes = 128        48  8  rows_bytes
    ///  16  4  first_shard               56  8  values_bytes
    ///  20  4  shard_count               64  8  names_bytes
    ///  24  8  first_sample              72  4  flags: 1 = has digests
    ///  32  8  samples                          2 = has blocks
    ///                                   76  4  recipes_bytes
    ///                                   80 48  zero
    /// ```
    LeafHeader [128] {
        magic: [u8; 8], version: u32, header_bytes: u32, first_shard: u32, shard_count: u32,
        first_sample: u64, samples: u64, object_count: u32, piece_count: u32, rows_bytes: u64,
        values_bytes: u64, names_bytes: u64, flags: u32, recipes_bytes: u32,
    } pad 48
}

record! {
    /// ```text
    ///   0  8  size_bytes                     16  4  key_bytes
    ///   8  8  names_at: key, etag, version   20  2  etag_bytes     22  2  version_bytes
    ///         one after the other            24  8  zero
    /// ```
    ObjectRecord [32] {
        size_bytes: u64, names_at: u64, key_bytes: u32, etag_bytes: u16, version_bytes: u16,
    } pad 8
}

record! {
    /// Pieces are sorted by shard, tensor and first row. A piece has the rows up to the next one.
    ///
    /// ```text
    ///   0  8  begin: the bytes of the        16  4  object, in the leaf
    ///   8  8  end:   object that hold rows   20  4  shard, in the leaf
    ///                                        24  4  tensor
    ///                                        28  4  first_row, in the shard
    /// ```
    PieceRecord [32] { begin: u64, end: u64, object: u32, shard: u32, tensor: u32, first_row: u32 } pad 0
}

record! {
    /// A row of a tensor of [`Layout::Spans`](super::Layout::Spans).
    ///
    /// ```text
    ///   0  4  at: where the row begins, from the begin of its piece
    ///   4  4  region_end: bytes of the shard's rows up to and with this one
    /// ```
    SpanRecord [8] { at: u32, region_end: u32 } pad 0
}

record! {
    /// A ragged row of a tensor of [`Layout::Blocks`](super::Layout::Blocks).
    ///
    /// ```text
    ///   0  4  region_end: bytes of the shard's rows up to and with this one
    /// ```
    EndRecord [4] { region_end: u32 } pad 0
}

record! {
    /// A ragged row of a tensor of [`Layout::Inline`](super::Layout::Inline).
    ///
    /// ```text
    ///   0  4  end: bytes of the leaf's values of this tensor up to and with this row
    /// ```
    ValueRecord [4] { end: u32 } pad 0
}

/// The places of a root's tables, computed from the counts in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RootTables {
    pub(crate) tensors: usize,
    pub(crate) shards: usize,
    pub(crate) regions: usize,
    pub(crate) leaves: usize,
    pub(crate) keys: usize,
    pub(crate) names: usize,
    pub(crate) metadata: usize,
    pub(crate) end: usize,
}

/// The places of a leaf's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafTables {
    pub(crate) digests: usize,
    pub(crate) objects: usize,
    pub(crate) pieces: usize,
    pub(crate) blocks: usize,
    pub(crate) rows: usize,
    pub(crate) values: usize,
    pub(crate) names: usize,
    pub(crate) recipes: usize,
    pub(crate) end: usize,
}

/// Returns the end of a table; `None` if it overflows.
fn table(at: usize, count: impl Into<u64>, record: usize) -> Option<usize> {
    at.checked_add(usize::try_from(count.into()).ok()?.checked_mul(record)?)
}

impl RootHeader {
    /// Computes the places of the tables. Returns `None` if the counts overflow.
    pub(crate) fn tables(&self) -> Option<RootTables> {
        let tensors = Self::BYTES;
        let shards = table(tensors, self.tensor_count, TensorRecord::BYTES)?;
        let regions = table(shards, self.shard_count, ShardRecord::BYTES)?;
        let region_count = u64::from(self.shard_count).checked_mul(self.ragged_count.into())?;
        let leaves = table(regions, region_count, size_of::<u32>())?;
        let keys = table(leaves, self.leaf_count, LeafRecord::BYTES)?;
        let names = table(keys, self.keys, size_of::<u128>())?;
        let metadata = table(names, self.names_bytes, 1)?;
        let end = table(metadata, self.metadata_bytes, 1)?;
        Some(RootTables { tensors, shards, regions, leaves, keys, names, metadata, end })
    }
}

impl LeafHeader {
    /// Computes the places of the tables. Returns `None` if the counts overflow.
    pub(crate) fn tables(&self) -> Option<LeafTables> {
        let digests = Self::BYTES;
        let digest_count = if self.flags & LEAF_HAS_DIGESTS != 0 { self.shard_count } else { 0 };
        let objects = table(digests, digest_count, DIGEST_BYTES)?;
        let pieces = table(objects, self.object_count, ObjectRecord::BYTES)?;
        let blocks = table(pieces, self.piece_count, PieceRecord::BYTES)?;
        let block_count = if self.flags & LEAF_HAS_BLOCKS != 0 { self.piece_count } else { 0 };
        let rows = table(blocks, block_count, Block::BYTES)?;
        let values = table(rows, self.rows_bytes, 1)?;
        let names = table(values, self.values_bytes, 1)?;
        let recipes = table(names, self.names_bytes, 1)?;
        let end = table(recipes, self.recipes_bytes, 1)?;
        Some(LeafTables { digests, objects, pieces, blocks, rows, values, names, recipes, end })
    }
}

/// Computes the SHA-256 of these bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    *hash.as_ref().first_chunk().expect("a SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_decodes_to_what_was_encoded() {
        let shard = ShardRecord {
            id: [7; 16],
            first_sample: 1,
            bytes: 2,
            checksum: 3,
            rows: 5,
            flags: SHARD_HAS_CHECKSUM,
        };
        let mut bytes = Vec::new();
        shard.encode(&mut bytes);
        shard.encode(&mut bytes);
        assert_eq!(bytes.len(), 2 * ShardRecord::BYTES);
        assert_eq!(ShardRecord::at(&bytes, 1), shard);
        assert_eq!(bytes[40], 5);
    }
}
