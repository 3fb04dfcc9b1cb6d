//! Rows over TCP: warm, cold and not kept, sent in each way.

use std::net::TcpStream;

use larder_base::{ErrorKind, limits};
use larder_wire::data::{Features, Gather, Hello, Kind, Ping};

use super::{Client, TestNode, Wire};
use crate::testing::{Folder, until};

/// More than any dataset here takes.
const ROOMY: u64 = 64 << 20;

fn check(folder: &Folder, rows: &[usize], got: &[Vec<u8>]) {
    assert_eq!(rows.len(), got.len());
    for (&row, got) in rows.iter().zip(got) {
        assert!(*got == folder.row(row), "row {row} has other bytes");
    }
}

/// Returns a batch in no order, with one row twice.
fn shuffled(count: usize) -> Vec<usize> {
    let mut rows: Vec<_> = (0..count).chain([3]).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut rows);
    rows
}

/// Fills all shards and waits until they are here.
fn warm<S: Wire>(node: &TestNode, client: &mut Client<S>, rows: usize) {
    client.gather(&node.gather(0..rows)).unwrap();
    until("all shards are resident", || node.shared.cache.usage().filling.shards == 0);
}

#[test]
fn rows_of_every_length_are_sent_in_requested_order() {
    for row_bytes in [1, 8, 63, 64, 512, 4096, 16_383, 16_384, 150_528] {
        let count = if row_bytes < 4096 { 700 } else { 60 };
        let folder = Folder::new(count, row_bytes, 1 << 18, false);
        let node = TestNode::new(&folder, ROOMY);
        let mut client = node.remote();
        let rows = shuffled(count);
        let cold = client.gather(&node.gather(rows.iter().copied())).unwrap();
        check(&folder, &rows, &cold.rows);
        assert_eq!(cold.end.rows_origin, rows.len() as u64);
        warm(&node, &mut client, count);
        let origin_bytes = node.shared.counters.origin_bytes.get();
        let wanted = node.gather(rows.iter().copied());
        let warm = client.gather(&wanted).unwrap();
        check(&folder, &rows, &warm.rows);
        assert_eq!((warm.end.rows_memory, warm.end.rows_origin), (rows.len() as u64, 0));
        let verified = client.gather(&Gather { verify: true, ..wanted }).unwrap();
        check(&folder, &rows, &verified.rows);
        assert_eq!(node.shared.counters.origin_bytes.get(), origin_bytes);
    }
}

#[test]
fn gather_reports_the_bytes_that_the_origin_sent_for_it() {
    let folder = Folder::new(60, 4096, 1 << 16, false);
    for (memory, kept) in [(ROOMY, true), (150_000, false)] {
        let node = TestNode::new(&folder, memory);
        let mut client = node.remote();
        let mut gather = || client.gather(&node.gather(0..60)).unwrap().end;
        let mut reported = gather().origin_bytes;
        assert!(reported >= 60 * 4096, "{reported}");
        until("the fills end", || node.shared.cache.usage().filling.shards == 0);
        let again = gather();
        assert_eq!(again.origin_bytes, again.rows_origin * 4096);
        assert_eq!(again.rows_origin == 0, kept);
        reported += again.origin_bytes;
        assert_eq!(reported, node.shared.counters.origin_bytes.get());
    }
}

/// Returns the lengths of 300 rows: none, a few bytes, about a block, and long enough to be sent
/// directly.
fn lengths() -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(2);
    let length = |_| match random.u8(..8) {
        0..2 => 0,
        2..5 => random.usize(..700),
        5 => random.usize(4090..4100),
        6 => random.usize(16_380..16_390),
        _ => random.usize(..60_000),
    };
    (0..300).map(length).collect()
}

