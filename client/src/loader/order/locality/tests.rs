use larder_base::{ErrorKind, limits};

use super::*;

fn table(snapshot: u8, per_shard: usize, hosts: &[u16]) -> ShardHosts {
    let snapshot = SnapshotId::from_bytes([snapshot; 32]);
    ShardHosts { snapshot, ring_version: 9, per_shard, hosts: hosts.into() }
}

fn locality() -> Locality {
    let tables = vec![table(1, 2, &[0, 1, 1, NOBODY, 1, 0]), table(2, 1, &[1])];
    Locality::new(RankHosts::new([0, 0, 1]), tables)
}

#[test]
fn locality_reads_back_from_its_bytes() {
    let (made, bytes) = (locality(), locality().to_bytes());
    let read = Locality::from_bytes(&bytes).unwrap();
    assert!(read == made && read.id() == made.id());
    let (snapshot, other) = (SnapshotId::from_bytes([1; 32]), SnapshotId::from_bytes([2; 32]));
    assert_eq!((read.table(snapshot, 3), read.table(other, 1)), (Some(0), Some(1)));
    assert_eq!(
        (read.table(snapshot, 4), read.table(SnapshotId::from_bytes([3; 32]), 3)),
        (None, None)
    );
    assert_eq!(read.holders(0, 1), [1, NOBODY]);
    assert_eq!(read.holders(1, 0), [1]);
}

#[test]
fn locality_id_depends_on_every_part() {
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

#[test]
fn truncated_or_changed_bytes_are_refused() {
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
fn refuses_invalid_ranks_and_tables() {
    let read = |ranks: Vec<u16>, tables: Vec<(SnapshotId, u64, usize, Vec<u16>)>| {
        Locality::from_bytes(&larder_base::codec::encode(b"ldr-loc3", &(ranks, tables)))
    };
    let snapshot = SnapshotId::from_bytes([1; 32]);
    let with = |per_shard, hosts| read(vec![0], vec![(snapshot, 9, per_shard, vec![0; hosts])]);
    assert!(with(1, 32).is_ok() && with(8, 32).is_ok() && read(vec![0, 1], vec![]).is_ok());
    for (per_shard, hosts) in [(0, 1), (1, 0), (16, 32), (3, 32), (usize::MAX, 32)] {
        let error = with(per_shard, hosts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{per_shard} hosts of {hosts}");
    }
    assert!(read(vec![], vec![]).is_err(), "no ranks");
    assert!(read(vec![0; LOCALITY_RANKS_MAX + 1], vec![]).is_err(), "too many ranks");
    assert!(read(vec![1], vec![]).is_err(), "a host without a rank");
    let many = vec![(snapshot, 9, 1, vec![0]); limits::OPEN_DATASETS_MAX + 1];
    assert!(read(vec![0], many).is_err(), "too many tables");
}
