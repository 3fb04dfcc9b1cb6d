//! A real cluster under an operator: planned changes begin, are steered and aborted, nodes leave
//! and are removed. Readers get every sample, with the right bytes, meanwhile.

use std::collections::BTreeSet;
use std::process::Output;
use std::time::Duration;

use larder_client::Dataset;
use larder_tests::living::{self, TOKEN};
use larder_tests::{Cluster, Keeper, LivingCluster, Load, tool, until, words};
use serde_json::Value;
use tempfile::TempDir;

/// The longest wait for one batch, with room for busy machines.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Shards of the dataset: one to a file.
const SHARDS: usize = 48;

/// Samples in each.
const ROWS: u64 = 64;

/// So slow that a change does not end while the test looks.
const CRAWL: &str = "1KiB/s";

/// A cluster, its data, and the folder of its operator.
struct Scene {
    cluster: LivingCluster,
    uri: String,
    folder: TempDir,
}

impl Scene {
    fn new(keeper: Keeper, nodes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("words");
        std::fs::create_dir(&data).expect("a folder of ours");
        words::write(
            &data,
            u32::try_from(SHARDS).expect("few"),
            u32::try_from(ROWS).expect("few"),
            1024,
        );
        let uri = format!("file://{}", data.display());
        let cluster = LivingCluster::start(keeper, nodes, &uri, &[]);
        let scene = Self { cluster, uri, folder };
        let index = ["dataset", "index", &scene.uri, "--shard-bytes", "256KiB"];
        assert!(scene.larder(&index).status.success());
        let all: Vec<usize> = (0..nodes).collect();
        scene.cluster.until_ring(&all);
        scene
    }

    /// Starts readers, waits until every shard is in memory, and until plans include the data.
    fn load(&self) -> Load {
        let load = Load::start(
            2,
            env!("CARGO_BIN_EXE_larder-test-client"),
            &self.uri,
            &self.cluster.address(),
            &[],
        );
        let nodes: Vec<usize> = (0..self.cluster.nodes.len()).collect();
        self.cluster.until_owners_hold(&nodes, SHARDS);
        until("the dataset is known", || self.status()["datasets_measured"] == 1);
        load
    }

    fn larder(&self, args: &[&str]) -> Output {
        tool::larder(&self.cluster.address(), self.folder.path(), Some(TOKEN), args)
    }

    fn json(&self, args: &[&str]) -> Value {
        tool::json(&self.larder(&[args, &["-o", "json"]].concat()))
    }

    /// Runs a command that changes the cluster.
    fn tell(&self, args: &[&str]) -> Value {
        self.json(&[args, &["--yes"]].concat())
    }

    /// Runs a command that is refused in these words.
    fn refused(&self, args: &[&str], words: &str) {
        let output = self.larder(&[args, &["--yes"]].concat());
        assert!(!output.status.success(), "{args:?} was not refused");
        assert!(tool::said(&output).contains(words), "{}", tool::said(&output));
    }

    fn status(&self) -> Value {
        self.json(&["ring", "status"])
    }

    fn state(&self, node: &str) -> Value {
        let status = self.status();
        let nodes = status["nodes"].as_array().expect("nodes");
        let found = nodes.iter().find(|one| one["node"] == node);
        found.map_or(Value::Null, |one| one["state"].clone())
    }

