//! Members come and go under a verified load: no sample is lost, no byte is wrong, no batch waits
//! for long, and moves read from nodes, not from the origin.

use std::process::Command;
use std::thread;
use std::time::Duration;

use larder_origin::{Options, S3Server};
use larder_tests::living::{ring, timing};
use larder_tests::node::binary;
use larder_tests::{Etcd, Keeper, LivingCluster, Load, repeats, words};
use nix::sys::signal::Signal;

/// The longest wait for one batch. A client passes a node over after two seconds of silence; the
/// rest is for busy machines.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Shards of the dataset: one to a file.
const SHARDS: usize = 48;

/// A cluster over a real S3 server, and its readers.
struct Scene {
    cluster: LivingCluster,
    server: S3Server,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new(keeper: Keeper, nodes: usize) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        let folder = server.create_bucket("data").expect("a bucket").join("words");
        words::write(&folder, u32::try_from(SHARDS).expect("few"), 64, 1024);
        let mut index = Command::new(binary("larder"));
        index.args(["dataset", "index", "s3://data/words", "--shard-bytes", "256KiB"]);
        let indexed =
            index.args(["-o", "json"]).envs(server.env()).output().expect("larder starts");
        assert!(indexed.status.success(), "{indexed:?}");
        let cluster = LivingCluster::start(keeper, nodes, "s3://data", &server.env());
        Self { cluster, server, _dir: dir }
    }

    fn load(&self, readers: u64) -> Load {
        let load = Load::start(
            readers,
            env!("CARGO_BIN_EXE_larder-test-client"),
            "s3://data/words",
            &self.cluster.address(),
            &self.server.env(),
        );
        self.until_warm();
        load
    }

    /// Waits until every shard is in the memory of its owner.
    fn until_warm(&self) {
        let nodes: Vec<usize> = (0..self.cluster.nodes.len()).collect();
        self.cluster.until_owners_hold(&nodes, SHARDS);
        self.server.reset_counts();
    }

    /// Whether the origin was asked for samples since the cluster was warm.
    fn origin_was_asked(&self) -> bool {
        let counts = self.server.counts();
        let mut objects = counts.reads.objects();
        objects.any(|(object, _)| object.ends_with(".safetensors"))
    }
}

/// Nodes are killed and restarted one after the other. Each is back before it counts as dead, so
/// the ring stays.
fn short_absences_cause_no_rebalance(keeper: Keeper, deaths: usize) {
    let mut scene = Scene::new(keeper, repeats(3, 5));
    let load = scene.load(2);
    let all: Vec<usize> = (0..scene.cluster.nodes.len()).collect();
    let version = scene.cluster.until_ring(&all);
    for death in 0..deaths {
        let victim = death % all.len();
        scene.cluster.nodes[victim].kill_now();
        scene.cluster.restart(victim);
        assert_eq!(scene.cluster.until_ring(&all), version, "after death {death}");
    }
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("{deaths} deaths: {read:?}");
}

/// One node keeps dying and returning, and is absent for up to a third of its grace.
fn flaps_cause_at_most_one_rebalance(keeper: Keeper, flaps: usize) {
    let mut scene = Scene::new(keeper, 3);
    let load = scene.load(2);
    let version = scene.cluster.until_ring(&[0, 1, 2]);
    for flap in 0..flaps {
        scene.cluster.nodes[2].kill_now();
        let away = 1 + u32::try_from(flap % 10).expect("small");
        thread::park_timeout(timing().death_grace / 30 * away);
        scene.cluster.restart(2);
    }
    // It is a member again, or held out for flapping; in both cases the two others agree.
    let others = [0, 1].map(|node| ring(&scene.cluster.nodes[node]).expect("it answers").version());
    assert!(others.iter().all(|&now| now <= version + 1), "from {version} to {others:?}");
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("{flaps} flaps, ring {version} to {others:?}: {read:?}");
}

/// A member pauses for longer than its announcement lives, and for less than its grace.
fn pause_causes_no_rebalance(keeper: Keeper) {
    let scene = Scene::new(keeper, 3);
    let load = scene.load(2);
    let version = scene.cluster.until_ring(&[0, 1, 2]);
    for node in &scene.cluster.nodes {
        node.signal(Signal::SIGSTOP);
        thread::park_timeout(timing().announcement_ttl * 13 / 10);
        node.signal(Signal::SIGCONT);
        assert_eq!(scene.cluster.until_ring(&[0, 1, 2]), version);
    }
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("paused: {read:?}");
}

fn members_join_and_leave(keeper: Keeper) {
    let mut scene = Scene::new(keeper, 2);
    let load = scene.load(2);

    scene.cluster.add();
    let version = scene.cluster.until_ring(&[0, 1, 2]);
    let held = scene.cluster.until_owners_hold(&[0, 1, 2], SHARDS);
    assert!(held.iter().all(|&shards| shards >= SHARDS / 6), "{held:?}");
    assert!(!scene.origin_was_asked(), "what moved came from the nodes that had it");

    scene.cluster.nodes[1].kill_now();
    let without = scene.cluster.until_ring(&[0, 2]);
    assert!(without > version);

    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("held {held:?} after the third joined; {read:?}");
}

#[test]
fn members_join_and_leave_in_embedded_mode() {
    members_join_and_leave(Keeper::FirstNode);
}

#[test]
fn members_join_and_leave_with_etcd() {
    members_join_and_leave(Keeper::Etcd(Etcd::start()));
}

#[test]
fn short_absences_cause_no_rebalance_in_embedded_mode() {
    short_absences_cause_no_rebalance(Keeper::FirstNode, repeats(6, 200));
}

#[test]
fn short_absences_cause_no_rebalance_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    short_absences_cause_no_rebalance(keeper, repeats(6, 200));
}

#[test]
fn flaps_cause_at_most_one_rebalance_in_embedded_mode() {
    flaps_cause_at_most_one_rebalance(Keeper::FirstNode, repeats(2, 100));
}

#[test]
fn flaps_cause_at_most_one_rebalance_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    flaps_cause_at_most_one_rebalance(keeper, repeats(2, 100));
}

#[test]
fn pause_causes_no_rebalance_in_embedded_mode() {
    pause_causes_no_rebalance(Keeper::FirstNode);
}

#[test]
fn pause_causes_no_rebalance_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    pause_causes_no_rebalance(keeper);
}

/// Without a coordinator, membership is frozen and reads go on, also when a member dies.
#[test]
fn unreachable_etcd_blocks_no_read() {
    let mut scene = Scene::new(Keeper::Etcd(Etcd::start()), 3);
    let load = scene.load(2);
    let version = scene.cluster.until_ring(&[0, 1, 2]);
    let etcd = |scene: &Scene, signal| match &scene.cluster.keeper {
        Keeper::Etcd(etcd) => etcd.signal(signal),
        Keeper::FirstNode => unreachable!("this cluster has one"),
    };
    etcd(&scene, Signal::SIGSTOP);
    scene.cluster.nodes[1].kill_now();
    thread::park_timeout(timing().death_grace + timing().turn);
    assert_eq!(scene.cluster.until_ring_of(&[0, 2], &["a", "b", "c"]), version, "frozen");
    etcd(&scene, Signal::SIGCONT);
    scene.cluster.until_ring(&[0, 2]);
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("etcd away: {read:?}");
}
