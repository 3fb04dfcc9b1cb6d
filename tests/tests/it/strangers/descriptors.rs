//! Strangers that take all descriptors of a node.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larder_client::Dataset;
use larder_tests::stranger::{ADDRESS, connect};
use larder_tests::tool::{larder, said};
use larder_tests::{NodeOptions, NodeProcess, write_npy};

/// Descriptors of the node, and connections of the stranger.
const FILES: usize = 256;

#[test]
fn node_without_descriptors_serves_operators_and_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    write_npy(&data.join("x.npy"), 64);
    let uri = format!("file://{}", data.display());
    let mut options = NodeOptions::new("a", &uri);
    options.wrapper = vec!["prlimit".to_owned(), format!("--nofile={FILES}:{FILES}")];
    let node = NodeProcess::start(&options);
    let (stop, begun) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| flood(&node.data_address(), &begun, &stop));
        begun.wait();
        let _ends = Ends(&stop);
        check(&node, folder.path(), &uri);
    });
}

/// Ends the flood, even if the check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Holds as many connections as it can, and makes a new one for each that is closed.
fn flood(to: &str, begun: &Barrier, stop: &AtomicBool) {
    let mut held = VecDeque::new();
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        held.extend(connect(ADDRESS, to));
        if held.len() > 2 * FILES {
            held.pop_front();
        }
        made += 1;
        if made == 2 * FILES {
            begun.wait();
        }
    }
}

fn check(node: &NodeProcess, folder: &Path, uri: &str) {
    let listed = larder(&node.address(), folder, None, &["node", "ls"]);
    assert!(listed.status.success(), "{}", said(&listed));
    let dataset = Dataset::options().cluster(node.address()).local(false).open(uri);
    let dataset = dataset.expect("the node opens it");
    assert_eq!(dataset.read(60, "x").expect("a row"), [60]);
    let counters = node.describe().counters.expect("counters");
    assert!(counters.sent_bytes > 0, "{counters:?} {:?}", node.open_files().len());
}
