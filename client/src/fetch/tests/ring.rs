//! A ring that changes while rows are read.

use super::*;

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
    // One node knows of the third; the other, which is asked first when nothing is heard, does not.
    *nodes[0].state.members.lock().unwrap() = all;
    nodes[1].state.ring_version.store(2, SeqCst);
    let deadline = process::now() + Duration::from_secs(60);
    while nodes[2].asked().is_empty() {
        assert!(process::now() < deadline, "the third node was never asked");
        assert_eq!(gather(&fixture, &fetcher, &rows).unwrap().rows_remote, SAMPLES);
    }
    assert_eq!(nodes[2].state.asked_by_ring.load(SeqCst), 2);
    // What a node says that has the older ring changes nothing.
    gather(&fixture, &fetcher, &rows).unwrap();
    assert_eq!(nodes[0].state.asked_by_ring.load(SeqCst), 2);
}
