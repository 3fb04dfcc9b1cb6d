//! Lookups with and without exceptions, and tables that are damaged or hostile.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::limits;

fn ring(version: u64, members: usize) -> Arc<Ring> {
    let member = |index: usize| Member {
        id: format!("node-{index}"),
        weight: 1,
        control: format!("http://node-{index}:7070"),
        host: format!("host-{index}"),
        zone: format!("zone-{}", index % 3),
    };
    Arc::new(Ring::new(version, (0..members).map(member).collect()).unwrap())
}

fn shard(index: u64) -> ShardId {
    ShardId::from_bytes(xxhash_rust::xxh3::xxh3_128(&index.to_le_bytes()).to_le_bytes())
}

const SNAPSHOT: SnapshotId = SnapshotId::from_bytes([9; 32]);

/// Makes exceptions that move every third of `count` shards on by one member.
fn turned(ring: &Ring, replicas: usize, count: u64) -> (Exceptions, BTreeMap<u64, Owners>) {
    let members = u16::try_from(ring.members().len()).unwrap();
    let turned = (0..count).step_by(3).map(|index| {
        let place = place_of(shard(index));
        let owners = ring.owners_at(place, replicas);
        (place, owners.iter().map(|owner| (owner + 1) % members).collect())
    });
    let turned: BTreeMap<u64, Owners> = turned.collect();
    let mut builder = ExceptionsBuilder::new(ring, SNAPSHOT, replicas);
    turned.iter().for_each(|(&place, &owners)| builder.except(place, owners));
    (builder.build(), turned)
}

#[test]
fn a_placement_without_exceptions_is_the_ring() {
    let ring = ring(1, 9);
    let (empty, _) = turned(&ring, 2, 0);
    let planned = Placement::new(ring.clone(), empty).unwrap();
    let copied = (*ring).clone().with_replicas(2).unwrap();
    let plain = Placement::of_ring(Arc::new(copied));
    for shard in (0..2_000).map(shard) {
        assert_eq!(plain.owner(shard), ring.owner(shard));
        assert_eq!(plain.owners(shard), planned.owners(shard));
        let owners: Vec<_> = planned.owners(shard).iter().map(|&o| planned.member(o)).collect();
        assert!(owners.into_iter().eq(ring.owners(shard, 2)));
    }
}

#[test]
fn exceptions_apply_to_their_shards_only() {
    for count in [1, 2, 3, 10, 1_000, 20_000] {
        for replicas in [1, 3] {
            let ring = ring(4, 9);
            let (table, turned) = turned(&ring, replicas, count);
            assert_eq!(table.len(), turned.len());
            let table = Exceptions::parse(Bytes::copy_from_slice(table.as_bytes())).unwrap();
            let placement = Placement::new(ring.clone(), table).unwrap();
            for place in (0..count).map(|index| place_of(shard(index))) {
                let expected = turned.get(&place).copied();
                let expected = expected.unwrap_or_else(|| ring.owners_at(place, replicas));
                assert_eq!(placement.owners_at(place), expected);
            }
            let edges = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63];
            assert!(
                edges.iter().all(|&at| placement.owners_at(at) == ring.owners_at(at, replicas))
            );
        }
    }
}

#[test]
fn a_walk_begins_with_the_owners_and_names_every_member_once() {
    let ring = ring(1, 9);
    let (table, _) = turned(&ring, 3, 300);
    let placement = Placement::new(ring, table).unwrap();
    for shard in (0..300).map(shard) {
        let walk: Vec<&str> = placement.walk(shard).map(|member| member.id.as_str()).collect();
        let owners = placement.owners(shard);
        let owners = owners.iter().map(|&owner| placement.member(owner).id.as_str());
        assert!(owners.eq(walk[..3].iter().copied()));
        assert_eq!(placement.owner(shard).id, walk[0]);
        assert_eq!(walk.iter().collect::<HashSet<_>>().len(), 9);
        assert_eq!(walk.len(), 9);
    }
}

#[test]
fn exceptions_to_another_ring_are_refused() {
    let (table, _) = turned(&ring(4, 9), 1, 30);
    assert!(Placement::new(ring(4, 9), table.clone()).is_ok());
    for other in [ring(5, 9), ring(4, 8), ring(4, 10)] {
        let error = Placement::new(other, table.clone()).unwrap_err();
        assert!(error.to_string().contains("to ring version 4"), "{error}");
    }
}

#[test]
fn table_does_not_depend_on_the_order_of_its_exceptions() {
    let ring = ring(1, 9);
    let (table, turned) = turned(&ring, 1, 900);
    let mut builder = ExceptionsBuilder::new(&ring, SNAPSHOT, 1);
    turned.iter().rev().for_each(|(&place, &owners)| builder.except(place, owners));
    assert_eq!(builder.build().digest(), table.digest());
    assert_ne!(self::turned(&ring, 1, 897).0.digest(), table.digest());
}

