//! Training loops onto a device, over real nodes: each byte is checked, also while nodes come and
//! go.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
};

use larder_tests::node::binary;
use larder_tests::{Cluster, Keeper, LivingCluster, NodeOptions, NodeProcess, words};
use tempfile::TempDir;

use crate::{
    child::{Outcome, Over, command, outcome},
    training,
};

/// Words of a sample: long enough to go directly.
const WORDS: u32 = 10_000;

/// Shards of six files.
const SHARDS: u64 = 24;

/// A folder with `files` files of 100 samples, in shards of a megabyte, and its address.
fn dataset(files: u32) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    words::write(folder.path(), files, 100, WORDS);
    let uri = format!("file://{}", folder.path().display());
    let mut index = Command::new(binary("larder"));
    let status =
        index.args(["dataset", "index", &uri, "--shard-bytes", "1MiB", "--quiet"]).status();
    assert!(status.expect("larder runs").success());
    (folder, uri)
}

/// Trains for this many batches over the stand-in, and hands over each line of the loop.
fn train(way: (&str, &str, &str), batches: &str, hear: impl FnMut(&str)) -> Outcome {
    train_at(&[("STANDIN_DELAY_US", "100")], way, batches, hear)
}

/// The same with these settings of the stand-in.
fn train_at(
    settings: &[(&str, &str)],
    (uri, cluster, way): (&str, &str, &str),
    batches: &str,
    mut hear: impl FnMut(&str),
) -> Outcome {
    let (mut command, folder) = command("training", Over::StandIn(settings));
    command
        .env(training::URI, uri)
        .env(training::CLUSTER, cluster)
        .env(training::WAY, way)
        .env(training::BATCHES, batches)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("a child process");
    let mut stderr = child.stderr.take().expect("stderr was piped");
    let errors = thread::spawn(move || std::io::read_to_string(&mut stderr).unwrap_or_default());
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("stdout was piped")).lines() {
        let line = line.expect("a line");
        hear(&line);
        said += &format!("{line}\n");
    }
    let status = child.wait().expect("our own child can be waited for");
    said += &errors.join().expect("no panic");
    outcome("training", status, said, folder.path())
}

fn one_node(uri: &str, memory: &str) -> NodeProcess {
    let options = NodeOptions { memory: memory.to_owned(), ..NodeOptions::new("a", uri) };
    NodeProcess::start(&options)
}

#[test]
fn staged_batches_are_one_host_copy_and_one_device_copy() {
    let (_folder, uri) = dataset(4);
    let node = one_node(&uri, "256MiB");
    let trained = train((&uri, &node.address(), "staged"), "75", |_| {});
    trained.passes();
    let bytes = 75 * u64::from(training::BATCH_SIZE) * u64::from(WORDS) * 4;
    for name in ["device_bytes", "staged_bytes", "copied_bytes"] {
        assert_eq!(trained.said(name), bytes, "{name}: {trained:?}");
    }
    assert_eq!(trained.count("pinned_bytes"), bytes, "{trained:?}");
    assert_eq!(trained.calls("cuMemcpyHtoDAsync_v2"), 75, "{trained:?}");
}

#[test]
fn direct_batches_are_copied_by_the_device_alone() {
    let (_folder, uri) = dataset(4);
    let node = one_node(&uri, "256MiB");
    // Until an epoch finds all shards mapped and registered.
    let trained = train((&uri, &node.address(), "direct"), training::UNTIL_DIRECT, |_| {});
    trained.passes();
    let epoch = 25 * u64::from(training::BATCH_SIZE) * u64::from(WORDS) * 4;
    assert!(trained.count("direct_bytes") >= epoch, "{trained:?}");
    assert_eq!(trained.count("pinned_bytes"), trained.said("staged_bytes"), "{trained:?}");
    let sent = trained.count("direct_bytes") + trained.count("pinned_bytes");
    assert_eq!(sent, trained.said("device_bytes"), "{trained:?}");
}

#[test]
fn killed_node_causes_no_wrong_byte_and_no_driver_mistake() {
    let (_folder, uri) = dataset(6);
    let mut cluster = Cluster::start(2, &uri, |_| {});
    let address = cluster.address();
    let trained = train((&uri, &address, "auto"), "1000", |line| match line {
        "batch 300" => cluster.nodes[1].kill_now(),
        "batch 600" => cluster.restart(1),
        _ => {}
    });
    trained.passes();
    assert!(trained.count("direct_bytes") > 0 && trained.count("pinned_bytes") > 0, "{trained:?}");
}

#[test]
fn full_node_causes_no_wrong_byte_and_no_driver_mistake() {
    let (_folder, uri) = dataset(12);
    // Half of the dataset: shards that have room stay, and rows of the others come from the origin.
    let node = one_node(&uri, "24MiB");
    let trained = train((&uri, &node.address(), "auto"), "1000", |_| {});
    trained.passes();
    assert!(trained.count("pinned_bytes") > 0, "{trained:?}");
}

/// The owners of shards change and evict them: a client releases extents that it copies from.
#[test]
fn ring_changes_cause_no_wrong_byte_and_no_driver_mistake() {
    let (_folder, uri) = dataset(6);
    let mut cluster = LivingCluster::start(Keeper::FirstNode, 2, &uri, &[]);
    let address = cluster.address();
    // Longer than the ten seconds after which an owner before evicts a shard.
    let slow = [("STANDIN_DELAY_US", "18000")];
    let trained = train_at(&slow, (&uri, &address, "auto"), "1000", |line| match line {
        "batch 50" => cluster.add(),
        "batch 950" => cluster.nodes[1].kill_now(),
        _ => {}
    });
    trained.passes();
    assert!(trained.count("direct_bytes") > 0, "{trained:?}");
    // Each shard was registered once, and those that moved once more.
    assert!(trained.calls("cuMemHostRegister_v2") > SHARDS, "{trained:?}");
}
