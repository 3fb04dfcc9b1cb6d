//! Clusters with more than one copy of each shard: real nodes. One is killed, operators change the
//! number of copies, and memory gets scarce.

use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_origin::{Options, S3Server};
use larder_tests::living::TOKEN;
use larder_tests::node::binary;
use larder_tests::{
    ClientOptions, Keeper, LivingCluster, TrainingProcess, repeats, tool, until, words,
};
use serde_json::Value;
use tempfile::TempDir;

/// Shards of the dataset that is read, 256 KiB each: one to a file.
const SHARDS: usize = 24;

/// Shards of the other one.
const MORE_SHARDS: usize = 12;

/// A replica may be evicted after this time: it is no longer new, and no client has read it.
const IDLE: Duration = Duration::from_secs(80);

/// A cluster over an S3 server that counts its reads.
struct Scene {
    server: S3Server,
    cluster: LivingCluster,
    dir: TempDir,
}

impl Scene {
    /// Starts the nodes of a cluster with this many copies.
    fn new(keeper: Keeper, nodes: usize, copies: usize) -> Self {
        Self::of(keeper, nodes, copies, "256MiB")
    }

    /// The same with this much memory a node.
    fn of(keeper: Keeper, nodes: usize, copies: usize, memory: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        let bucket = server.create_bucket("data").expect("a bucket");
        for (dataset, shards) in [("words", SHARDS), ("more", MORE_SHARDS)] {
            words::write(&bucket.join(dataset), u32::try_from(shards).expect("few"), 64, 1024);
            let mut index = Command::new(binary("larder"));
            index.args(["dataset", "index", &format!("s3://data/{dataset}")]);
            index.args(["--shard-bytes", "256KiB", "--quiet"]);
            assert!(index.envs(server.env()).status().expect("larder starts").success());
        }
        server.reset_counts();
        let mut env = server.env();
        env.push(("LARDER_REPLICAS".to_owned(), copies.to_string()));
        let cluster = LivingCluster::start_with_memory(keeper, nodes, "s3://data", &env, memory);
        Self { server, cluster, dir }
    }

    /// A client without mappings reads some epochs and checks every byte.
    fn read(&self) {
        self.read_of("words");
    }

    /// The same of a dataset.
    fn read_of(&self, dataset: &str) {
        finish(self.reader_of(dataset, 2, &["--remote-only"]));
    }

    /// A client checks every byte and reads this many epochs, with more arguments.
    fn reader(&self, epochs: u64, args: &[&str]) -> TrainingProcess {
        self.reader_of("words", epochs, args)
    }

    /// The same of a dataset.
    fn reader_of(&self, dataset: &str, epochs: u64, args: &[&str]) -> TrainingProcess {
        TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri: &format!("s3://data/{dataset}"),
            cluster: &self.cluster.address(),
            epochs,
            seed: 1,
            batch_size: 32,
            env: self.server.env(),
            args,
            wrapper: &[],
        })
    }

    /// Waits until every shard is on this many of these nodes.
    fn until_copies(&self, nodes: &[usize], count: usize) {
        until(&format!("every shard is on {count} of {nodes:?}"), || {
            let copies = self.cluster.copies(nodes).by_shard;
            copies.len() == SHARDS && copies.values().all(|&copies| copies == count)
        });
    }

    fn larder(&self, args: &[&str]) -> Value {
        let args = [args, &["-o", "json"]].concat();
        tool::json(&tool::larder(&self.cluster.address(), self.dir.path(), Some(TOKEN), &args))
    }

    /// Has so many nodes own each shard, and returns what that was said to take.
    fn plan_replicas(&self, copies: u32) -> Value {
        let planned = self.larder(&["ring", "plan", "--replicas", &copies.to_string()]);
        let file = planned["file"].as_str().expect("a file");
        self.larder(&["ring", "apply", file, "--yes", "--follow"]);
        let status = self.larder(&["ring", "status"]);
        assert_eq!(status["replicas"], copies, "{status}");
        planned
    }

    /// Returns how often each of the files was read.
    fn reads_of_samples(&self) -> Vec<String> {
        let counts = self.server.counts();
        let objects = counts.reads.objects();
        let samples = objects.filter(|(object, _)| object.ends_with(".safetensors"));
        samples.map(|(object, reads)| format!("{object}: {reads:?}")).collect()
    }
}

/// Returns the sources of the rows of the last batch: batch, local, remote, origin.
fn finish(mut reader: TrainingProcess) -> String {
    let (status, lines) = reader.finish();
    assert!(status.success(), "{status}, {:?}", lines.last());
    let [.., batch, end] = &lines[..] else { panic!("{lines:?}") };
    assert!(end.ends_with("complete"), "{end}");
    batch.clone()
}

