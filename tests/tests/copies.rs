//! Clusters that keep more than one copy of each shard: real nodes, of which one is killed.

use std::process::Command;

use larder_origin::{Options, S3Server};
use larder_tests::node::binary;
use larder_tests::{ClientOptions, Etcd, Keeper, LivingCluster, TrainingProcess, until, words};
use tempfile::TempDir;

/// Shards of the dataset: one to a file.
const SHARDS: usize = 24;

/// A cluster over an S3 server that counts what is read of it.
struct Scene {
    server: S3Server,
    cluster: LivingCluster,
    _dir: TempDir,
}

impl Scene {
    /// Nodes of a cluster that is to keep so many copies.
    fn new(keeper: Keeper, nodes: usize, copies: usize) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        let bucket = server.create_bucket("data").expect("a bucket");
        words::write(&bucket.join("words"), u32::try_from(SHARDS).expect("few"), 64, 1024);
        let mut index = Command::new(binary("larder"));
        index.args(["dataset", "index", "s3://data/words", "--shard-bytes", "256KiB"]);
        assert!(index.envs(server.env()).status().expect("larder starts").success());
        server.reset_counts();
        let mut env = server.env();
        env.push(("LARDER_COPIES".to_owned(), copies.to_string()));
        let cluster = LivingCluster::start(keeper, nodes, "s3://data", &env);
        Self { server, cluster, _dir: dir }
    }

    /// A client that maps nothing and checks every byte reads some epochs.
    fn read(&self) {
        finish(self.reader(2, &["--remote-only"]));
    }

    /// A client that checks every byte and reads so many epochs, with further words.
    fn reader(&self, epochs: u64, args: &[&str]) -> TrainingProcess {
        TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri: "s3://data/words",
            cluster: &self.cluster.address(),
            epochs,
            seed: 1,
            batch_size: 32,
            env: self.server.env(),
            args,
            wrapper: &[],
        })
    }

    /// Every shard is on so many of these nodes.
    fn until_copies(&self, nodes: &[usize], count: usize) {
        until(&format!("every shard is on {count} of {nodes:?}"), || {
            let copies = self.cluster.copies(nodes).by_shard;
            copies.len() == SHARDS && copies.values().all(|&copies| copies == count)
        });
    }

    /// How often each of the files was read.
    fn reads_of_samples(&self) -> Vec<String> {
        let counts = self.server.counts();
        let objects = counts.reads.objects();
        let samples = objects.filter(|(object, _)| object.ends_with(".safetensors"));
        samples.map(|(object, reads)| format!("{object}: {reads:?}")).collect()
    }
}

/// Where the rows of the last batch came from: batch, local, remote, origin.
fn finish(mut reader: TrainingProcess) -> String {
    let (status, lines) = reader.finish();
    assert!(status.success(), "{status}, {:?}", lines.last());
    let [.., batch, end] = &lines[..] else { panic!("{lines:?}") };
    assert!(end.ends_with("complete"), "{end}");
    batch.clone()
}

/// Every owner gets a copy of what was read, without another read of the origin; and then nobody needs that, neither in
/// the seconds after a death nor when the ring has gone on without the dead.
fn a_death_costs_no_read_of_the_origin(keeper: Keeper) {
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
fn a_death_costs_no_read_of_the_origin_by_one_of_the_nodes() {
    a_death_costs_no_read_of_the_origin(Keeper::FirstNode);
}

#[test]
fn a_death_costs_no_read_of_the_origin_by_etcd() {
    a_death_costs_no_read_of_the_origin(Keeper::Etcd(Etcd::start()));
}

#[test]
fn readers_beside_either_owner_read_the_origin_once_and_then_each_from_its_own_node() {
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
