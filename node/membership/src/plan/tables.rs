//! The exceptions of all snapshots to one version of the ring: the blob that a record names as its
//! placement.
//!
//! ```text
//! magic 8 | tables: count 4, each (length 4, a table of exceptions) | checksum 8
//! ```
//!
//! Tables are sorted by snapshot, so the same placement has the same bytes and name on every
//! planner. A table has its own encoding and checks (`larder_base::placement`). A snapshot without
//! a table follows the walk of the ring.

use std::sync::Arc;

use larder_base::{
    SnapshotId, codec, limits,
    placement::{Exceptions, ExceptionsError},
};

use serde_bytes::{ByteBuf, Bytes};

use crate::Malformed;

const MAGIC: &[u8; 8] = b"ldr-tbl2";
const WHAT: &str = "a placement";

/// Tables of exceptions to one version of the ring, at most one of each snapshot, sorted by
/// snapshot.
#[derive(Debug, Clone, Default)]
pub struct Tables(Vec<Exceptions>);

impl Tables {
    /// Creates the set from tables in any order.
    ///
    /// # Errors
    /// [`Malformed`] when two are of one snapshot, or to different versions of the ring.
    pub fn new(mut tables: Vec<Exceptions>) -> Result<Self, Malformed> {
        tables.sort_by_key(Exceptions::snapshot);
        Self::in_order(tables)
    }

    fn in_order(tables: Vec<Exceptions>) -> Result<Self, Malformed> {
        let malformed = |why| Err(Malformed { what: WHAT, why });
        if !tables.windows(2).all(|pair| pair[0].snapshot() < pair[1].snapshot()) {
            return malformed("its tables are not sorted by snapshot, each once");
        }
        if tables.windows(2).any(|pair| pair[0].ring_version() != pair[1].ring_version()) {
            return malformed("its tables are to different rings");
        }
        Ok(Self(tables))
    }

    /// Returns the table of this snapshot; none when its shards follow the walk of the ring.
    pub fn get(&self, snapshot: SnapshotId) -> Option<&Exceptions> {
        let found = self.0.binary_search_by_key(&snapshot, Exceptions::snapshot).ok()?;
        Some(&self.0[found])
    }

    /// Returns all tables, sorted by snapshot.
    pub fn iter(&self) -> std::slice::Iter<'_, Exceptions> {
        self.0.iter()
    }

    /// Whether there are no tables, so that the ring alone decides every owner.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ring version that all tables are exceptions to; none without tables.
    pub fn ring_version(&self) -> Option<u64> {
        self.0.first().map(Exceptions::ring_version)
    }

    /// Returns the tables as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let tables: Vec<&Bytes> = self.0.iter().map(|table| Bytes::new(table.as_bytes())).collect();
        codec::encode(MAGIC, &tables)
    }

    /// Decodes tables. Allocates no more than the input's length.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not tables, or another version wrote them.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let tables: Vec<ByteBuf> = codec::decode(WHAT, MAGIC, bytes, limits::BLOB_BYTES_MAX)?;
        if tables.len() > limits::RECORD_DATASETS_MAX {
            return Err(Malformed {
                what: WHAT,
                why: "it has more tables than the record datasets",
            });
        }
        let table = |bytes: ByteBuf| {
            let table = Exceptions::over(Arc::new(bytes.into_vec()));
            table.map_err(|why| Malformed { what: WHAT, why: words(&why) })
        };
        Self::in_order(tables.into_iter().map(table).collect::<Result<_, _>>()?)
    }
}

impl<'a> IntoIterator for &'a Tables {
    type Item = &'a Exceptions;
    type IntoIter = std::slice::Iter<'a, Exceptions>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Tables {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(Exceptions::digest).eq(other.0.iter().map(Exceptions::digest))
    }
}

impl Eq for Tables {}

fn words(why: &ExceptionsError) -> &'static str {
    match why {
        ExceptionsError::NotATable => "one of its tables is none",
        ExceptionsError::Version { .. } => "one of its tables has a version unknown here",
        ExceptionsError::Length { .. } => "one of its tables has another length than it says",
        ExceptionsError::Checksum => "the checksum of one of its tables does not match",
        ExceptionsError::Malformed { .. } => "a number in one of its tables can't be",
    }
}

#[cfg(test)]
mod tests {
    use larder_base::{Ring, placement::ExceptionsBuilder};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::member;

    fn ring(version: u64) -> Ring {
        Ring::new(version, ["a", "b", "c"].map(|id| member(id, 1)).to_vec()).unwrap()
    }

