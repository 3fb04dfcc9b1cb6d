//! Nodes are cut off from each other, from etcd and from clients, in network namespaces. That takes
//! root and `ip`, so it is part of `make test-full` only.

use std::thread;
use std::time::Duration;

use larder_membership::Timing;
use larder_tests::netns::Network;
use larder_tests::{Etcd, Keeper, LivingCluster, Load, is_left_to_full, words};

/// The longest wait for one batch: a host that is cut off answers nothing at all.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Nodes of the cluster.
const NODES: usize = 5;

#[test]
fn partitioned_node_loses_no_sample_or_byte_and_returns() {
    if is_left_to_full("cutting hosts off by network namespaces") {
        return;
    }
    // One after the other: they would share the address of this host.
    nodes_are_cut_off(|| Keeper::Etcd(Etcd::start_on(&Network::own_address())));
    nodes_are_cut_off(|| Keeper::FirstNode);
}

fn nodes_are_cut_off(keeper: impl FnOnce() -> Keeper) {
    let all: Vec<usize> = (0..NODES).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    words::write(&folder.path().join("words"), 24, 64, 1024);
    let origin = format!("file://{}", folder.path().display());
    let network = Network::new();
    let cluster = LivingCluster::start_in(Some(network), keeper(), NODES, &origin, &[]);
    let load = Load::start(
        2,
        env!("CARGO_BIN_EXE_larder-test-client"),
        &format!("{origin}/words"),
        &cluster.address(),
        &[],
    );
    let cut = |host, cut| cluster.network.as_ref().expect("it has one").set_cut(host, cut);
    let version = cluster.until_ring(&all);

    // For longer than its announcement lives, and for less than its grace.
    cut(1, true);
    thread::park_timeout(Timing::REAL.announcement_ttl + Duration::from_secs(5));
    cut(1, false);
    assert_eq!(cluster.until_ring(&all), version);

    // Until the others count it as dead; then it returns for its whole hold.
    cut(2, true);
    assert!(cluster.until_ring(&[0, 1, 3, 4]) > version);
    cut(2, false);
    cluster.until_ring(&all);

    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("cut off: {read:?}");
}
