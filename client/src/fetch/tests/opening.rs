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
fn node_that_opens_slowly_is_skipped_for_other_nodes() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    nodes[0].state.opens_slowly.store(true, SeqCst);
    let fetcher = impatient(&fixture, &address);
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!((sources.rows_remote, sources.rows_origin), (SAMPLES, 0));
    assert!(nodes[0].asked().is_empty());
}

#[test]
fn rows_come_from_origin_when_all_nodes_open_slowly() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, false);
    nodes.iter().for_each(|node| node.state.opens_slowly.store(true, SeqCst));
    let fetcher = impatient(&fixture, &address);
    let sources = gather(&fixture, &fetcher, &shuffled(&fixture)).unwrap();
    assert_eq!(sources.rows_origin, SAMPLES);
}

#[test]
fn view_does_not_wait_for_a_node_that_opens_slowly() {
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
