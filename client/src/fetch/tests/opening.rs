//! Healthy nodes that take long to open a dataset.

use super::*;

/// A fetcher with a deadline before such a node is passed over.
fn impatient(fixture: &Fixture, address: &str) -> Arc<Fetcher> {
    let patience = limits::OPEN_NODE_TIMEOUT / 2;
    let options = FetchOptions { patience, ..FetchOptions::default() };
    let cluster = Cluster::connect(address).unwrap();
    Fetcher::new(fixture.manifest.clone(), &name(fixture), Some(cluster), options)
}

#[test]
fn a_node_that_takes_long_to_open_is_passed_over_and_the_others_are_asked() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    nodes[0].state.opens_slowly.store(true, SeqCst);
    let fetcher = impatient(&fixture, &address);
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!((sources.rows_remote, sources.rows_origin), (SAMPLES, 0));
    assert!(nodes[0].asked().is_empty());
}

#[test]
fn where_all_nodes_take_long_to_open_rows_come_from_the_origin() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    nodes.iter().for_each(|node| node.state.opens_slowly.store(true, SeqCst));
    let fetcher = impatient(&fixture, &address);
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(sources.rows_origin, SAMPLES);
}

#[test]
fn what_a_node_takes_long_to_open_is_not_waited_for_to_be_mapped() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 1, true);
    nodes[0].state.opens_slowly.store(true, SeqCst);
    let fetcher = fetcher(&fixture, &address, true);
    let row = RowRef { shard: 3, row: 5 };
    assert!(fetcher.view(row, 0).is_none());
    nodes[0].state.opens_slowly.store(false, SeqCst);
    let deadline = process::now() + Duration::from_secs(20);
    while fetcher.view(row, 0).is_none() {
        assert!(process::now() < deadline, "the node was never asked again");
    }
}