    /// Returns the file of a plan that gives a node another weight.
    fn plan(&self, weight: &str) -> String {
        let planned = self.json(&["ring", "plan", "--reweight", weight]);
        assert!(planned["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{planned}");
        assert_eq!(planned["bytes_from_origin"], 0, "{planned}");
        planned["file"].as_str().expect("a file").to_owned()
    }

    /// Returns the latest change that is over.
    fn last(&self) -> Value {
        self.json(&["ring", "history"])["changes"][0].clone()
    }
}

/// A change is begun by its plan and steered; another one is aborted.
fn operators_steer_a_change(keeper: Keeper) {
    let scene = Scene::new(keeper, 3);
    let load = scene.load();
    let before = scene.cluster.until_ring(&[0, 1, 2]);

    let plan = scene.plan("c=3");
    scene.tell(&["ring", "apply", &plan, "--rate", CRAWL]);
    scene.refused(&["ring", "apply", &plan], "in flight");
    scene.tell(&["ring", "pause"]);
    let status = scene.status();
    assert_eq!(status["change"]["paused"], true);
    assert_eq!(status["change"]["edits"][0]["weight"], 3);
    assert_eq!(status["ring_version"], before, "reads go on by the ring that was");
    scene.tell(&["ring", "rate", "1GiB/s"]);
    scene.tell(&["ring", "resume"]);
    let after = until_newer(&scene, before);
    assert_eq!(scene.last()["outcome"], "committed");
    let held = scene.cluster.until_owners_hold(&[0, 1, 2], SHARDS);
    assert!(held[2] > SHARDS / 2 - 4, "three parts of five: {held:?}");
    scene.refused(&["ring", "apply", &plan], "ring");

    let back = scene.plan("c=1");
    scene.tell(&["ring", "apply", &back[5..15], "--rate", CRAWL]);
    scene.tell(&["ring", "abort"]);
    scene.refused(&["ring", "abort"], "no change is in flight");
    assert_eq!(scene.last()["outcome"], "aborted");
    assert_eq!(scene.cluster.until_ring(&[0, 1, 2]), after);

    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
}

fn until_newer(scene: &Scene, before: u64) -> u64 {
    let mut version = before;
    until("the change is committed", || {
        version = scene.cluster.until_ring(&[0, 1, 2]);
        version > before
    });
    version
}

/// A node is asked to leave and stays; another leaves; a third dies and an operator removes it.
fn operators_remove_nodes(keeper: Keeper) {
    let mut scene = Scene::new(keeper, 4);
    let load = scene.load();

    // While another change is in flight, a drain without a deadline waits for its end.
    let plan = scene.plan("a=2");
    scene.tell(&["ring", "apply", &plan, "--rate", CRAWL]);
    // It could end all the same, if its shards come in by reads.
    scene.tell(&["ring", "pause"]);
    scene.tell(&["node", "drain", "b"]);
    assert_eq!(scene.state("b"), "draining");
    scene.tell(&["node", "undrain", "b"]);
    assert_eq!(scene.state("b"), "active");
    scene.tell(&["ring", "abort"]);

    let left = scene.tell(&["node", "drain", "c", "--follow"]);
    assert!(left["words"].as_str().is_some_and(|words| words.contains("c has left")), "{left}");
    scene.cluster.until_ring_of(&[0, 1, 3], &["a", "b", "d"]);
    scene.refused(&["node", "drain", "c"], "c");

    let version = scene.cluster.until_ring_of(&[0, 1, 3], &["a", "b", "d"]);
    scene.cluster.nodes[3].kill_now();
    scene.refused(&["ring", "remove", "dd"], "no node of the cluster is named 'dd'");
    scene.tell(&["ring", "remove", "d"]);
    assert!(scene.cluster.until_ring_of(&[0, 1], &["a", "b"]) > version);
    assert!(scene.last()["words"].as_str().is_some_and(|words| words.contains('d')));

    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
}

/// A slow and paused change is replaced by one that also removes a node with a deadline. Both are
/// done long before the deadline.
#[test]
fn drain_with_a_deadline_replaces_a_paused_change() {
    let scene = Scene::new(Keeper::FirstNode, 4);
    let load = scene.load();
    let plan = scene.plan("a=2");
    scene.tell(&["ring", "apply", &plan, "--rate", CRAWL]);
    scene.tell(&["ring", "pause"]);
    let first = scene.status()["change"]["change"].as_u64().expect("its number");
    scene.tell(&["node", "drain", "b", "--deadline", "150s", "--follow"]);
    scene.cluster.until_ring_of(&[0, 2, 3], &["a", "c", "d"]);
    let history = scene.json(&["ring", "history"])["changes"].clone();
    let outcome = |past: &Value| (past["change"].as_u64(), past["outcome"].clone());
    assert_eq!(outcome(&history[0]), (Some(first + 1), "committed".into()), "{history}");
    assert_eq!(outcome(&history[1]), (Some(first), "aborted".into()), "{history}");
    let words = history[1]["words"].as_str().expect("words");
    assert!(words.contains(&format!("for change {}, as a member leaves", first + 1)), "{words}");
    let words = history[0]["words"].as_str().expect("words");
    assert!(words.contains("a with weight 2, without b"), "{words}");
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
}

/// An epoch comes back last to the shards that it has just read, so they move last.
#[test]
fn longest_unread_shards_move_first() {
    let scene = Scene::new(Keeper::FirstNode, 2);
    let dataset = Dataset::options().cluster(scene.cluster.address()).local(false);
    let dataset = dataset.open(&scene.uri).expect("opens");
    let read = |shard: u32| dataset.read(u64::from(shard) * ROWS, words::TENSOR).expect("reads");
    let shards = 0..dataset.manifest().shard_count();
    shards.clone().for_each(|shard| drop(read(shard)));
    scene.cluster.until_owners_hold(&[0, 1], SHARDS);
    until("the dataset is known", || scene.status()["datasets_measured"] == 1);
    let held = |node: usize| -> BTreeSet<u32> {
        let ids = living::resident(&scene.cluster.nodes[node]);
        let id = |shard: u32| dataset.manifest().shard(shard).id;
        let is_held = |shard: &u32| ids.iter().any(|held| held.id == id(*shard).as_bytes());
        shards.clone().filter(is_held).collect()
    };
    let (given, kept) = (held(0), held(1));
    let again: BTreeSet<u32> = given.iter().copied().step_by(2).collect();
    again.iter().for_each(|shard| drop(read(*shard)));

    let plan = scene.json(&["ring", "plan", "--drain", "a"]);
    scene.tell(&["ring", "apply", plan["file"].as_str().expect("a file"), "--rate", "256KiB/s"]);
    until("a few have come", || held(1).len() >= kept.len() + 8);
    scene.tell(&["ring", "pause"]);
    let come: BTreeSet<u32> = held(1).difference(&kept).copied().collect();
    let early = come.intersection(&again).count();
    // The first pull begins before any source tells its last uses.
    let expected = come.len().saturating_sub(given.len() - again.len());
    assert!(early <= expected + 2, "{early} of {} came before their turn", come.len());
    scene.tell(&["ring", "abort"]);
}

/// Shards that have just left a node return to it, slowly, and stay.
#[test]
fn shards_that_return_at_once_stay() {
    let scene = Scene::new(Keeper::FirstNode, 3);
    let load = scene.load();
    let there = scene.plan("c=3");
    scene.tell(&["ring", "apply", &there, "--follow"]);
    scene.cluster.until_owners_hold(&[0, 1, 2], SHARDS);
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    let evicted = || {
        let nodes = scene.cluster.nodes[..2].iter();
        nodes.map(|node| node.describe().counters.map(|c| c.evicted_shards)).collect::<Vec<_>>()
    };
    let before = evicted();
    let done = scene.last();
    let (at, by) =
        (done["at"].as_str().expect("a time"), done["asked_by"].as_str().expect("a name"));
    assert!(at.starts_with("20") && at.ends_with('Z') && by.contains('@'), "{done}");
    let back = scene.plan("c=1");
    // It takes some seconds, so a follower that looks once a second looks several times.
    scene.tell(&["ring", "apply", &back, "--rate", "512KiB/s", "--follow"]);
    assert_eq!(scene.last()["outcome"], "committed");
    assert_eq!(evicted(), before, "a and b got shards and gave none");
}

#[test]
fn operators_steer_a_change_in_embedded_mode() {
    operators_steer_a_change(Keeper::FirstNode);
}

#[test]
fn operators_steer_a_change_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    operators_steer_a_change(keeper);
}

