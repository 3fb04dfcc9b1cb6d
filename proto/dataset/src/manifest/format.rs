//! The bytes of a manifest, version 1. Little-endian; tables follow one another without gaps.
//!
//! ```text
//! header   160 bytes
//! tensors   64 bytes each
//! shards    64 bytes each
//! objects   64 bytes each
//! keys      16 bytes each, one for each sample, or none: see `keys`
//! columns    8 bytes each, `extra_columns` per object: the columns beyond the four in its record
//! spans     16 bytes each, one table of `samples` entries for each tensor with ragged rows
//! names    all strings and shapes: first the address, then those that records point to
//! ```
//!
//! A dataset takes 64 bytes a shard, and 64 an object plus its names. Each tensor beyond the fourth
//! that lies in one object takes 8 more.
//!
//! Objects come in *groups*. A group is the `objects_per_group` objects that hold the same samples.
//! A safetensors file is a group of one; `image.npy` beside `label.npy` is a group of two. Group
//! `g` has the objects `g * objects_per_group + slot`, and a tensor names its slot.

use ring::digest::{Context, SHA256};

pub(crate) const MAGIC: [u8; 8] = *b"LARDERMF";
pub(crate) const VERSION: u32 = 1;
/// Place of the hash; these bytes count as zero when it is computed.
pub(crate) const HASH_AT: std::ops::Range<usize> = 16..48;
/// Columns that an object's record has room for.
pub(crate) const COLUMNS_INLINE: u32 = 4;
/// `TensorRecord::locator` of strided rows.
pub(crate) const LOCATOR_STRIDED: u16 = 0;
/// `TensorRecord::locator` of rows with spans.
pub(crate) const LOCATOR_SPANS: u16 = 1;
/// `ShardRecord::flags`: the record has a checksum.
pub(crate) const SHARD_HAS_CHECKSUM: u32 = 1;

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

impl Field for [u64; COLUMNS_INLINE as usize] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }

    fn take(bytes: &mut &[u8]) -> Self {
        std::array::from_fn(|_| u64::take(bytes))
    }
}

record! {
    /// ```text
    ///   0  8  magic "LARDERMF"          80  4  tensor_count
    ///   8  4  version = 1               84  4  objects_per_group
    ///  12  4  header_bytes = 160        88  4  extra_columns, per object
    ///  16 32  SHA-256 of the file       92  4  span_tables
    ///         with these bytes zero     96  8  names_bytes
    ///  48  8  file_bytes               104  4  uri_bytes, at the begin of the names
    ///  56  8  samples                  108  4  key_tensor
    ///  64  8  groups                   112  8  keys: `samples`, or 0
    ///  72  4  shard_count              120 32  key_of: the snapshot without the keys
    ///  76  4  object_count             152  8  zero
    /// ```
    Header [160] {
        magic: [u8; 8], version: u32, header_bytes: u32, hash: [u8; 32], file_bytes: u64,
        samples: u64, groups: u64, shard_count: u32, object_count: u32, tensor_count: u32,
        objects_per_group: u32, extra_columns: u32, span_tables: u32, names_bytes: u64,
        uri_bytes: u32, key_tensor: u32, keys: u64, key_of: [u8; 32],
    } pad 8
}

record! {
    /// ```text
    ///   0  8  name_at, in the names          32  4  name_bytes
    ///   8  8  shape_at, in the names:        36  4  dimensions
    ///         u64 for each dimension         40  4  slot: which object of a group
    ///  16  8  row_bytes, 0 for spans         44  4  column of that object, or which span table
    ///  24  8  stride_bytes, 0 for spans      48  2  dtype     50  2  locator
    ///                                        52 12  zero
    /// ```
    TensorRecord [64] {
        name_at: u64, shape_at: u64, row_bytes: u64, stride_bytes: u64, name_bytes: u32, dimensions: u32,
        slot: u32, column: u32, dtype: u16, locator: u16,
    } pad 12
}

record! {
    /// ```text
    ///   0 16  shard id                       40  8  row_in_group: where in it the shard begins
    ///  16  8  first_sample                   48  4  rows
    ///  24  8  bytes of all regions           52  4  first_group: which group it begins in
    ///  32  8  checksum, if the flag is set   56  4  flags: 1 = has a checksum
    ///                                        60  4  zero
    /// ```
    ShardRecord [64] {
        id: [u8; 16], first_sample: u64, bytes: u64, checksum: u64, row_in_group: u64, rows: u32,
        first_group: u32, flags: u32,
    } pad 4
}

record! {
    /// ```text
    ///   0  8  first_sample of its group      24  4  key_bytes
    ///   8  8  size_bytes                     28  2  etag_bytes      30  2  version_bytes
    ///  16  8  names_at: key, etag, version   32 32  columns: offsets in the object of the first
    ///         one after the other                   four tensors of its slot
    /// ```
    ObjectRecord [64] {
        first_sample: u64, size_bytes: u64, names_at: u64, key_bytes: u32, etag_bytes: u16,
        version_bytes: u16, columns: [u64; COLUMNS_INLINE as usize],
    } pad 0
}

record! {
    /// ```text
    ///   0  8  object_offset: where in its object the row begins
    ///   8  8  region_end: bytes of the rows of its shard up to and with this one
    /// ```
    SpanRecord [16] { object_offset: u64, region_end: u64 } pad 0
}

/// The places of a manifest's tables, computed from the counts in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) tensors: usize,
    pub(crate) shards: usize,
    pub(crate) objects: usize,
    pub(crate) keys: usize,
    pub(crate) columns: usize,
    pub(crate) spans: usize,
    pub(crate) names: usize,
    pub(crate) end: usize,
}

impl Header {
    /// Computes the places of the tables. Returns `None` if the counts overflow.
    pub(crate) fn tables(&self) -> Option<Tables> {
        let table = |at: usize, count: u64, record: usize| -> Option<usize> {
            at.checked_add(usize::try_from(count).ok()?.checked_mul(record)?)
        };
        let tensors = Self::BYTES;
        let shards = table(tensors, self.tensor_count.into(), TensorRecord::BYTES)?;
        let objects = table(shards, self.shard_count.into(), ShardRecord::BYTES)?;
        let keys = table(objects, self.object_count.into(), ObjectRecord::BYTES)?;
        let columns = table(keys, self.keys, size_of::<u128>())?;
        let extra = u64::from(self.object_count).checked_mul(self.extra_columns.into())?;
        let spans = table(columns, extra, size_of::<u64>())?;
        let span_count = self.samples.checked_mul(self.span_tables.into())?;
        let names = table(spans, span_count, SpanRecord::BYTES)?;
        let end = table(names, self.names_bytes, 1)?;
        Some(Tables { tensors, shards, objects, keys, columns, spans, names, end })
    }
}

/// Computes the SHA-256 of a manifest, with its hash field taken as zero.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut state = Context::new(&SHA256);
    state.update(&bytes[..HASH_AT.start]);
    state.update(&[0; HASH_AT.end - HASH_AT.start]);
    state.update(&bytes[HASH_AT.end..]);
    state.finish().as_ref().try_into().expect("a SHA-256 has 32 bytes")
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
            row_in_group: 4,
            rows: 5,
            first_group: 6,
            flags: SHARD_HAS_CHECKSUM,
        };
        let mut bytes = Vec::new();
        shard.encode(&mut bytes);
        shard.encode(&mut bytes);
        assert_eq!(bytes.len(), 2 * ShardRecord::BYTES);
        assert_eq!(ShardRecord::at(&bytes, 1), shard);
        assert_eq!(bytes[48], 5);
    }
}