/// Every owner copies the shards that were read, without another read of the origin. So a death
/// costs no read of the origin, neither in its first seconds nor after the next ring.
fn node_death_causes_no_origin_read(keeper: Keeper) {
    let mut scene = Scene::new(keeper, 3, 2);
    scene.read();
    let read = scene.reads_of_samples();
    scene.until_copies(&[0, 1, 2], 2);
    assert_eq!(scene.reads_of_samples(), read, "copies come from other nodes");
    scene.server.reset_counts();

    // The first keeps the record.
    scene.cluster.nodes[1].kill_now();
    scene.read();
    scene.cluster.until_ring(&[0, 2]);
    scene.read();
    scene.until_copies(&[0, 2], 2);
    assert_eq!(scene.reads_of_samples(), Vec::<String>::new());
}

#[test]
fn node_death_causes_no_origin_read_in_embedded_mode() {
    node_death_causes_no_origin_read(Keeper::FirstNode);
}

#[test]
fn node_death_causes_no_origin_read_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    node_death_causes_no_origin_read(keeper);
}

#[test]
fn readers_beside_two_owners_cause_one_origin_read() {
    let scene = Scene::new(Keeper::FirstNode, 2, 2);
    let beside = [["--over-network", "a"], ["--over-network", "b"]];
    let cold: Vec<_> = beside.iter().map(|args| scene.reader(2, args)).collect();
    cold.into_iter().for_each(|reader| drop(finish(reader)));
    let (counts, read) = (scene.server.counts(), scene.reads_of_samples());
    let samples = counts.reads.objects().filter(|(object, _)| object.ends_with(".safetensors"));
    let again = samples.map(|(object, _)| counts.reads.again(object));
    assert_eq!((read.len(), again.sum::<u64>()), (SHARDS, 0), "{read:?}");
    scene.until_copies(&[0, 1], 2);
    for args in &beside {
        assert_eq!(finish(scene.reader(200, args)), "batch 32 0 0");
    }
    assert_eq!(scene.reads_of_samples(), read);
}

/// From one copy to two and back, by plans that move next to nothing and read nothing from the
/// origin.
fn operators_set_the_replica_count(keeper: Keeper) {
    let scene = Scene::new(keeper, 3, 1);
    scene.read();
    scene.until_copies(&[0, 1, 2], 1);
    until("the dataset is known", || scene.larder(&["ring", "status"])["datasets_measured"] == 1);
    scene.server.reset_counts();
    let planned = scene.plan_replicas(2);
    assert_eq!((&planned["replicas"], &planned["bytes_from_origin"]), (&2.into(), &0.into()));
    let owned = |when: &str| -> u64 {
        let nodes = planned["nodes"].as_array().expect("nodes").iter();
        nodes.map(|node| node[when].as_u64().expect("bytes")).sum()
    };
    assert_eq!(owned("owned_bytes"), 2 * owned("owned_bytes_before"), "{planned}");
    assert!(planned["bytes"].as_u64() < Some(owned("owned_bytes_before") / 4), "{planned}");
    scene.until_copies(&[0, 1, 2], 2);
    scene.plan_replicas(1);
    scene.read();
    assert_eq!(scene.reads_of_samples(), Vec::<String>::new());
    let changes = scene.larder(&["ring", "history"]);
    let words = changes["changes"][0]["words"].as_str().expect("words");
    assert!(words.contains("1 replica of each shard"), "{words}");
}

#[test]
fn operators_set_the_replica_count_in_embedded_mode() {
    operators_set_the_replica_count(Keeper::FirstNode);
}

#[test]
fn operators_set_the_replica_count_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    operators_set_the_replica_count(keeper);
}

/// Three nodes keep two copies of everything. Two nodes have no room for that, nor for one copy and
/// another dataset.
#[test]
fn replicas_are_evicted_for_primaries_without_loss() {
    if repeats(0, 1) == 0 {
        return println!("not tested: it takes minutes; `make test-full` does");
    }
    let scene = Scene::of(Keeper::FirstNode, 3, 2, "5632KiB");
    scene.read();
    until("most have copies", || {
        scene.cluster.copies(&[0, 1, 2]).by_node.iter().sum::<usize>() > SHARDS * 3 / 2
    });
    thread::park_timeout(IDLE);
    scene.server.reset_counts();
    scene.larder(&["node", "drain", "c", "--yes", "--follow"]);
    scene.cluster.until_ring(&[0, 1]);
    scene.read();
    assert_eq!(scene.reads_of_samples(), Vec::<String>::new(), "who is asked first has it");
    until("the other dataset fits", || {
        scene.read_of("more");
        scene.cluster.copies(&[0, 1]).by_shard.len() == SHARDS + MORE_SHARDS
    });
    scene.server.reset_counts();
    scene.read_of("more");
    scene.read();
    assert_eq!(scene.reads_of_samples(), Vec::<String>::new());
}