#[test]
fn no_table_is_larger_than_the_shards_of_its_snapshot_allow() {
    let ring = ring(1, 9);
    for count in [0_u32, 1, 7, 3_000] {
        let (table, _) = turned(&ring, 8, u64::from(count) * 3);
        assert_eq!(table.as_bytes().len() as u64, Exceptions::bytes_max(count));
    }
    let largest = Exceptions::bytes_max(limits::SHARDS_MAX);
    assert!(largest <= EXCEPTIONS_BYTES_MAX, "{largest}");
}

#[test]
fn an_exception_takes_less_than_twelve_bytes() {
    let (table, _) = turned(&ring(1, 16), 1, 300_000);
    let each = table.as_bytes().len() as f64 / table.len() as f64;
    assert!(each < 12.0, "{each} bytes an exception");
}

/// Returns the table after a change, with a hash that fits it.
fn changed(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Result<Exceptions, ExceptionsError> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    if bytes.len() >= format::HEADER_BYTES {
        format::write_hash(&mut bytes);
    }
    Exceptions::parse(bytes.into())
}

#[test]
fn a_damaged_table_is_refused() {
    let (table, _) = turned(&ring(1, 9), 2, 60);
    let bytes = table.as_bytes();
    for length in 0..bytes.len() {
        assert!(Exceptions::parse(Bytes::copy_from_slice(&bytes[..length])).is_err());
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        assert!(Exceptions::parse(damaged.into()).is_err(), "byte {at}");
    }
    assert!(changed(bytes, |bytes| bytes.push(0)).is_err());
}

#[test]
fn hostile_table_with_a_valid_hash_is_refused() {
    let (table, _) = turned(&ring(1, 9), 2, 60);
    let (bytes, at) = (table.as_bytes(), table.tables);
    assert!(changed(bytes, |_| ()).is_ok());
    let set = |from: usize, value: &[u8]| {
        let refused =
            changed(bytes, |bytes| bytes[from..from + value.len()].copy_from_slice(value));
        refused.expect_err("a hostile table").to_string()
    };
    assert!(set(0, b"LARDERMF").contains("not a table"));
    assert!(set(8, &[1]).contains("version 1,"));
    assert!(set(12, &[1]).contains("another size"));
    assert!(set(32, &[0xff; 8]).contains("says it has"));
    assert!(set(88, &[0xff; 4]).contains("more exceptions than"));
    assert!(set(88, &[21]).contains("fill it"));
    assert!(set(92, &[0, 0]).contains("no or too many members"));
    assert!(set(92, &[0xff, 0xff]).contains("no or too many members"));
    assert!(set(92, &[1, 0]).contains("fill it"));
    assert!(set(92, &[2, 0]).contains("outside the ring"));
    assert!(set(94, &[0]).contains("replicas"));
    assert!(set(94, &[9]).contains("replicas"));
    assert!(set(95, &[64]).contains("fan-out"));
    assert!(set(95, &[255]).contains("fan-out"));
    assert!(set(at.fan, &[1]).contains("slot 0"));
    assert!(set(at.fan + 4, &[0xff; 4]).contains("slot 0"));
    assert!(set(at.places - 4, &[0; 4]).contains("slot"));
    assert!(set(at.places, &[0xff; 8]).contains("place 0 lies elsewhere"));
    let first = table.tables.place(bytes, 1).to_le_bytes();
    assert!(set(at.places, &first).contains("is not above"));
    assert!(set(at.owners, &[9, 0]).contains("outside the ring"));
    let twice = [bytes[at.owners], bytes[at.owners + 1]];
    assert!(set(at.owners + 2, &twice).contains("an owner twice"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), head in any::<bool>()) {
        if head && bytes.len() >= format::HEADER_BYTES {
            let length = bytes.len() as u64;
            bytes[..8].copy_from_slice(&format::MAGIC);
            bytes[8..12].copy_from_slice(&format::VERSION.to_le_bytes());
            bytes[12..16].copy_from_slice(&96_u32.to_le_bytes());
            bytes[32..40].copy_from_slice(&length.to_le_bytes());
            let (count, bits) = (u32::from(bytes[88]) % 20, bytes[95] % 3);
            bytes[88..92].copy_from_slice(&count.to_le_bytes());
            bytes[92..96].copy_from_slice(&[7, 0, 1, bits]);
            format::write_hash(&mut bytes);
        }
        drop(Exceptions::parse(bytes.into()));
    }
}
