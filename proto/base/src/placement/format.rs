//! The bytes of a table of exceptions, version 2. Little-endian; no gaps after the header.
//!
//! ```text
//!   0  8  magic "LARDEREX"              48  8  ring_digest
//!   8  4  version = 2                   56 32  snapshot
//!  12  4  header_bytes = 96             88  4  count of exceptions
//!  16 16  xxh3-128 of the table         92  2  members of the ring
//!         with these bytes zero         94  1  replicas asked for
//!  32  8  table_bytes                   95  1  fan_bits
//!  40  8  ring_version
//!
//! fan      4 bytes each, 2^fan_bits + 1: number of places before those that begin with these bits
//! places   8 bytes each, ascending
//! owners   2 bytes each, `owner_count` for each place: indices in the members, sorted by id
//! ```
//!
//! `owner_count` is the smaller of replicas and members. The fan-out leaves a handful of places to
//! search, and takes about a byte for each.

use crate::ring::Owners;

pub(super) const MAGIC: [u8; 8] = *b"LARDEREX";
pub(super) const VERSION: u32 = 2;
pub(super) const HEADER_BYTES: usize = 96;
/// Place of the hash; these bytes count as zero when it is computed.
const HASH_AT: std::ops::Range<usize> = 16..32;
/// Most places that share a slot of the fan-out, on average.
const PLACES_PER_SLOT: u32 = 4;

/// The header's fields, except those that are the same in every table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableHeader {
    pub(super) hash: [u8; 16],
    pub(super) table_bytes: u64,
    pub(super) ring_version: u64,
    pub(super) ring_digest: u64,
    pub(super) snapshot: [u8; 32],
    pub(super) count: u32,
    pub(super) members: u16,
    pub(super) replicas: u8,
    pub(super) fan_bits: u8,
}

impl TableHeader {
    /// Makes the header of a table in which each of `shards` shards has an exception, with the most
    /// copies.
    pub(super) fn largest(shards: u32) -> Self {
        Self {
            hash: [0; 16],
            table_bytes: 0,
            ring_version: 0,
            ring_digest: 0,
            snapshot: [0; 32],
            count: shards,
            members: u16::MAX,
            replicas: u8::try_from(crate::limits::REPLICAS_MAX).expect("at most 8"),
            fan_bits: fan_bits(shards),
        }
    }

    /// Returns the owners of each place.
    pub(super) fn owner_count(&self) -> usize {
        usize::from(self.members.min(self.replicas.into()))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let header_bytes = u32::try_from(HEADER_BYTES).expect("96");
        out.extend_from_slice(&header_bytes.to_le_bytes());
        out.extend_from_slice(&self.hash);
        out.extend_from_slice(&self.table_bytes.to_le_bytes());
        out.extend_from_slice(&self.ring_version.to_le_bytes());
        out.extend_from_slice(&self.ring_digest.to_le_bytes());
        out.extend_from_slice(&self.snapshot);
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.members.to_le_bytes());
        out.extend_from_slice(&[self.replicas, self.fan_bits]);
    }

    /// Decodes the fields of a header, without checks.
    pub(super) fn take(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            hash: array(bytes, 16),
            table_bytes: u64::from_le_bytes(array(bytes, 32)),
            ring_version: u64::from_le_bytes(array(bytes, 40)),
            ring_digest: u64::from_le_bytes(array(bytes, 48)),
            snapshot: array(bytes, 56),
            count: u32::from_le_bytes(array(bytes, 88)),
            members: u16::from_le_bytes(array(bytes, 92)),
            replicas: bytes[94],
            fan_bits: bytes[95],
        }
    }

    /// Computes the places of the tables. Returns `None` if the counts overflow.
    pub(super) fn tables(&self) -> Option<Tables> {
        let table =
            |at: usize, count: usize, bytes: usize| at.checked_add(count.checked_mul(bytes)?);
        let count = self.count as usize;
        let slots = 1_usize.checked_shl(self.fan_bits.into())?.checked_add(1)?;
        let places = table(HEADER_BYTES, slots, 4)?;
        let owners = table(places, count, 8)?;
        let end = table(owners, count.checked_mul(self.owner_count())?, 2)?;
        Some(Tables { fan: HEADER_BYTES, places, owners, end })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) fan: usize,
    pub(super) places: usize,
    pub(super) owners: usize,
    pub(super) end: usize,
}

impl Tables {
    /// Returns the range in the list of places that belongs to a slot of the fan-out.
    pub(super) fn bucket(&self, bytes: &[u8], slot: usize) -> (usize, usize) {
        let bounds: [u8; 8] = array(bytes, self.fan + 4 * slot);
        let bound = |at| u32::from_le_bytes(array(&bounds, at)) as usize;
        (bound(0), bound(4))
    }

    pub(super) fn place(&self, bytes: &[u8], index: usize) -> u64 {
        u64::from_le_bytes(array(bytes, self.places + 8 * index))
    }

    pub(super) fn owners(&self, bytes: &[u8], index: usize, owner_count: usize) -> Owners {
        let at = self.owners + 2 * owner_count * index;
        (0..owner_count).map(|copy| u16::from_le_bytes(array(bytes, at + 2 * copy))).collect()
    }
}

/// Returns how many bits of a place choose its slot, for a table of this many places.
pub(super) fn fan_bits(count: u32) -> u8 {
    let slots = (count / PLACES_PER_SLOT).max(1);
    u8::try_from(slots.ilog2() + u32::from(!slots.is_power_of_two())).expect("at most 30")
}

/// Returns the slot of a place: its first `bits` bits.
pub(super) fn bucket_of(place: u64, bits: u8) -> usize {
    let slot = if bits == 0 { 0 } else { place >> (64 - u32::from(bits)) };
    usize::try_from(slot).expect("slots are addressed")
}

/// Computes the xxh3-128 of a table, with its hash field taken as zero.
pub(super) fn hash(bytes: &[u8]) -> [u8; 16] {
    let mut state = xxhash_rust::xxh3::Xxh3Default::new();
    state.update(&bytes[..HASH_AT.start]);
    state.update(&[0; HASH_AT.end - HASH_AT.start]);
    state.update(&bytes[HASH_AT.end..]);
    state.digest128().to_le_bytes()
}

pub(super) fn write_hash(bytes: &mut [u8]) {
    let hash = hash(bytes);
    bytes[HASH_AT].copy_from_slice(&hash);
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of that length")
}
