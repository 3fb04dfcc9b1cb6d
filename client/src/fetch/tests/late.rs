//! Nodes that are all down at first.

use super::*;
use crate::runtime;

/// Two nodes that are down.
fn asleep(fixture: &Arc<Fixture>) -> (Vec<FakeNode>, String) {
    let (mut nodes, address) = cluster(fixture, 2, false);
    nodes.iter_mut().for_each(FakeNode::kill);
    (nodes, address)
}

#[test]
fn nodes_that_start_after_the_client_are_used() {
    let fixture = Fixture::new();
    let (mut nodes, address) = asleep(&fixture);
    let cluster = Cluster::new(&address).unwrap();
    let options = FetchOptions::default();
    let fetcher = Fetcher::new(fixture.manifest.clone(), &name(&fixture), Some(cluster), options);
    let rows = shuffled(&fixture);
    for _ in 0..3 {
        assert_eq!(gather(&fixture, &fetcher, &rows).unwrap().rows_origin, SAMPLES);
    }
    nodes.iter_mut().for_each(FakeNode::restart);
    let deadline = process::now() + Duration::from_secs(60);
    while gather(&fixture, &fetcher, &rows).unwrap().rows_remote < SAMPLES {
        assert!(process::now() < deadline, "the nodes were never asked");
    }
    assert!(nodes.iter().any(|node| !node.asked().is_empty()));
}

#[test]
fn cluster_never_reached_has_no_members_and_fails_requests() {
    let fixture = Fixture::new();
    let (mut nodes, address) = asleep(&fixture);
    let cluster = Cluster::new(&address).unwrap();
    assert!(cluster.members().is_empty());
    assert_eq!(cluster.memory(), crate::ClusterMemory::default());
    let error = cluster.open_dataset(&name(&fixture)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    nodes.iter_mut().for_each(FakeNode::restart);
    // A call now succeeds, without a wait for the next background check.
    cluster.open_dataset(&name(&fixture)).unwrap();
    assert_eq!(cluster.members().len(), 2);
}

#[test]
fn configured_addresses_are_asked_again_when_members_are_gone() {
    let fixture = Fixture::new();
    let (mut nodes, address) = cluster(&fixture, 2, false);
    let members = nodes[0].state.members.lock().unwrap().clone();
    // The node at the address reports the other one as the only member, which then goes down.
    *nodes[0].state.members.lock().unwrap() = vec![members[1].clone()];
    let client = Cluster::connect(&address).unwrap();
    nodes[1].kill();
    client.open_dataset(&name(&fixture)).unwrap_err();
    *nodes[0].state.members.lock().unwrap() = vec![members[0].clone()];
    runtime::block_on(client.refresh()).unwrap();
    assert_eq!(client.members()[0].id, "node-0");
    client.open_dataset(&name(&fixture)).unwrap();
}