#[test]
fn ragged_rows_are_sent_in_requested_order() {
    for checksum in [false, true] {
        let folder = Folder::ragged(lengths(), 1 << 18, checksum);
        let node = TestNode::new(&folder, ROOMY);
        assert!(node.dataset.manifest().shard_count() > 5);
        let mut client = node.remote();
        let rows = shuffled(300);
        let cold = client.gather(&node.gather(rows.iter().copied())).unwrap();
        check(&folder, &rows, &cold.rows);
        assert_eq!(cold.end.rows_origin, 301);
        warm(&node, &mut client, 300);
        let origin_bytes = node.shared.counters.origin_bytes.get();
        let wanted = node.gather(rows.iter().copied());
        for verify in [false, true] {
            let got = client.gather(&Gather { verify, ..wanted.clone() }).unwrap();
            check(&folder, &rows, &got.rows);
            assert_eq!((got.end.rows_memory, got.end.rows_origin), (301, 0));
        }
        assert_eq!(node.shared.counters.origin_bytes.get(), origin_bytes);
    }
}

#[test]
fn ragged_rows_are_read_by_range_when_not_kept() {
    let folder = Folder::ragged(lengths(), 1 << 18, false);
    let node = TestNode::new(&folder, 600_000);
    let mut client = node.remote();
    let rows = shuffled(300);
    for _ in 0..3 {
        let got = client.gather(&node.gather(rows.iter().copied())).unwrap();
        check(&folder, &rows, &got.rows);
        until("the fills end", || node.shared.cache.usage().filling.shards == 0);
    }
    let usage = node.shared.cache.usage();
    assert!(usage.resident.shards > 0 && usage.resident.bytes <= usage.limit_bytes);
    assert!(node.shared.counters.rows_by_range.get() > 0);
}

#[test]
fn a_shard_without_a_byte_is_filled_and_sent() {
    let folder = Folder::ragged(vec![0; 9], 4096, true);
    let node = TestNode::new(&folder, ROOMY);
    let mut client = node.remote();
    for _ in 0..2 {
        let got = client.gather(&node.gather([3, 0, 8])).unwrap();
        check(&folder, &[3, 0, 8], &got.rows);
        warm(&node, &mut client, 9);
    }
}

#[test]
fn rows_longer_than_a_frame_are_sent() {
    let folder = Folder::new(3, 5 << 20, 6 << 20, false);
    let ragged = Folder::ragged(vec![5 << 20, (5 << 20) + 7, 6 << 20], 7 << 20, false);
    let rows = [2, 0, 1];
    for folder in [&folder, &ragged] {
        let roomy = TestNode::new(folder, ROOMY);
        let cramped = TestNode::new(folder, 4096);
        for node in [&roomy, &cramped] {
            let got = node.remote().gather(&node.gather(rows)).unwrap();
            check(folder, &rows, &got.rows);
            assert_eq!(got.frames, 3);
        }
        assert_eq!(cramped.shared.counters.rows_by_range.get(), 3);
    }
}

/// One more byte than is read by range and sent at once.
const TOO_LONG: usize = limits::RANGE_STAGING_BYTES + 1;

#[test]
fn rows_over_the_range_read_limit_are_sent_in_pieces() {
    let folder = Folder::new(2, TOO_LONG, TOO_LONG as u64, false);
    let ragged = Folder::ragged(vec![7, TOO_LONG, 0], TOO_LONG as u64, false);
    for folder in [&folder, &ragged] {
        let node = TestNode::new(folder, 4096);
        let mut client = node.remote();
        let got = client.gather(&node.gather([1, 0])).unwrap();
        check(folder, &[1, 0], &got.rows);
        assert_eq!(got.end.rows_origin, 2);
        assert!(got.frames > 8, "{} frames", got.frames);
        assert_eq!(node.shared.counters.rows_by_range.get(), 2);
        assert_eq!(node.shared.counters.origin_bytes.get(), got.rows.concat().len() as u64);
        let here = node.local().gather(&node.gather([1])).unwrap();
        check(folder, &[1], &here.rows);
    }
}

#[test]
fn client_without_pieces_is_refused_and_stays_connected() {
    let folder = Folder::ragged(vec![7, TOO_LONG], TOO_LONG as u64, false);
    let node = TestNode::new(&folder, 4096);
    let mut client = Client::new(TcpStream::connect(node.data).unwrap());
    let mut hello = Hello::new(node.servers.context.ticket, 0, "before there were pieces");
    hello.features = Features::default();
    client.hello_as(&hello).unwrap();
    let error = client.gather(&node.gather([1])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("update the client"), "{error}");
    check(&folder, &[0], &client.gather(&node.gather([0])).unwrap().rows);
}