#[test]
fn operators_remove_nodes_in_embedded_mode() {
    operators_remove_nodes(Keeper::FirstNode);
}

#[test]
fn operators_remove_nodes_with_etcd() {
    let Some(keeper) = Keeper::etcd_in_full() else { return };
    operators_remove_nodes(keeper);
}

/// The node that keeps the record is lost for good: another takes over, and the dead one can be
/// removed.
#[test]
fn takeover_command_makes_another_node_the_leader() {
    let mut scene = Scene::new(Keeper::FirstNode, 3);
    let load = scene.load();
    scene.refused(&["ring", "takeover", "--lost", "a", "--on", "b"], "is alive");
    scene.cluster.nodes[0].kill_now();
    scene.refused(&["ring", "takeover", "--lost", "e"], "it has: a, b, c");
    let taken = scene.tell(&["ring", "takeover", "--lost", "a", "--on", "c"]);
    assert_eq!((&taken["coordinator"], &taken["generation"]), (&"c".into(), &2.into()));
    scene.cluster.until_ring(&[1, 2]);
    assert_eq!(scene.status()["coordinator"]["generation"], 2);
    let read = load.end();
    assert!(read.longest_wait < WAIT_MAX, "a batch took {:?}", read.longest_wait);
    println!("taken over: {read:?}");
}