    /// A table that gives shards at these places to these members.
    fn table(ring: &Ring, snapshot: u8, owners: &[(u64, u16)]) -> Exceptions {
        let mut table = ExceptionsBuilder::new(ring, SnapshotId::from_bytes([snapshot; 32]), 1);
        owners
            .iter()
            .for_each(|&(place, owner)| table.except(place, [owner].into_iter().collect()));
        table.build()
    }

    fn with_checksum(body: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, body].concat();
        bytes.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    fn tables() -> Tables {
        let ring = ring(7);
        Tables::new(vec![table(&ring, 2, &[(5, 1), (9, 2)]), table(&ring, 1, &[])]).unwrap()
    }

    #[test]
    fn tables_are_found_by_snapshot() {
        let tables = tables();
        let of = |snapshot| tables.get(SnapshotId::from_bytes([snapshot; 32]));
        assert_eq!(of(2).map(Exceptions::len), Some(2));
        assert_eq!(of(1).map(Exceptions::len), Some(0));
        assert!(of(3).is_none());
        assert_eq!(tables.ring_version(), Some(7));
        assert_eq!(Tables::default().ring_version(), None);
    }

    #[test]
    fn tables_of_two_rings_or_twice_of_a_snapshot_are_refused() {
        let (seven, eight) = (ring(7), ring(8));
        let twice = Tables::new(vec![table(&seven, 1, &[]), table(&seven, 1, &[(1, 1)])]);
        assert!(twice.unwrap_err().to_string().contains("each once"));
        let mixed = Tables::new(vec![table(&seven, 1, &[]), table(&eight, 2, &[])]);
        assert!(mixed.unwrap_err().to_string().contains("different rings"));
    }

    #[test]
    fn bytes_of_another_version_or_order_are_refused() {
        let refused = |bytes: Vec<u8>| Tables::decode(&bytes).unwrap_err().to_string();
        assert!(refused(codec::encode(b"ldr-tbl1", &())).contains("another kind"));
        let of = |blocks: &[&[u8]]| {
            let blocks: Vec<&Bytes> = blocks.iter().map(|block| Bytes::new(block)).collect();
            codec::encode(MAGIC, &blocks)
        };
        let tables = tables();
        let [one, two] = [&tables.0[0], &tables.0[1]].map(Exceptions::as_bytes);
        assert_eq!(Tables::decode(&of(&[one, two])), Ok(tables.clone()));
        assert!(refused(of(&[two, one])).contains("not sorted"));
        let mut newer = one.to_vec();
        newer[8] = 9;
        assert!(refused(of(&[&newer])).contains("version unknown here"));
        assert!(refused(of(&[&one[1..]])).contains("none"));
        let mut damaged = two.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(refused(of(&[one, &damaged])).contains("checksum of one"));
    }

    #[test]
    fn false_lengths_allocate_no_memory() {
        // An array of 2^32 - 1 tables, and one table of as many bytes.
        for body in [&[0xdd, 0xff, 0xff, 0xff, 0xff][..], &[0x91, 0xc6, 0xff, 0xff, 0xff, 0xff]] {
            assert!(Tables::decode(&with_checksum(body)).is_err());
        }
        assert!(Tables::decode(&vec![0; limits::BLOB_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn tables_read_back(
            owners in prop::collection::btree_map(
                any::<u8>(),
                prop::collection::btree_map(any::<u64>(), 0_u16..3, 0..40),
                0..6,
            ),
            version in any::<u64>(),
        ) {
            let ring = ring(version);
            let tables = owners.iter().map(|(&snapshot, owners)| {
                let owners: Vec<(u64, u16)> = owners.iter().map(|(&p, &o)| (p, o)).collect();
                table(&ring, snapshot, &owners)
            });
            let tables = Tables::new(tables.collect()).unwrap();
            let bytes = tables.encode();
            prop_assert_eq!(Tables::decode(&bytes), Ok(tables.clone()));
            prop_assert_eq!(tables.iter().count(), owners.len());
            for cut in [0, bytes.len() / 2, bytes.len() - 1] {
                prop_assert!(Tables::decode(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn flipped_bit_is_detected(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut bytes = tables().encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Tables::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            // The checksum is right, so the decoder looks at the contents.
            let decoded = Tables::decode(&with_checksum(&body));
            prop_assert!(decoded.is_err() || decoded == Ok(Tables::default()));
        }
    }
}
