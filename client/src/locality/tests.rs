use larder_base::{ErrorKind, limits};

use super::*;
use crate::Error;

fn table(snapshot: u8, per_shard: usize, hosts: &[u16]) -> Table {
    let snapshot = SnapshotId::from_bytes([snapshot; 16]);
    Table { snapshot, ring_version: 9, per_shard, hosts: hosts.into() }
}

fn locality() -> Locality {
    let tables = vec![table(1, 2, &[0, 1, 1, NOBODY, 1, 0]), table(2, 1, &[1])];
    Locality::new(RankHosts::new([0, 0, 1]), tables)
}

#[test]
fn what_one_process_made_others_read() {
    let (made, bytes) = (locality(), locality().to_bytes());
    assert_eq!(bytes.len(), 32 + 3 * 2 + (32 + 6 * 2) + (32 + 2));
    let read = Locality::from_bytes(&bytes).unwrap();
    assert!(read == made && read.id() == made.id());
    let (snapshot, other) = (SnapshotId::from_bytes([1; 16]), SnapshotId::from_bytes([2; 16]));
    assert_eq!((read.table(snapshot, 3), read.table(other, 1)), (Some(0), Some(1)));
    assert_eq!(
        (read.table(snapshot, 4), read.table(SnapshotId::from_bytes([3; 16]), 3)),
        (None, None)
    );
    assert_eq!(read.holders(0, 1), [1, NOBODY]);
    assert_eq!(read.holders(1, 0), [1]);
}

#[test]
fn all_that_it_says_is_in_its_name() {
    let others = [
        Locality::new(RankHosts::new([0, 1, 1]), vec![table(1, 1, &[0])]),
        Locality::new(RankHosts::new([0, 0, 1]), vec![table(1, 1, &[1])]),
        Locality::new(RankHosts::new([0, 0, 1]), vec![table(2, 1, &[0])]),
        Locality::new(RankHosts::new([0, 0, 1]), vec![table(1, 1, &[0]), table(2, 1, &[0])]),
        Locality::new(RankHosts::new([0, 0, 1]), vec![]),
    ];
    for (index, one) in others.iter().enumerate() {
        assert!(others[..index].iter().all(|other| other.id() != one.id()), "{index}");
    }
}

/// A locality of these bytes after its name, with the name that they have.
fn named(body: &[u8]) -> Result<Locality, Error> {
    let hash = xxhash_rust::xxh3::xxh3_128(body);
    Locality::from_bytes(&[b"LARDLOC1", &hash.to_le_bytes()[..], body].concat())
}

#[test]
fn bytes_that_were_cut_short_or_changed_are_refused() {
    let bytes = locality().to_bytes();
    for end in 0..bytes.len() {
        let error = Locality::from_bytes(&bytes[..end]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{end}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(Locality::from_bytes(&changed).is_err(), "{at}");
    }
}

#[test]
fn counts_that_lie_are_refused_before_memory_is_taken() {
    let numbers =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let good = &locality().to_bytes()[24..];
    assert!(named(good).is_ok());
    assert!(named(&[good, &[0]].concat()).is_err(), "something is left over");
    assert!(named(&good[..good.len() - 1]).is_err());
    let head = |ranks, tables| numbers(&[ranks, tables]);
    let over = u32::try_from(limits::LOCALITY_RANKS_MAX).unwrap() + 1;
    for ranks in [0, 4, over, u32::MAX] {
        assert!(named(&[&head(ranks, 0), &[0; 6][..]].concat()).is_err(), "{ranks} ranks");
    }
    for tables in [1, u32::MAX] {
        assert!(named(&[&head(1, tables), &[0; 2][..]].concat()).is_err(), "{tables} tables");
    }
    assert!(named(&[&head(1, 0), &[1, 0][..]].concat()).is_err(), "a host without a rank");
    let with = |shards, per_shard| {
        let table = [&[0; 24], &numbers(&[shards, per_shard])[..], &[0; 64]].concat();
        named(&[&head(1, 1), &[0; 2][..], &table].concat())
    };
    assert!(with(32, 1).is_ok() && with(4, 8).is_ok());
    for (shards, per_shard) in
        [(0, 1), (1, 0), (33, 1), (2, 16), (u32::MAX, 8), (1 << 24, u32::MAX)]
    {
        assert!(with(shards, per_shard).is_err(), "{shards} shards of {per_shard} hosts");
    }
}
