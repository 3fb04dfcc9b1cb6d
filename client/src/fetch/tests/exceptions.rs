//! Exceptions to the ring, and a client that learns them.

use bytes::Bytes;
use larder_base::{
    Ring, SnapshotId,
    placement::{Exceptions, ExceptionsBuilder},
    ring::place_of,
};

use super::{fake::Table, *};
use crate::Dataset;

fn all_to(fixture: &Fixture, nodes: &[FakeNode], version: u64, member: u16) -> Bytes {
    owned(fixture, fixture.manifest.snapshot(), nodes, version, &[member])
}

/// A table of this snapshot that gives all shards to these members.
fn owned(
    fixture: &Fixture,
    snapshot: SnapshotId,
    nodes: &[FakeNode],
    version: u64,
    owners: &[u16],
) -> Bytes {
    let members = nodes[0].state.members.lock().unwrap().clone();
    let ring = Ring::new(version, members).unwrap();
    let mut table = ExceptionsBuilder::new(&ring, snapshot, owners.len());
    for shard in 0..fixture.manifest.shard_count() {
        let place = place_of(fixture.manifest.shard(shard).id);
        table.except(place, owners.iter().copied().collect());
    }
    Bytes::copy_from_slice(table.build().as_bytes())
}

fn answer(nodes: &[FakeNode], table: &Table) {
    for node in nodes {
        *node.state.table.lock().unwrap() = table.clone();
    }
}

fn turn_to(nodes: &[FakeNode], version: u64) {
    nodes.iter().for_each(|node| node.state.ring_version.store(version, SeqCst));
}

fn times_asked_for_tables(nodes: &[FakeNode]) -> usize {
    nodes.iter().map(|node| node.state.table_asked.load(SeqCst)).sum()
}

/// Reads everything repeatedly. Returns the last requests to each node once `done`.
fn read_until(
    fixture: &Fixture,
    fetcher: &Fetcher,
    nodes: &[FakeNode],
    what: &str,
    done: impl Fn(&[usize]) -> bool,
) -> Vec<usize> {
    let (rows, deadline) = (shuffled(fixture), process::now() + Duration::from_secs(60));
    loop {
        nodes.iter().for_each(|node| node.state.asked.lock().unwrap().clear());
        gather(fixture, fetcher, &rows).unwrap();
        let cells: Vec<usize> = nodes.iter().map(cells).collect();
        if done(&cells) {
            return cells;
        }
        assert!(process::now() < deadline, "{what} never happened, but {cells:?}");
    }
}

fn last_ring(nodes: &[FakeNode]) -> u64 {
    nodes.iter().map(|node| node.state.asked_by_ring.load(SeqCst)).max().unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "a few hundred")]
const ALL_CELLS: usize = 2 * SAMPLES as usize;

#[test]
fn exceptions_decide_which_node_is_asked() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    answer(&nodes, &Table::Is(all_to(&fixture, &nodes, 1, 2)));
    let fetcher = fetcher(&fixture, &address, false);
    read_until(&fixture, &fetcher, &nodes, "the table", |cells| cells == [0, 0, ALL_CELLS]);
    let asked = times_asked_for_tables(&nodes);
    read_until(&fixture, &fetcher, &nodes, "a read", |cells| cells == [0, 0, ALL_CELLS]);
    assert_eq!((asked, times_asked_for_tables(&nodes)), (1, 1), "it was asked for once");
}

#[test]
fn opening_a_dataset_loads_the_exceptions_before_any_read() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    answer(&nodes, &Table::Is(all_to(&fixture, &nodes, 1, 1)));
    let uri = fixture.manifest.uri().to_string();
    let dataset = Dataset::options().cluster(address).local(false).open(&uri).unwrap();
    assert_eq!(times_asked_for_tables(&nodes), 1);
    dataset.read(17, "label").unwrap();
    assert_eq!(nodes.iter().map(|node| node.asked().len()).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn client_switches_ring_once_it_has_the_new_exceptions() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    answer(&nodes, &Table::Is(all_to(&fixture, &nodes, 1, 0)));
    let fetcher = fetcher(&fixture, &address, false);
    read_until(&fixture, &fetcher, &nodes, "the first table", |cells| cells[0] == ALL_CELLS);
    answer(&nodes, &Table::OtherRing);
    turn_to(&nodes, 2);
    let before = times_asked_for_tables(&nodes);
    // The client asks all nodes again and again, until one says that no shard has another owner.
    let asked_again = |_: &[usize]| times_asked_for_tables(&nodes) >= before + 6;
    let cells = read_until(&fixture, &fetcher, &nodes, "asking", asked_again);
    assert_eq!(cells, [ALL_CELLS, 0, 0]);
    assert_eq!(last_ring(&nodes), 1);
    answer(&nodes, &Table::Is(all_to(&fixture, &nodes, 2, 2)));
    let cells = read_until(&fixture, &fetcher, &nodes, "the second", |cells| cells[2] > 0);
    assert_eq!(cells, [0, 0, ALL_CELLS], "all shards at once");
    assert_eq!(last_ring(&nodes), 2);
}

#[test]
fn unusable_exceptions_leave_the_ring_in_use() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let right = all_to(&fixture, &nodes, 1, 2);
    let other = owned(&fixture, SnapshotId::from_bytes([1; 32]), &nodes, 1, &[2]);
    let mut damaged = right.to_vec();
    damaged[100] ^= 4;
    let (bytes, max) = (right.len() as u64, Exceptions::bytes_max(12));
    let useless = [
        Table::Is(all_to(&fixture, &nodes, 2, 2)),
        Table::Is(other),
        Table::Is(damaged.into()),
        Table::Is(right.slice(..right.len() - 1)),
        Table::Announced(max + 1, right.clone()),
        Table::Announced(u64::MAX, right.clone()),
        Table::Announced(bytes - 1, right.clone()),
        Table::Announced(0, right),
        Table::Unimplemented,
    ];
    let bare = fetcher(&fixture, &address, false);
    let by_ring = read_until(&fixture, &bare, &nodes, "a read", |_| true);
    assert!(by_ring.iter().all(|&cells| cells < ALL_CELLS));
    for table in useless {
        answer(&nodes, &table);
        let fetcher = fetcher(&fixture, &address, false);
        let before = times_asked_for_tables(&nodes);
        let asked = |_: &[usize]| times_asked_for_tables(&nodes) == before + 3;
        read_until(&fixture, &fetcher, &nodes, "asking all", asked);
        for _ in 0..3 {
            assert_eq!(read_until(&fixture, &fetcher, &nodes, "a read", |_| true), by_ring);
        }
        assert_eq!(times_asked_for_tables(&nodes), before + 3, "{table:?} is asked for no more");
    }
}

#[test]
fn exceptions_come_from_another_node_when_the_first_has_none() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    answer(&nodes[..2], &Table::Unimplemented);
    answer(&nodes[2..], &Table::Is(all_to(&fixture, &nodes, 1, 1)));
    let fetcher = fetcher(&fixture, &address, false);
    read_until(&fixture, &fetcher, &nodes, "the table", |cells| cells == [0, ALL_CELLS, 0]);
}