/// A drain of the node that keeps the record tells the operator the other step, which then works.
#[test]
fn leader_is_removed_after_a_takeover() {
    let mut scene = Scene::new(Keeper::FirstNode, 3);
    let left = scene.tell(&["node", "drain", "a", "--follow"]);
    let words = left["words"].as_str().unwrap_or_default();
    assert!(words.contains("larder ring takeover --lost a"), "{words}");
    let left = scene.tell(&["node", "drain", "b", "--follow"]);
    assert_eq!(left["words"], "b has left the ring; it can be stopped");
    scene.cluster.nodes[0].kill_now();
    let taken = scene.tell(&["ring", "takeover", "--lost", "a", "--on", "c"]);
    assert_eq!((&taken["coordinator"], &taken["generation"]), (&"c".into(), &2.into()));
}

/// Without the right token no command changes anything; queries need no token.
#[test]
fn callers_without_the_token_can_only_read() {
    let scene = Scene::new(Keeper::FirstNode, 1);
    for token in [None, Some("another secret of a test")] {
        let ask = |args: &[&str]| {
            tool::larder(&scene.cluster.address(), scene.folder.path(), token, args)
        };
        let told = ask(&["node", "drain", "a", "--yes"]);
        assert_eq!(told.status.code(), Some(4), "{}", tool::said(&told));
        assert!(tool::said(&told).contains("--token-file"), "{}", tool::said(&told));
        assert_eq!(tool::json(&ask(&["ring", "status", "-o", "json"]))["ring_version"], 1);
    }
    assert_eq!(scene.state("a"), "active");
}

/// Each requested change is an audit line of the node that was asked, with any result and with any
/// `RUST_LOG`.
#[test]
fn operator_requests_are_written_to_the_audit_log() {
    let mut scene = Scene::new(Keeper::FirstNode, 1);
    let log = scene.folder.path().join("log");
    let script = format!("exec \"$@\" 2>'{}'", log.display());
    scene.cluster.options[0].wrapper = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    scene.cluster.options[0].env.push(("RUST_LOG".to_owned(), "error".to_owned()));
    scene.cluster.nodes[0].kill_now();
    scene.cluster.restart(0);
    scene.cluster.until_ring(&[0]);
    scene.refused(&["node", "drain", "a"], "last active");
    scene.refused(&["node", "drain", "nobody"], "no node of the cluster is named 'nobody'");
    let address = scene.cluster.address();
    let stranger = ["node", "drain", "a", "--yes"];
    assert!(!tool::larder(&address, scene.folder.path(), None, &stranger).status.success());
    let log = std::fs::read_to_string(log).expect("the node's log");
    for words in [
        "asked in vain: drain a: 'a' is the last active node",
        "asked in vain: drain nobody: no node of the cluster is named 'nobody'",
        "an unknown caller (from 127.0.0.1:",
    ] {
        assert!(log.contains(words), "{words} is not in\n{log}");
    }
}

/// A node with a fixed member list says so, and still explains where a shard belongs.
#[test]
fn fixed_member_list_refuses_changes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("words");
    std::fs::create_dir(&data).expect("a folder of ours");
    words::write(&data, 2, 64, 1024);
    let uri = format!("file://{}", data.display());
    let cluster = Cluster::start(2, &uri, |_| {});
    let larder = |args: &[&str]| tool::larder(&cluster.address(), folder.path(), None, args);
    assert!(larder(&["dataset", "index", &uri]).status.success());
    for args in [
        &["ring", "status"][..],
        &["ring", "plan", "--drain", "a"],
        &["node", "drain", "a", "--yes"],
    ] {
        let output = larder(args);
        assert_eq!(output.status.code(), Some(1), "{}", tool::said(&output));
        assert!(tool::said(&output).contains("--state or --etcd"), "{}", tool::said(&output));
    }
    let explained = tool::json(&larder(&["explain", &format!("{uri}#100"), "-o", "json"]));
    assert_eq!(explained["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(explained["owners"], explained["ring_owners"]);
}