#[test]
fn kept_and_unkept_rows_are_sent_in_one_gather() {
    for row_bytes in [100, 20_000] {
        let folder = Folder::new(400, row_bytes, 100 * row_bytes as u64, false);
        let extent_bytes = crate::testing::CacheFixture::extent_bytes(&folder, 100);
        let node = TestNode::new(&folder, 2 * extent_bytes);
        let mut client = node.remote();
        let rows = shuffled(400);
        for _ in 0..2 {
            let got = client.gather(&node.gather(rows.iter().copied())).unwrap();
            check(&folder, &rows, &got.rows);
            until("the fills end", || node.shared.cache.usage().filling.shards == 0);
        }
        let usage = node.shared.cache.usage();
        assert!(usage.resident.bytes <= usage.limit_bytes);
        assert!(node.shared.counters.rows_by_range.get() > 0);
    }
}

#[test]
fn node_sends_keepalives_while_a_fill_stalls() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let mut client = node.remote();
    let wanted = node.gather([7, 2]);
    client.send(|out| wanted.encode(42, out));
    for _ in 0..2 {
        let (header, _) = client.frame().unwrap();
        assert_eq!((header.kind(), header.request()), (Kind::Pong, 42));
    }
    assert!(node.shared.read_through.is_idle(), "who waits for a fill holds what all read through");
    node.start_workers();
    let got = client.receive_rows(&wanted).unwrap();
    check(&folder, &[7, 2], &got.rows);
}

#[test]
fn failed_fill_is_an_error_and_keeps_the_connection() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::new(&folder, ROOMY);
    std::fs::write(folder.file(), "something else").unwrap();
    let mut client = node.remote();
    let error = client.gather(&node.gather([0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataChanged, "{error}");
    client.send(|out| Ping.encode(5, out));
    let (header, _) = client.frame().unwrap();
    assert_eq!((header.kind(), header.request()), (Kind::Pong, 5));
}

#[test]
fn missing_rows_are_an_error_and_keep_the_connection() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::new(&folder, ROOMY);
    let mut client = node.remote();
    let good = node.gather([1]);
    let mut bad = [good.clone(), good.clone(), good.clone(), good.clone()];
    bad[0].rows[0].row = 10;
    bad[1].rows[0].shard = 1;
    bad[2].tensors[0] = 1;
    bad[3].snapshot = larder_base::SnapshotId::from_bytes([9; 32]);
    for wanted in bad {
        assert_eq!(client.gather(&wanted).unwrap_err().kind(), ErrorKind::NotFound);
    }
    check(&folder, &[1], &client.gather(&good).unwrap().rows);
}

#[test]
fn the_largest_request_is_answered_and_its_memory_returned() {
    let folder = Folder::new(100, 8, 1 << 20, false);
    let node = TestNode::new(&folder, ROOMY);
    let rows: Vec<_> = (0..65_536).map(|index| index % 100).collect();
    let mut client = node.remote();
    for _ in 0..20 {
        let got = client.gather(&node.gather(rows.iter().copied())).unwrap();
        check(&folder, &rows, &got.rows);
    }
    assert_eq!(node.servers.context.activity.gathering.get(), 0);
}

#[test]
fn a_request_in_flight_is_finished_while_the_node_drains() {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::unmanned(&folder, ROOMY);
    let mut client = node.remote();
    let mut idle = node.remote();
    let wanted = node.gather([4]);
    client.send(|out| wanted.encode(42, out));
    assert_eq!(client.frame().unwrap().0.kind(), Kind::Pong);
    std::thread::scope(|scope| {
        scope.spawn(|| node.servers.drain(super::PATIENCE));
        assert!(idle.hung_up());
        node.start_workers();
        check(&folder, &[4], &client.receive_rows(&wanted).unwrap().rows);
        assert!(client.hung_up());
    });
    // The accepting thread ends on its own, and another test may take the port for a while.
    until("nobody listens", || TcpStream::connect(node.data).is_err());
    assert!(!node.socket_path().exists());
}
