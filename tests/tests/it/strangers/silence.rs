//! Strangers that connect to the data port and say nothing.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larder_client::Dataset;
use larder_tests::stranger::{ADDRESS, connect};
use larder_tests::tool::{larder, said};
use larder_tests::{NodeOptions, NodeProcess, until, write_npy};

/// A node that may open so many files, over one file of samples.
fn node(folder: &Path, files: usize) -> (NodeProcess, String) {
    let data = folder.join("data");
    std::fs::create_dir(&data).expect("a folder");
    write_npy(&data.join("x.npy"), 64);
    let uri = format!("file://{}", data.display());
    let mut options = NodeOptions::new("a", &uri);
    options.wrapper = vec!["prlimit".to_owned(), format!("--nofile={files}:{files}")];
    (NodeProcess::start(&options), uri)
}

/// Runs a check while a stranger holds `count` silent connections.
fn beside_silence(node: &NodeProcess, count: usize, check: impl FnOnce()) {
    let (stop, begun) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| be_silent(&node.data_address(), count, &begun, &stop));
        begun.wait();
        let _ends = Ends(&stop);
        check();
    });
}

/// Ends the silence, even if the check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Holds connections, and replaces the oldest one again and again.
fn be_silent(to: &str, count: usize, begun: &Barrier, stop: &AtomicBool) {
    let mut held = VecDeque::new();
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        held.extend(connect(ADDRESS, to));
        if held.len() > count {
            held.pop_front();
        }
        made += 1;
        if made == count {
            begun.wait();
        }
    }
}

/// Reads a row of the dataset through the node, as a new client.
fn read_a_row(node: &NodeProcess, uri: &str) {
    let dataset = Dataset::options().cluster(node.address()).local(false).open(uri);
    let dataset = dataset.expect("the node opens it");
    assert_eq!(dataset.read(60, "x").expect("a row"), [60]);
}

fn gathers(node: &NodeProcess) -> u64 {
    node.describe().counters.expect("counters").gathers
}

#[test]
fn node_without_descriptors_serves_operators_and_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (node, uri) = node(folder.path(), 256);
    beside_silence(&node, 512, || {
        let listed = larder(&node.address(), folder.path(), None, &["node", "ls"]);
        assert!(listed.status.success(), "{}", said(&listed));
        read_a_row(&node, &uri);
        assert!(gathers(&node) > 0, "the row came from the origin");
    });
}

#[test]
fn new_clients_are_served_beside_silent_connections() {
    const CLIENTS: u64 = 50;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (node, uri) = node(folder.path(), 4096);
    let served = || {
        let before = gathers(&node);
        // A client that this host is too busy to serve in time reads the origin. Another one comes.
        until("a new client gets its row from the node", || {
            read_a_row(&node, &uri);
            gathers(&node) > before
        });
    };
    beside_silence(&node, 2_000, || (0..CLIENTS).for_each(|_| served()));
}
