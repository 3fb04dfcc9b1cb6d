//! A ring that changes while rows are read.

use super::*;
use crate::runtime;

#[test]
fn a_newer_ring_is_learned_from_the_answer_to_a_gather() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, false);
    let all = nodes[0].state.members.lock().unwrap().clone();
    *nodes[0].state.members.lock().unwrap() = all[..2].to_vec();
    let fetcher = fetcher(&fixture, &address, false);
    let rows = shuffled(&fixture);
    gather(&fixture, &fetcher, &rows).unwrap();
    assert!(nodes[2].asked().is_empty());
    // One node knows the third. The other, which is asked first by default, does not.
    *nodes[0].state.members.lock().unwrap() = all;
    nodes[1].state.ring_version.store(2, SeqCst);
    let deadline = process::now() + Duration::from_secs(60);
    while nodes[2].asked().is_empty() {
        assert!(process::now() < deadline, "the third node was never asked");
        assert_eq!(gather(&fixture, &fetcher, &rows).unwrap().rows_remote, SAMPLES);
    }
    assert_eq!(nodes[2].state.asked_by_ring.load(SeqCst), 2);
    // Answers of the node with the older ring change nothing.
    gather(&fixture, &fetcher, &rows).unwrap();
    assert_eq!(nodes[0].state.asked_by_ring.load(SeqCst), 2);
}

/// A member leaves the ring while it answers. Its rows so far are kept, and the rest comes from the
/// new owners.
#[test]
fn a_gather_survives_a_change_of_the_ring_in_its_middle() {
    for frames in [0, 1, 4] {
        let fixture = Fixture::new();
        let (nodes, address) = cluster(&fixture, 3, false);
        let fetcher = fetcher(&fixture, &address, false);
        let rows = shuffled(&fixture);
        let leaver = busiest(&fixture, &nodes, &fetcher);
        nodes[leaver].plan([Act::Die { frames }, Act::Die { frames: 0 }, Act::Die { frames: 0 }]);
        nodes[0].state.members.lock().unwrap().remove(leaver);
        let stay = || (0..3).filter(|&index| index != leaver).map(|index| &nodes[index]);
        stay().for_each(|node| node.state.ring_version.store(2, SeqCst));
        let sources = gather(&fixture, &fetcher, &rows).unwrap();
        assert_eq!((sources.rows_remote, sources.rows_origin), (SAMPLES, 0));
        assert!(!nodes[leaver].asked().is_empty(), "it was asked by the ring before");
        let deadline = process::now() + Duration::from_secs(60);
        while fetcher.cluster().unwrap().members().len() > 2 {
            assert!(process::now() < deadline, "the ring was never learned");
            gather(&fixture, &fetcher, &rows).unwrap();
        }
        nodes[leaver].state.asked.lock().unwrap().clear();
        gather(&fixture, &fetcher, &rows).unwrap();
        assert!(nodes[leaver].asked().is_empty(), "it has left");
    }
}

#[test]
fn mappings_of_a_removed_node_are_dropped() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, true);
    let fetcher = fetcher(&fixture, &address, true);
    let rows = shuffled(&fixture);
    let deadline = process::now() + Duration::from_secs(60);
    while gather(&fixture, &fetcher, &rows).unwrap().rows_local < SAMPLES {
        assert!(process::now() < deadline, "not all shards were mapped");
    }
    let attaches = |node: &FakeNode| node.state.attaches.load(SeqCst);
    assert!(attaches(&nodes[0]) < 12, "the other node has some");
    let members = nodes[0].state.members.lock().unwrap()[..1].to_vec();
    *nodes[0].state.members.lock().unwrap() = members;
    nodes.iter().for_each(|node| node.state.ring_version.store(2, SeqCst));
    while attaches(&nodes[0]) < 12 {
        assert!(process::now() < deadline, "maps of a node that left are still in use");
        runtime::block_on(fetcher.cluster().unwrap().refresh()).unwrap();
        drop(fetcher.session().routes(&fetcher.target));
        gather(&fixture, &fetcher, &rows).unwrap();
    }
    assert_eq!(attaches(&nodes[0]), 12);
}

#[test]
fn a_shard_that_is_mapped_again_is_leased_once() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, true);
    let fetcher = fetcher(&fixture, &address, true);
    let row = RowRef { shard: 3, row: 5 };
    assert!(fetcher.view(row, 0).is_some());
    // As a reader does that finds a damaged row in it.
    drop(fetcher.session().slots.take(3, Duration::ZERO));
    assert!(fetcher.view(row, 0).is_some());
    let deadline = process::now() + Duration::from_secs(60);
    while nodes[0].state.releases.lock().unwrap().is_empty() {
        assert!(process::now() < deadline, "the lease before was not given back");
        thread::yield_now();
    }
    assert_eq!(*nodes[0].state.releases.lock().unwrap(), [3]);
    assert!(fetcher.view(row, 0).is_some());
    assert_eq!(nodes[0].state.attaches.load(SeqCst), 2);
}
