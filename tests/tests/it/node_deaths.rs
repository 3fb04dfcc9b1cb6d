//! Nodes are killed or stopped under a verified load: no sample is lost, no byte is wrong, no batch
//! waits for long.

use std::time::Duration;

use larder_origin::{Options, S3Server};
use larder_tests::{ClientOptions, Cluster, TrainingProcess, repeats, words};
use nix::sys::signal::Signal;

/// The longest wait for one batch. A client passes a node over after two seconds of silence; the
/// rest is for busy machines.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Three nodes over one origin, and the waits of their clients.
struct Scene {
    server: S3Server,
    cluster: Cluster,
    longest_wait: Duration,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        words::write(&server.create_bucket("data").expect("a bucket").join("words"), 8, 256, 1024);
        let cluster = Cluster::start(3, "s3://data", |options| options.env = server.env());
        Self { server, cluster, longest_wait: Duration::ZERO, _dir: dir }
    }

    /// A client in the midst of its first epoch; every other one maps nothing.
    fn client(&self, number: usize) -> TrainingProcess {
        let mut client = TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri: "s3://data/words",
            cluster: &self.cluster.address(),
            epochs: 4,
            seed: u64::try_from(number).expect("few"),
            batch_size: 32,
            env: self.server.env(),
            args: if number.is_multiple_of(2) { &[] } else { &["--remote-only"] },
            wrapper: &[],
        });
        client.wait_for("batch");
        client
    }

    /// Checks that the client finishes all its epochs without a long wait.
    fn comes_through(&mut self, mut client: TrainingProcess, what: &str) {
        let (status, lines) = client.finish();
        assert!(status.success(), "{what}: {status}, {:?}", lines.last());
        assert_eq!(lines.last().map(String::as_str), Some("epoch 3 complete"), "{what}");
        let waited = client.longest_wait();
        assert!(waited < WAIT_MAX, "{what}: a batch took {waited:?}");
        self.longest_wait = self.longest_wait.max(waited);
    }
}

#[test]
fn node_killed_in_mid_epoch_loses_no_sample_or_byte() {
    let mut scene = Scene::new();
    let deaths = repeats(6, 200);
    for number in 0..deaths {
        let mut client = scene.client(number);
        let victim = number % scene.cluster.nodes.len();
        scene.cluster.nodes[victim].kill_now();
        client.wait_for("epoch 0 complete");
        scene.cluster.restart(victim);
        scene.comes_through(client, &format!("after death {number}"));
    }
    println!("{deaths} nodes killed: the longest wait for a batch was {:?}", scene.longest_wait);
}

/// A stopped node accepts connections and requests, and answers none: worse than a dead node.
#[test]
fn node_stopped_in_mid_epoch_loses_no_sample_or_byte() {
    let mut scene = Scene::new();
    let stops = repeats(2, 20);
    for number in 0..stops {
        let mut client = scene.client(number);
        // A client without mappings also meets each node in its turn.
        let victim = number % scene.cluster.nodes.len();
        scene.cluster.nodes[victim].signal(Signal::SIGSTOP);
        client.wait_for("epoch 1 complete");
        scene.cluster.nodes[victim].signal(Signal::SIGCONT);
        scene.comes_through(client, &format!("after stop {number}"));
    }
    println!("{stops} nodes stopped: the longest wait for a batch was {:?}", scene.longest_wait);
}

#[test]
fn training_reads_the_origin_when_every_node_is_dead() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
    words::write(&server.create_bucket("data").expect("a bucket").join("words"), 4, 128, 1024);
    let mut cluster = Cluster::start(2, "s3://data", |options| options.env = server.env());
    let address = cluster.address();
    let mut client = TrainingProcess::start(&ClientOptions {
        program: env!("CARGO_BIN_EXE_larder-test-client"),
        uri: "s3://data/words",
        cluster: &address,
        // So many that no client reads them all before the nodes are killed.
        epochs: 20,
        seed: 1,
        batch_size: 16,
        env: server.env(),
        args: &["--remote-only"],
        wrapper: &[],
    });
    client.wait_for("batch");
    for node in &mut cluster.nodes {
        node.kill_now();
    }
    let (status, lines) = client.finish();
    assert!(status.success(), "{status}, {:?}", lines.last());
    let last_batch = lines.iter().rev().find(|line| line.starts_with("batch")).expect("batches");
    assert_eq!(last_batch, "batch 0 0 16", "rows come from the origin now");
}

/// The nodes that served in place of a dead node give it its shards. No sample is read from the
/// origin again.
#[test]
fn returning_node_gets_its_shards_from_its_stand_ins() {
    let mut scene = Scene::new();
    scene.cluster.nodes[0].kill_now();
    let client = scene.client(1);
    scene.comes_through(client, "with one node away");
    scene.cluster.restart(0);
    scene.server.reset_counts();
    // The client maps nothing, so it asks the returned node for the shards that it owns.
    let client = scene.client(3);
    scene.comes_through(client, "with all nodes back");
    let counts = scene.server.counts();
    let samples = counts.reads.objects().filter(|(object, _)| object.ends_with(".safetensors"));
    assert_eq!(samples.count(), 0, "{:?}", counts.reads);
}
